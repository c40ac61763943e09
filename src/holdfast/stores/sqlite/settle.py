"""The ends of attempts: settled by their owners, or recorded as lost (contract section 7, C6.5).

The fence is checked and the end is written in one transaction. What an outcome leads to is decided in
policy/verdict.py; only the plain completion, which leads nowhere else, has a shorter way (completion.py).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

import msgspec

from holdfast.errors import HoldfastError
from holdfast.model.claim import Lease
from holdfast.model.outcome import Expired, Settlement
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Settled
from holdfast.policy import refusals
from holdfast.policy.backoff import Rng
from holdfast.policy.verdict import verdict
from holdfast.stores.sqlite import advance, datasets, records, submit
from holdfast.stores.sqlite.completion import completed
from holdfast.stores.sqlite.leases import lost
from holdfast.stores.sqlite.rows import Record
from holdfast.stores.sqlite.statements import statement
from holdfast.stores.sqlite.tx import Tx


def settle(tx: Tx, settlements: Sequence[Settlement], rng: Rng) -> list[Settled | HoldfastError]:
    answers = _answers(tx, settlements, rng)
    advance.follow(tx)
    return answers


def _answers(tx: Tx, settlements: Sequence[Settlement], rng: Rng) -> list[Settled | HoldfastError]:
    done = completed(tx, settlements)
    rest = [settlement for settlement in settlements if settlement.lease.task_id not in done]
    if not rest:
        return [done[settlement.lease.task_id] for settlement in settlements]
    settling = Settling(tx, rest, rng)
    answers = [done.get(settlement.lease.task_id) or settling.answer(settlement) for settlement in settlements]
    settling.save()
    return answers


class Settling:
    """Settlements for which policy is asked."""

    def __init__(self, tx: Tx, settlements: Sequence[Settlement], rng: Rng) -> None:
        self._tx = tx
        self._rng = rng
        self._records = records.load(tx.conn, [settlement.lease.task_id for settlement in settlements])
        self._changed: dict[int, Record] = {}

    def answer(self, settlement: Settlement) -> Settled | HoldfastError:
        lease, outcome = settlement.lease, settlement.outcome
        record = self._records.get(lease.task_id)
        if record is None:
            return refusals.not_found(lease.task_id)
        if not record.holds(lease, self._tx.now):
            return _replayed(record, lease, outcome.kind) or lost(record, lease)
        return self._follow_verdict(record, settlement)

    def save(self) -> None:
        records.save(self._tx, self._changed.values())
        self._tx.leases |= bool(self._changed)

    def _follow_verdict(self, record: Record, settlement: Settlement) -> Settled | HoldfastError:
        tx, actor, outcome = self._tx, str(record.claimed_by), settlement.outcome
        transition = verdict(record.facts, outcome, self._rng)
        try:
            follow_ups = settlement.follow_ups if transition.status is TaskStatus.COMPLETED else ()
            _, fresh = submit.admitted(tx, follow_ups)
        except HoldfastError as refused:
            return refused
        for emitted in settlement.emitted:
            tx.note(record.seq, emitted.kind, actor, {"attempt": record.attempt, **emitted.data})
        records.write(tx, record, transition, actor)
        record.settled_token, record.settled_as = settlement.lease.token, outcome.kind
        record.settled_status = transition.status
        self._changed[record.seq] = record
        if transition.status is TaskStatus.COMPLETED:
            datasets.write(tx, settlement.outputs, record.id)
        submit.add(tx, fresh)
        return Settled(record.id, record.attempt, transition.status)


def nothing_expired(conn: sqlite3.Connection, now: int) -> list[Settled] | None:
    """The answer of a reaper that finds nothing; None where there is something to write."""
    return [] if conn.execute(statement("expired"), {"now": now, "limit": 1}).fetchone()[0] == "[]" else None


def reap(tx: Tx, limit: int, actor: str, rng: Rng) -> list[Settled]:
    expired = msgspec.json.decode(tx.row("expired", now=tx.now, limit=limit)[0], type=list[str])
    found = records.load(tx.conn, expired)
    settled = [reap_one(tx, found[task_id], actor, rng) for task_id in expired]
    records.save(tx, found.values())
    advance.follow(tx)
    tx.leases |= bool(settled)
    return settled


def reap_one(tx: Tx, record: Record, actor: str, rng: Rng) -> Settled:
    """An expired attempt is recorded as lost; save() and advance.follow() are still to come."""
    transition = verdict(record.facts, Expired(), rng)
    records.write(tx, record, transition, actor)
    return Settled(record.id, record.attempt, transition.status)


def _replayed(record: Record, lease: Lease, kind: str) -> Settled | None:
    """The first answer once more, for a settle whose reply was lost."""
    recorded = (record.attempt, record.settled_token, record.settled_as)
    if recorded != (lease.attempt, lease.token, kind) or record.settled_status is None:
        return None
    return Settled(lease.task_id, lease.attempt, record.settled_status)
