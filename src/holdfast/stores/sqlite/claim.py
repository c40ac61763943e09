"""Leases on due tasks, best first (contract section 5)."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from holdfast import ids
from holdfast.clock import from_micros, maybe_from_micros
from holdfast.errors import HoldfastError
from holdfast.model.claim import Claim, Claimed, ClaimRequest, Lease
from holdfast.model.limits import WHOLE_STORE
from holdfast.model.task import TaskStatus
from holdfast.policy import refusals
from holdfast.policy.backoff import Rng
from holdfast.policy.lease_length import lease_length
from holdfast.policy.limits import Turns
from holdfast.stores.sqlite import advance, limited, lines, records, settle
from holdfast.stores.sqlite.apart import payload_apart
from holdfast.stores.sqlite.keys import Walk
from holdfast.stores.sqlite.limited import Limited
from holdfast.stores.sqlite.lines import Look
from holdfast.stores.sqlite.rows import Record, policy_of
from holdfast.stores.sqlite.statements import json_param
from holdfast.stores.sqlite.tx import Tx


class Rounds:
    """What this process remembers of the keys of limited queues: how far it has walked them, and whose turn it is."""

    def __init__(self) -> None:
        self.walks: dict[str, Walk] = {}
        self.turns = Turns()


class Picked(msgspec.Struct, array_like=True, gc=False):
    """A claimable task, before its attempt is counted."""

    seq: int
    id: str
    name: str
    queue: str
    payload: str | None
    priority: int
    attempt: int
    failures: int
    max_attempts: int
    policy: str
    run_id: str | None
    meta: str | None
    created_at: int


class Held(Picked, array_like=True, gc=False):
    token: str
    claimed_by: str
    lease_length: int
    lease_expires_at: int
    claimed_at: int


_texts_decoder = msgspec.json.Decoder(list[str])
_picked_decoder = msgspec.json.Decoder(list[Picked])
_held_decoder = msgspec.json.Decoder(list[Held])


def peek(conn: sqlite3.Connection, request: ClaimRequest, now: int, rounds: Rounds) -> Claimed | None:
    """The answer to a claim that finds nothing to do; None where there is something to write."""
    look = lines.look(conn, request, now)
    if look.held:
        return None
    under = _limited(conn, now, look)
    if under is None:
        return None if look.levels else Claimed([], maybe_from_micros(look.next_due))
    choice = under.choice(look.levels, request.limit, rounds.walks, rounds.turns)
    if choice.tasks:
        return None
    rounds.walks |= choice.walks
    return Claimed([], _next_start(conn, now, look, under), choice.more)


def claim(tx: Tx, request: ClaimRequest, rounds: Rounds) -> Claimed:
    look = lines.look(tx.conn, request, tx.now)
    if look.held:
        return Claimed(_held(tx, request), None)
    under = _limited(tx.conn, tx.now, look)
    if under is not None:
        return _claim_under(tx, request, rounds, look, under)
    claims = _start(tx, request, _best(tx, request, look))
    if len(claims) == request.limit:
        return Claimed(claims, None)
    next_due = lines.next_due(tx.conn, tx.now, look.queues) if claims else look.next_due
    return Claimed(claims, maybe_from_micros(next_due))


def _claim_under(tx: Tx, request: ClaimRequest, rounds: Rounds, look: Look, under: Limited) -> Claimed:
    choice = under.choice(look.levels, request.limit, rounds.walks, rounds.turns)
    rounds.walks |= choice.walks
    claims = _start(tx, request, _picked(tx, choice.tasks), under.counts)
    under.spend(tx, [claim.queue for claim in claims])
    for queue, key in choice.served:
        rounds.turns.took(queue, key)
    if len(claims) == request.limit:
        return Claimed(claims, None)
    return Claimed(claims, _next_start(tx.conn, tx.now, look, under), choice.more)


def _limited(conn: sqlite3.Connection, now: int, look: Look) -> Limited | None:
    """The limits that this claim is under, if any."""
    if not look.limits:
        return None
    asked = {WHOLE_STORE, *_texts_decoder.decode(look.queues)}
    found = [limitation for limitation in look.limits if limitation.queue in asked]
    return Limited(conn, now, found) if found else None


def _next_start(conn: sqlite3.Connection, now: int, look: Look, under: Limited) -> datetime | None:
    """When the next task falls due, or a rate lets one start that is."""
    instants = (lines.next_due(conn, now, look.queues), under.next_token(_texts_decoder.decode(look.queues)))
    return maybe_from_micros(min((at for at in instants if at is not None), default=None))


def claim_one(tx: Tx, request: ClaimRequest, task_id: str, rng: Rng) -> Claimed | HoldfastError:
    """The task named, or why not. A refusal is a value here: reaping its expired attempt stays done."""
    held = _held(tx, request)
    if held:
        return Claimed(held, None)
    record = records.load(tx.conn, [task_id]).get(task_id)
    if record is None:
        return refusals.not_found(task_id)
    tx.leases = True
    if record.expired(tx.now):
        settle.reap_one(tx, record, request.worker_id, rng)
        records.save(tx, [record])
        advance.follow(tx)
    refused = _refused(tx, record)
    if refused is not None:
        return refused
    under = Limited(tx.conn, tx.now, limited.of_queue(tx.conn, record.queue))
    why = under.why_held(record)
    if why is not None:
        return refusals.held(record.id, why)
    under.spend(tx, [record.queue])
    return Claimed(_start(tx, request, _picked(tx, [record.seq]), under.counts), None)


def _refused(tx: Tx, record: Record) -> HoldfastError | None:
    match record.status:
        case TaskStatus.WAITING:
            return refusals.waiting(record.id)
        case TaskStatus.RUNNING:
            return refusals.already_claimed(record.id, record.claimed_by)
        case TaskStatus.QUEUED:
            if record.run_at > tx.now:
                return refusals.not_due(record.id, record.run_at)
            paused = tx.conn.execute("SELECT paused FROM holdfast_queues WHERE name = ?", (record.queue,)).fetchone()
            return refusals.paused(record.id, record.queue) if paused[0] else None
        case ended:
            return refusals.ended(record.id, ended)


def _best(tx: Tx, request: ClaimRequest, look: Look) -> list[Picked]:
    """Up to `limit` due tasks of all open queues. The first line is usually all it takes."""
    if len(look.levels) <= 1:
        first = _picked_decoder.decode(look.first)
        if len(first) == request.limit or not first:
            return first
    return _picked(tx, [place.seq for place in lines.best(tx.conn, tx.now, look.levels, request.limit)])


def _picked(tx: Tx, seqs: Sequence[int]) -> list[Picked]:
    return _picked_decoder.decode(tx.row("picked", tasks=json_param(seqs))[0]) if seqs else []


def _uncounted(_: str) -> bool:
    return False


def _start(
    tx: Tx, request: ClaimRequest, picked: Sequence[Picked], counted: Callable[[str], bool] = _uncounted
) -> list[Claim]:
    """A new attempt for each, with a new token. `counted`: a limit counts what runs in that queue."""
    if not picked:
        return []
    tx.leases = True
    alike: dict[tuple[int, bool], dict[str, str]] = {}
    claims = []
    shower = _Shower(tx.conn)
    for task, token in zip(picked, ids.tokens(len(picked)), strict=True):
        own = policy_of(task.policy).lease
        length = lease_length(worker_seconds=request.lease_seconds, task_seconds=own)
        alike.setdefault((length, counted(task.queue)), {})[str(task.seq)] = token
        claims.append(shower.claim(task, token, request.worker_id, length, tx.now + length, tx.now))
    for (length, placed), tokens in alike.items():
        tx.run(
            "start",
            tokens=json_param(tokens),
            claim_id=request.claim_id,
            worker_id=request.worker_id,
            length=length,
            placed=placed,
            now=tx.now,
        )
    for queue, tasks in Counter(task.queue for task in picked).items():
        tx.moved(queue, TaskStatus.QUEUED, TaskStatus.RUNNING, tasks)
    tx.flush()
    tx.write_plain([task.seq for task in picked], "task.running", request.worker_id)
    return claims


def _held(tx: Tx, request: ClaimRequest) -> list[Claim]:
    rows = _held_decoder.decode(tx.row("held", claim_id=request.claim_id)[0])
    shower = _Shower(tx.conn)
    return [
        shower.claim(row, row.token, row.claimed_by, row.lease_length, row.lease_expires_at, row.claimed_at)
        for row in rows
    ]


class _Shower:
    """Claims as they leave. The tasks of a batch share most of their instants."""

    def __init__(self, conn: sqlite3.Connection) -> None:
        self._conn = conn
        self._instants: dict[int, datetime] = {}

    def claim(self, task: Picked, token: str, worker_id: str, length: int, expires_at: int, claimed_at: int) -> Claim:
        return Claim(
            lease=Lease(task.id, task.attempt + 1, token),
            worker_id=worker_id,
            lease_expires_at=self._instant(expires_at),
            lease_seconds=length / 1_000_000,
            name=task.name,
            queue=task.queue,
            payload=payload_apart(self._conn, task.seq) if task.payload is None else task.payload,
            priority=task.priority,
            failures=task.failures,
            max_attempts=task.max_attempts,
            timeout=policy_of(task.policy).timeout,
            run_id=task.run_id,
            meta=task.meta,
            created_at=self._instant(task.created_at),
            claimed_at=self._instant(claimed_at),
        )

    def _instant(self, micros: int) -> datetime:
        instant = self._instants.get(micros)
        if instant is None:
            instant = self._instants[micros] = from_micros(micros)
        return instant
