"""Leases on due tasks, best first (contract section 5)."""

from __future__ import annotations

import heapq
import sqlite3
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import NamedTuple

import msgspec

from holdfast import ids
from holdfast.clock import from_micros, maybe_from_micros
from holdfast.errors import HoldfastError
from holdfast.model.claim import Claim, Claimed, ClaimRequest, Lease
from holdfast.model.task import TaskStatus
from holdfast.policy import refusals
from holdfast.policy.backoff import Rng
from holdfast.policy.lease_length import lease_length
from holdfast.stores.sqlite import records, settle
from holdfast.stores.sqlite.rows import Record, policy_of
from holdfast.stores.sqlite.statements import json_param, statement
from holdfast.stores.sqlite.submit import payload_apart
from holdfast.stores.sqlite.tx import Tx


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


class Look(NamedTuple):
    """What pick.sql found."""

    held: bool
    levels: list[tuple[str, int]]
    next_due: int | None
    first: str
    queues: str


_levels_decoder = msgspec.json.Decoder(list[tuple[str, int]])
_pairs_decoder = msgspec.json.Decoder(list[tuple[int, int]])
_picked_decoder = msgspec.json.Decoder(list[Picked])
_held_decoder = msgspec.json.Decoder(list[Held])


def peek(conn: sqlite3.Connection, request: ClaimRequest, now: int) -> Claimed | None:
    """The answer to a claim that finds nothing to do; None where there is something to write."""
    look = _look(conn, request, now)
    return None if look.levels or look.held else Claimed([], maybe_from_micros(look.next_due))


def claim(tx: Tx, request: ClaimRequest) -> Claimed:
    look = _look(tx.conn, request, tx.now)
    if look.held:
        return Claimed(_held(tx, request), None)
    picked = _best(tx, request, look)
    tx.leases |= bool(picked)
    claims = _start(tx, request, picked)
    if len(claims) == request.limit:
        return Claimed(claims, None)
    next_due = tx.row("next_due", queues=look.queues, now=tx.now)[0] if claims else look.next_due
    return Claimed(claims, maybe_from_micros(next_due))


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
    refused = _refused(tx, record)
    if refused is not None:
        return refused
    return Claimed(_start(tx, request, _picked(tx, [record.seq])), None)


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


def _look(conn: sqlite3.Connection, request: ClaimRequest, now: int) -> Look:
    parameters = {
        "queues": None if request.queues is None else json_param(request.queues),
        "claim_id": request.claim_id,
        "limit": request.limit,
        "now": now,
    }
    held, levels, next_due, first, queues = conn.execute(statement("pick"), parameters).fetchone()
    return Look(held != "[]", _levels_decoder.decode(levels), next_due, first, queues)


def _best(tx: Tx, request: ClaimRequest, look: Look) -> list[Picked]:
    """Up to `limit` due tasks of all open queues by priority, run_at, seq.

    The first line is usually all it takes. Otherwise priorities are walked downwards, each merged over the queues
    that have due tasks there.
    """
    if len(look.levels) <= 1:
        first = _picked_decoder.decode(look.first)
        if len(first) == request.limit or not first:
            return first
    levels = dict(look.levels)
    taken: list[int] = []
    while levels and len(taken) < request.limit:
        top = max(levels.values())
        room = request.limit - len(taken)
        tied = [queue for queue, priority in levels.items() if priority == top]
        lines = [_candidates(tx, queue, top, room) for queue in tied]
        taken += [seq for _, seq in islice(heapq.merge(*lines), room)]
        for queue in tied:
            del levels[queue]
        if len(taken) < request.limit:
            levels |= dict(_levels_decoder.decode(tx.row("deeper", queues=json_param(tied), below=top, now=tx.now)[0]))
    return _picked(tx, taken)


def _candidates(tx: Tx, queue: str, priority: int, limit: int) -> list[tuple[int, int]]:
    return _pairs_decoder.decode(tx.row("candidates", queue=queue, priority=priority, now=tx.now, limit=limit)[0])


def _picked(tx: Tx, seqs: Sequence[int]) -> list[Picked]:
    return _picked_decoder.decode(tx.row("picked", tasks=json_param(seqs))[0]) if seqs else []


def _start(tx: Tx, request: ClaimRequest, picked: Sequence[Picked]) -> list[Claim]:
    """A new attempt for each, with a new token."""
    if not picked:
        return []
    by_length: dict[int, dict[str, str]] = {}
    claims = []
    shower = _Shower(tx.conn)
    for task, token in zip(picked, ids.tokens(len(picked)), strict=True):
        own = policy_of(task.policy).lease
        length = lease_length(worker_seconds=request.lease_seconds, task_seconds=own)
        by_length.setdefault(length, {})[str(task.seq)] = token
        claims.append(shower.claim(task, token, request.worker_id, length, tx.now + length, tx.now))
    for length, tokens in by_length.items():
        tx.run(
            "start",
            tokens=json_param(tokens),
            claim_id=request.claim_id,
            worker_id=request.worker_id,
            length=length,
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
