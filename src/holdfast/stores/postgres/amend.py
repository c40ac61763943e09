"""Acts of an operator, and the end of old records (contract section 8). What is allowed: policy/amendment.py."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from holdfast.clock import span_micros
from holdfast.errors import HoldfastError
from holdfast.model.query import Retention
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Amended, Change
from holdfast.policy import refusals
from holdfast.policy.amendment import amendment
from holdfast.policy.backoff import Rng
from holdfast.stores.postgres import advance, datasets, records, settle
from holdfast.stores.postgres.rows import Record
from holdfast.stores.postgres.tx import Tx


class Gone(NamedTuple):
    finished_at: datetime | None
    id: str
    queue: str
    status: TaskStatus


class Amending:
    """One act on a batch of tasks."""

    def __init__(self, tx: Tx, change: Change, actor: str, rng: Rng, found: dict[str, Record]) -> None:
        self._tx = tx
        self._change = change
        self._actor = actor
        self._rng = rng
        self._records = found
        self._changed: dict[str, Record] = {}
        self._gone: list[Gone] = []

    async def answers(self, task_ids: Sequence[str]) -> list[Amended | HoldfastError]:
        answers = [await self._amend(task_id) for task_id in task_ids]
        await self._save()
        await self._tx.flush_notes()  # as long as the tasks are there: who is told of it reads their records
        await _remove(self._tx, self._gone)
        return answers

    async def _amend(self, task_id: str) -> Amended | HoldfastError:
        tx, change, actor = self._tx, self._change, self._actor
        record = self._records.get(task_id)
        if record is None:
            return refusals.not_found(task_id)
        before = record.status, record.cancel_requested_at
        if record.expired(tx.now) and change is not Change.DELETE:
            if change is Change.CANCEL:
                record.cancel_requested_at = tx.now
            settle.reap_one(tx, record, actor, self._rng)
            self._changed[record.id] = record
            if change is Change.RELEASE:
                return Amended(task_id, record.status, changed=True)
        amended = amendment(
            change,
            task_id,
            record.status,
            record.facts,
            record.claimed_by,
            pending=record.pending,
            blocked_by=await self._blocked_by(record),
        )
        if isinstance(amended, HoldfastError):
            return amended
        if change is Change.DELETE:
            return await self._delete(record)
        if amended is not None:
            records.write(tx, record, amended, actor)
            self._changed[record.id] = record
        return Amended(task_id, record.status, changed=(record.status, record.cancel_requested_at) != before)

    async def _blocked_by(self, record: Record) -> str | None:
        """Read in a statement of its own, now that the record is locked, and with what is changed here already."""
        if self._change is not Change.REQUEUE or record.status is not TaskStatus.CANCELED or not record.pending:
            return None
        await self._save()
        return await advance.blocked_by(self._tx, record)

    async def _save(self) -> None:
        changed, self._changed = self._changed, {}
        await records.save(self._tx, changed.values())

    async def _delete(self, record: Record) -> Amended | HoldfastError:
        tx = self._tx
        if record.run_id is not None and await tx.session.value("live_run", record.run_id):
            return refusals.live_run(record.id, record.run_id)
        del self._records[record.id]
        self._gone.append(Gone(record.finished_at, record.id, record.queue, record.status))
        tx.bury(record.id, record.run_id, self._actor, {"attempt": record.attempt})
        return Amended(record.id, None, changed=True)


async def amend(tx: Tx, change: Change, task_ids: Sequence[str], actor: str, rng: Rng) -> list[Amended | HoldfastError]:
    found = await records.load(tx, task_ids)
    return await Amending(tx, change, actor, rng, found).answers(task_ids)


async def prune(tx: Tx, retention: Retention, limit: int) -> int:
    """Oldest first, then versions of datasets. Tombstones older than completed tasks are kept go too; they are not
    counted.
    """
    ages = [
        None if age is None else _micros(age) for age in (retention.completed, retention.failed, retention.canceled)
    ]
    rows = await tx.session.rows("outlived", tx.session.given, *ages, limit)
    gone = [Gone(finished_at, task_id, queue, TaskStatus(status)) for finished_at, task_id, queue, status in rows]
    await _remove(tx, gone)
    if retention.completed is not None:
        await tx.session.rows("unbury", tx.session.given, _micros(retention.completed), limit)
    await tx.session.rows("unmark", tx.session.given, limit)
    await tx.session.rows("unlate")
    await tx.session.rows("strays", limit)
    versions = 0
    if retention.outputs is not None and len(gone) < limit:
        versions = await datasets.prune(tx, _micros(retention.outputs), limit - len(gone))
    return len(gone) + versions


def _micros(age: timedelta) -> int:
    return span_micros(age.total_seconds())


async def _remove(tx: Tx, gone: Sequence[Gone]) -> None:
    """Take these tasks out of every table."""
    if not gone:
        return
    await tx.session.rows("remove", [one.id for one in gone])
    for one in gone:
        tx.counts[one.queue, one.status] -= 1
