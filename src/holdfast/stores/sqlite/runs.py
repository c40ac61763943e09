"""Runs and the parents of a task, as they are read (contract C10.5, C10.6). A run is nothing but its tasks."""

from __future__ import annotations

import sqlite3
from collections import Counter

import msgspec

from holdfast.clock import from_micros, maybe_from_micros
from holdfast.errors import InvalidTask
from holdfast.model.event import recorded_error
from holdfast.model.task import TaskStatus
from holdfast.model.workflow import ParentEnd, RunInfo
from holdfast.policy import workflow
from holdfast.stores.sqlite.apart import result_apart
from holdfast.stores.sqlite.statements import number_param, statement, text_param

LIVE = """
SELECT 1 FROM holdfast_tasks
WHERE run_id = ? AND run_id IS NOT NULL AND status IN ('waiting', 'queued', 'running') LIMIT 1
"""
_FIRST = "SELECT min(seq) FROM holdfast_tasks WHERE run_id = ? AND run_id IS NOT NULL"


class _Parent(msgspec.Struct, array_like=True, gc=False):
    seq: int
    id: str
    name: str
    status: TaskStatus
    result: str | None
    last_error: str | None
    last_error_at: int


class _Part(msgspec.Struct, array_like=True, gc=False):
    status: str
    last: int
    n: int
    created_at: int
    finished_at: int | None


_parents_decoder = msgspec.json.Decoder(list[_Parent])
_parts_decoder = msgspec.json.Decoder(list[_Part])
_texts_decoder = msgspec.json.Decoder(list[str])


def parents(conn: sqlite3.Connection, task_id: str, after: int, limit: int) -> list[ParentEnd]:
    asked = {"task_id": text_param(task_id), "after": number_param(after), "until": number_param(after + limit)}
    rows = _parents_decoder.decode(conn.execute(statement("parents"), asked).fetchone()[0])
    return [_parent_end(conn, row) for row in rows]


def _parent_end(conn: sqlite3.Connection, row: _Parent) -> ParentEnd:
    result = row.result
    if result is None and row.status is TaskStatus.COMPLETED:
        result = result_apart(conn, row.seq)
    error = None if row.last_error is None else recorded_error(msgspec.json.decode(row.last_error), row.last_error_at)
    return ParentEnd(task_id=row.id, name=row.name, status=row.status, result=result, error=error)


def lives(conn: sqlite3.Connection, run_id: str) -> bool:
    return conn.execute(LIVE, (text_param(run_id),)).fetchone() is not None


def run(conn: sqlite3.Connection, run_id: str) -> RunInfo | None:
    parts = _parts_decoder.decode(conn.execute(statement("run"), {"run_id": text_param(run_id)}).fetchone()[0])
    return _info(run_id, parts) if parts else None


def _info(run_id: str, parts: list[_Part]) -> RunInfo:
    counts: Counter[str] = Counter()
    last: Counter[str] = Counter()
    for part in parts:
        counts[part.status] += part.n
        last[part.status] += part.n if part.last else 0
    began_at = from_micros(min(part.created_at for part in parts))
    ended_at = max((part.finished_at for part in parts if part.finished_at is not None), default=None)
    return workflow.run_info(run_id, counts, last, began_at=began_at, ended_at=maybe_from_micros(ended_at))


def runs(conn: sqlite3.Connection, limit: int, after: str | None) -> list[RunInfo]:
    before = None if after is None else conn.execute(_FIRST, (text_param(after),)).fetchone()[0]
    if after is not None and before is None:
        raise InvalidTask(f"`after` names run {after}, which does not exist; start from the first page")
    named = conn.execute(statement("runs"), {"before": before, "limit": limit}).fetchone()[0]
    return [info for run_id in _texts_decoder.decode(named) if (info := run(conn, run_id)) is not None]
