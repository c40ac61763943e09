"""Records, events and queues as people read them. Nothing here writes."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.clock import from_micros, to_micros
from holdfast.errors import InvalidTask
from holdfast.model.event import Event
from holdfast.model.query import QueueInfo, TaskFilter
from holdfast.model.task import Task, TaskStatus
from holdfast.policy.limits import next_start
from holdfast.stores.sqlite.apart import APART, parents_apart, payload_apart, result_apart
from holdfast.stores.sqlite.limits import limits_of
from holdfast.stores.sqlite.rows import ShownRow, event_of, events_decoder, shown, shown_decoder
from holdfast.stores.sqlite.statements import json_param, number_param, statement, text_param

FEW = 20_000
_texts = msgspec.json.Decoder(list[str])


def get(conn: sqlite3.Connection, task_id: str) -> Task | None:
    return _one(conn, "SELECT seq FROM holdfast_tasks WHERE id = ?", task_id)


def find(conn: sqlite3.Connection, idempotency_key: str) -> Task | None:
    sql = "SELECT seq FROM holdfast_tasks WHERE idempotency_key = ? AND idempotency_key IS NOT NULL"
    return _one(conn, sql, idempotency_key)


def ended(conn: sqlite3.Connection, task_ids: Sequence[str], limit: int) -> dict[str, Task | None]:
    asked = {"ids": json_param([task_id for task_id in task_ids if isinstance(text_param(task_id), str)])}
    seqs, known = conn.execute(statement("ended"), asked | {"limit": limit}).fetchone()
    there = set(_texts.decode(known))
    unknown = [task_id for task_id in task_ids if task_id not in there]
    return dict.fromkeys(unknown) | {task.id: task for task in _shown(conn, seqs)}


def page(conn: sqlite3.Connection, wanted: TaskFilter) -> list[Task]:
    source, values = _source(wanted, few=_few(conn, wanted.status))
    if wanted.after is not None:
        below = conn.execute("SELECT seq FROM holdfast_tasks WHERE id = ?", (text_param(wanted.after),)).fetchone()
        if below is None:
            raise InvalidTask(f"`after` names task {wanted.after}, which does not exist; start from the first page")
        source += " AND seq < ?"
        values.append(below[0])
    sql = f"SELECT json_group_array(seq) FROM (SELECT seq FROM {source} ORDER BY seq DESC LIMIT ?)"  # noqa: S608
    return _shown(conn, conn.execute(sql, (*values, wanted.limit)).fetchone()[0])


def _few(conn: sqlite3.Connection, status: TaskStatus | None) -> bool:
    """So few have this status that looking at all of them is quicker than walking back through the table."""
    counted = conn.execute("SELECT total(n) FROM holdfast_counts WHERE status = ?", (status,)).fetchone()[0]
    return bool(counted < FEW)


def _source(wanted: TaskFilter, *, few: bool) -> tuple[str, list[object]]:
    """Table, index and conditions, with their values. A unary plus keeps the planner from an index.

    Newest first is the order of the table, so a filter that many tasks pass is quickest by walking back from its end.
    """
    index = ""
    terms = ["TRUE"]
    values: list[object] = []
    if wanted.status is not None:
        terms.append("+status = ?")
        values.append(wanted.status)
    if wanted.run_id is not None:
        index = "INDEXED BY holdfast_run"
        terms.append("run_id = ? AND run_id IS NOT NULL")
        values.append(text_param(wanted.run_id))
    elif wanted.status is TaskStatus.RUNNING and few:
        index = "INDEXED BY holdfast_leased"
        terms.append("status = 'running'")
    elif wanted.status is not None and wanted.status.terminal and few:
        index = "INDEXED BY holdfast_ended"
        terms.append("status = ? AND finished_at IS NOT NULL")
        values.append(wanted.status)
    if wanted.last:
        terms.append("dependents = 0")
    if wanted.finished_before is not None:
        terms.append("finished_at < ?")
        values.append(to_micros(wanted.finished_before))
    for column, value in (("queue", wanted.queue), ("name", wanted.name)):
        if value is not None:
            terms.append(f"+{column} = ?")
            values.append(text_param(value))
    return f"holdfast_tasks {index} WHERE {' AND '.join(terms)}", values


def _one(conn: sqlite3.Connection, sql: str, text: str) -> Task | None:
    found = conn.execute(sql, (text_param(text),)).fetchone()
    return None if found is None else _shown(conn, json_param([found[0]]))[0]


def _shown(conn: sqlite3.Connection, seqs: str) -> list[Task]:
    rows = shown_decoder.decode(conn.execute(statement("shown"), {"tasks": seqs}).fetchone()[0])
    return [shown(row, _payload(conn, row), _parents(conn, row), _result(conn, row)) for row in rows]


def _payload(conn: sqlite3.Connection, row: ShownRow) -> str:
    return payload_apart(conn, row.seq) if row.payload is None else row.payload


def _parents(conn: sqlite3.Connection, row: ShownRow) -> str | None:
    return parents_apart(conn, row.seq) if row.parents == APART else row.parents


def _result(conn: sqlite3.Connection, row: ShownRow) -> str | None:
    if row.result is not None or row.status is not TaskStatus.COMPLETED:
        return row.result
    return result_apart(conn, row.seq)


def events(conn: sqlite3.Connection, task_id: str | None, after: int, limit: int) -> list[Event]:
    parameters: dict[str, object] = {"after": number_param(after), "limit": limit}
    if task_id is None:
        found = conn.execute(statement("events_of_all"), parameters)
    else:
        found = conn.execute(statement("events_of_one"), parameters | {"task_id": text_param(task_id)})
    return [event_of(row) for row in events_decoder.decode(found.fetchone()[0])]


def last_event(conn: sqlite3.Connection) -> int:
    last: int = conn.execute("SELECT coalesce(max(id), 0) FROM holdfast_events").fetchone()[0]
    return last


def oldest_due(conn: sqlite3.Connection, now: int) -> dict[str, datetime]:
    return {queue: from_micros(at) for queue, at in conn.execute(statement("oldest_due"), {"now": now})}


def queues(conn: sqlite3.Connection, now: int) -> list[QueueInfo]:
    counts: dict[str, dict[str, int]] = {}
    for queue, status, n in conn.execute("SELECT queue, status, n FROM holdfast_counts WHERE n != 0"):
        counts.setdefault(queue, {})[status] = n
    found = []
    for name, paused, text, tat in conn.execute(
        "SELECT name, paused, limits, rate_tat FROM holdfast_queues ORDER BY name"
    ):
        limits = limits_of(text)
        found.append(
            QueueInfo(
                name=name,
                paused=bool(paused),
                counts=counts.get(name, {}),
                limits=limits,
                next_start_at=next_start(limits, tat, now),
            )
        )
    return found
