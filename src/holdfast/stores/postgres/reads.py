"""Records, events and queues as people read them. Nothing here writes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from holdfast.clock import to_micros
from holdfast.errors import InvalidTask
from holdfast.model.event import Event
from holdfast.model.query import QueueInfo, TaskFilter
from holdfast.model.task import Task, TaskStatus
from holdfast.policy.limits import next_start
from holdfast.stores.postgres.horizon import Horizon, reached
from holdfast.stores.postgres.limits import limits_of
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.rows import event_of, shown
from holdfast.stores.postgres.statements import is_text, is_uuid, uuids

_MOST = 2**62


async def get(session: Session, task_id: str) -> Task | None:
    row = await session.row("get", task_id) if is_uuid(task_id) else None
    return None if row is None else shown(row)


async def find(session: Session, idempotency_key: str) -> Task | None:
    row = await session.row("find", idempotency_key) if is_text(idempotency_key) else None
    return None if row is None else shown(row)


async def ended(session: Session, task_ids: Sequence[str], limit: int) -> dict[str, Task | None]:
    asked = uuids(task_ids)
    found: dict[str, Task | None] = dict.fromkeys(set(task_ids).difference(asked))
    for row in await session.rows("ended", asked, limit) if asked else []:
        found[row["id"]] = None if row["name"] is None else shown(row)
    return found


async def page(session: Session, wanted: TaskFilter) -> list[Task]:
    if wanted.after is not None and not (is_uuid(wanted.after) and await session.value("exists", wanted.after)):
        raise InvalidTask(f"`after` names task {wanted.after}, which does not exist; start from the first page")
    texts = (wanted.queue, wanted.name, wanted.run_id)
    if not all(map(is_text, texts)):
        return []
    rows = await session.rows(
        "page", wanted.status, *texts, wanted.finished_before, wanted.after, wanted.last, min(wanted.limit, _MOST)
    )
    return [shown(row) for row in rows]


async def events(session: Session, task_id: str | None, after: int, limit: int, horizon: Horizon) -> list[Event]:
    bounds = (min(after, _MOST), min(limit, _MOST))
    if task_id is None:
        rows = await session.rows("events_of_all", *bounds, await reached(session, horizon))
    else:
        rows = await session.rows("events_of_one", *bounds, task_id) if is_uuid(task_id) else []
    return [event_of(row) for row in rows]


async def oldest_due(session: Session) -> dict[str, datetime]:
    return {row["queue"]: row["due_at"] for row in await session.rows("oldest_due", session.given)}


async def queues(session: Session) -> tuple[list[QueueInfo], int]:
    """The queues, and of how many rows their counts are the sum."""
    rows = await session.rows("queues")
    return [_queue(row, session.given) for row in rows], sum(row["rows"] for row in rows)


def _queue(row: Any, given: datetime | None) -> QueueInfo:
    limits = limits_of(row)
    return QueueInfo(
        name=row["name"],
        paused=row["paused"],
        counts={status.value: row[status.value] for status in TaskStatus if row[status.value]},
        limits=limits,
        next_start_at=next_start(limits, row["rate_tat"], to_micros(given or row["now"])),
    )


async def now(session: Session) -> datetime:
    """Asks the server in any case: one that is away has no clock."""
    there: datetime = await session.conn.fetchval("SELECT pg_catalog.clock_timestamp()")
    return session.given or there
