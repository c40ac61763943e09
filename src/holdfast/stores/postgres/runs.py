"""Runs as people read them, and what a task can know of its parents. Nothing here writes."""

from __future__ import annotations

import msgspec

from holdfast.clock import to_micros
from holdfast.errors import InvalidTask
from holdfast.model.event import recorded_error
from holdfast.model.task import TaskStatus
from holdfast.model.workflow import ParentEnd, RunInfo
from holdfast.policy.workflow import run_info
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.statements import is_text, is_uuid

_MOST = 2**31 - 1


async def parents(session: Session, task_id: str, after: int, limit: int) -> list[ParentEnd]:
    if not is_uuid(task_id):
        return []
    rows = await session.rows("parents", task_id, min(after, _MOST), min(limit, _MOST))
    return [
        ParentEnd(
            task_id=row["task_id"],
            name=row["name"],
            status=TaskStatus(row["status"]),
            result=row["result"],
            error=None
            if row["last_error"] is None
            else recorded_error(msgspec.json.decode(row["last_error"]), to_micros(row["last_error_at"])),
        )
        for row in rows
    ]


async def run(session: Session, run_id: str) -> RunInfo | None:
    rows = await session.rows("run", run_id) if is_text(run_id) else []
    if not rows:
        return None
    counts = {row["status"]: row["n"] for row in rows}
    last = {row["status"]: row["last"] for row in rows}
    began_at = min(row["created_at"] for row in rows)
    ends = [row["finished_at"] for row in rows if row["finished_at"] is not None]
    return run_info(run_id, counts, last, began_at=began_at, ended_at=max(ends, default=None))


async def lives(session: Session, run_id: str) -> bool:
    return is_text(run_id) and bool(await session.value("live_run", run_id))


async def listed(session: Session, limit: int, after: str | None) -> list[RunInfo]:
    older_than = None
    if after is not None:
        older_than = await session.value("first_of_run", after) if is_text(after) else None
        if older_than is None:
            raise InvalidTask(f"`after` names run {after}, which does not exist; start from the first page")
    found = await session.rows("runs", older_than, min(limit, _MOST))
    infos = [await run(session, row["run_id"]) for row in found]
    return [info for info in infos if info is not None]
