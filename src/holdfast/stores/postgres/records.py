"""Records between load and save: verbs load a batch, change it as policy decided, and save it in one statement."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from holdfast.model.task import TaskStatus
from holdfast.model.transition import Transition
from holdfast.stores.postgres.fronts import Queued
from holdfast.stores.postgres.rows import Record, record_of, saved
from holdfast.stores.postgres.statements import json_text, uuids
from holdfast.stores.postgres.tx import Turned, Tx


async def load(tx: Tx, task_ids: Sequence[str]) -> dict[str, Record]:
    """By id, locked until the end of the transaction; a task that does not exist is missing."""
    rows = await tx.session.rows("load", tx.session.given, uuids(task_ids))
    tx.read_clock(rows[0]["now"])
    return {row["id"]: record_of(row) for row in rows if row["id"] is not None}


async def load_expired(tx: Tx, limit: int, since: datetime) -> list[Record]:
    rows = await tx.session.rows("expired", tx.session.given, limit, since)
    tx.read_clock(rows[0]["now"])
    return [record_of(row) for row in rows if row["id"] is not None]


def write(tx: Tx, record: Record, transition: Transition, actor: str) -> None:
    """A verdict or an amendment becomes true in the record, with its events; save() is still to follow."""
    before = record.status
    record.failures = transition.failures
    record.result = transition.result
    if transition.delay_ms is not None:
        record.run_at = tx.now + timedelta(milliseconds=transition.delay_ms)
    if transition.error is not None:
        record.last_error = json_text(transition.error)
        record.last_error_at = tx.now
    if transition.status is TaskStatus.RUNNING:
        record.cancel_requested_at = tx.now
    else:
        record.clear_lease()
        record.finished_at = tx.now if transition.status.terminal else None
        if not transition.status.terminal:
            record.cancel_requested_at = None
        if transition.status is not TaskStatus.CANCELED:
            record.canceled_because = None
        tx.moved(record.queue, before, transition.status)
        if transition.status is TaskStatus.QUEUED:
            tx.queued.append(Queued(record.queue, record.priority, record.run_at))
        record.status = transition.status
        if record.linked and (before.terminal or record.status.terminal):
            tx.turned.append(Turned(record, actor))
    for fact in transition.facts:
        tx.note(record.id, fact.kind, actor, fact.data)


async def save(tx: Tx, records: Iterable[Record]) -> None:
    rows = [saved(record) for record in records]
    if rows:
        await tx.session.rows("save", *map(list, zip(*rows, strict=True)))
