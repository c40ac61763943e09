"""Records between load and save: verbs load a batch, change it as policy decided, and save it in one statement."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.model.task import TaskStatus
from holdfast.model.transition import Transition
from holdfast.stores.sqlite.rows import APART_CHARS, Record, records_decoder
from holdfast.stores.sqlite.statements import json_param, statement
from holdfast.stores.sqlite.tx import Turn, Tx

_FIRST_SAVED = Record.__struct_fields__.index("status")


def ids_param(task_ids: Iterable[str]) -> str:
    """Ids for json_each. A text that is not Unicode can be no task's id and is left out."""
    try:
        return json_param(list(task_ids))
    except UnicodeEncodeError:
        return json_param([text for text in task_ids if text.isascii()])


def load(conn: sqlite3.Connection, task_ids: Sequence[str]) -> dict[str, Record]:
    """By id; a task that does not exist is missing."""
    text = conn.execute(statement("load"), {"ids": ids_param(task_ids)}).fetchone()[0]
    return {record.id: record for record in records_decoder.decode(text)}


def write(tx: Tx, record: Record, transition: Transition, actor: str) -> None:
    """A verdict or an amendment becomes true in the record, with its events; save() is still to follow."""
    record.failures = transition.failures
    record.result = transition.result
    if transition.delay_ms is not None:
        record.run_at = tx.now + 1000 * transition.delay_ms
    if transition.error is not None:
        record.last_error = json_param(transition.error)
        record.last_error_at = tx.now
        record.last_error_code = transition.error.get("code")
    if transition.status is TaskStatus.RUNNING:
        record.cancel_requested_at = tx.now
    else:
        _move(tx, record, transition.status, actor)
    for fact in transition.facts:
        tx.note(record.seq, fact.kind, actor, fact.data)


def _move(tx: Tx, record: Record, status: TaskStatus, actor: str) -> None:
    before, record.status = record.status, status
    record.clear_lease()
    record.finished_at = tx.now if status.terminal else None
    if not status.terminal:
        record.cancel_requested_at = None
    if status is not TaskStatus.CANCELED:
        record.canceled_because = None
    if status.terminal or before.terminal:
        record.begun = 0
        _turn(tx, record, actor)
    tx.wakes |= bool(record.placed)  # whoever leaves a place makes room for another
    record.placed = 0
    tx.moved(record.queue, before, status)


def _turn(tx: Tx, record: Record, actor: str) -> None:
    """Let others follow, if it can concern any."""
    if not record.status.terminal or record.dependents or record.fail_fast is not None:
        tx.turned.append(
            Turn(
                record.seq,
                record.id,
                record.run_id,
                record.status,
                record.canceled_because,
                record.dependents,
                record.fail_fast,
                actor,
            )
        )


def save(tx: Tx, records: Iterable[Record]) -> None:
    rows = []
    for record in records:
        if record.result is not None and len(record.result) > APART_CHARS:
            keep_apart(tx, record.seq, record.result)
            record.result = None
        rows.append((record.seq, *msgspec.structs.astuple(record)[_FIRST_SAVED:]))
    if rows:
        tx.run("save", records=json_param(rows))


def keep_apart(tx: Tx, seq: int, result: str) -> None:
    tx.conn.execute("INSERT OR REPLACE INTO holdfast_results VALUES (?, ?)", (seq, result))
