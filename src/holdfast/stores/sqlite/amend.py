"""Acts of an operator, and the end of old records (contract section 8). What is allowed: policy/amendment.py."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.clock import span_micros
from holdfast.errors import HoldfastError
from holdfast.model.query import Retention
from holdfast.model.task import TERMINAL, TaskStatus
from holdfast.model.transition import Amended, Change
from holdfast.policy import refusals
from holdfast.policy.amendment import amendment
from holdfast.policy.backoff import Rng
from holdfast.stores.sqlite import advance, outbox, records, runs, settle, sinks, superseded
from holdfast.stores.sqlite.blockers import blocked_by
from holdfast.stores.sqlite.rows import Record
from holdfast.stores.sqlite.statements import json_param, statement
from holdfast.stores.sqlite.tx import Tx

REMOVALS = (
    "DELETE FROM holdfast_events WHERE task IN (SELECT value FROM json_each(?))",
    "DELETE FROM holdfast_payloads WHERE task IN (SELECT value FROM json_each(?))",
    "DELETE FROM holdfast_results WHERE task IN (SELECT value FROM json_each(?))",
    "DELETE FROM holdfast_parents WHERE task IN (SELECT value FROM json_each(?))",
    "DELETE FROM holdfast_pins WHERE task IN (SELECT value FROM json_each(?))",
    "DELETE FROM holdfast_steps WHERE task IN (SELECT value FROM json_each(?))",
    "DELETE FROM holdfast_advances WHERE task IN (SELECT value FROM json_each(?))",
    "DELETE FROM holdfast_edges WHERE child IN (SELECT value FROM json_each(?))",
    "DELETE FROM holdfast_tasks WHERE seq IN (SELECT value FROM json_each(?))",
)
SETTLED_EDGES = "DELETE FROM holdfast_edges WHERE parent IN (SELECT value FROM json_each(?))"
"""Of completed tasks. The others' edges stay: they still keep their children from running. No seq is used again while a
child of it, which has a higher one, is there.
"""
BURIED = "SELECT id FROM holdfast_events WHERE task_id IS NOT NULL AND at <= ? ORDER BY at, id LIMIT ?"
UNBURY = "DELETE FROM holdfast_events WHERE id IN (SELECT value FROM json_each(?))"


class Amending:
    """One act on a batch of tasks."""

    def __init__(self, tx: Tx, change: Change, task_ids: Sequence[str], actor: str, rng: Rng) -> None:
        self._tx = tx
        self._change = change
        self._task_ids = task_ids
        self._actor = actor
        self._rng = rng
        self._records = records.load(tx.conn, task_ids)
        self._changed: dict[int, Record] = {}
        self._gone: list[tuple[int, str, TaskStatus]] = []

    def answers(self) -> list[Amended | HoldfastError]:
        answers = [self._amend(task_id) for task_id in self._task_ids]
        records.save(self._tx, self._changed.values())
        self._tx.flush()  # before the tasks go: a tombstone has to tell sinks of their queue
        _remove(self._tx, self._gone)
        advance.follow(self._tx)
        return answers

    def _amend(self, task_id: str) -> Amended | HoldfastError:
        tx, change, actor = self._tx, self._change, self._actor
        record = self._records.get(task_id)
        if record is None:
            return refusals.not_found(task_id)
        before = record.status, record.cancel_requested_at
        if record.expired(tx.now) and change is not Change.DELETE:
            if change is Change.CANCEL:
                record.cancel_requested_at = tx.now
            settle.reap_one(tx, record, actor, self._rng)
            self._changed[record.seq] = record
            if change is Change.RELEASE:
                return Amended(task_id, record.status, changed=True)
        amended = amendment(
            change,
            task_id,
            record.status,
            record.facts,
            record.claimed_by,
            pending=record.pending,
            blocked_by=blocked_by(tx, record, self._changed.values()) if change is Change.REQUEUE else None,
        )
        if isinstance(amended, HoldfastError):
            return amended
        if change is Change.DELETE:
            return self._delete(record)
        if amended is not None:
            records.write(tx, record, amended, actor)
            self._changed[record.seq] = record
        return Amended(task_id, record.status, changed=(record.status, record.cancel_requested_at) != before)

    def _delete(self, record: Record) -> Amended | HoldfastError:
        tx = self._tx
        if record.run_id is not None and runs.lives(tx.conn, record.run_id):
            return refusals.live_run(record.id, record.run_id)
        del self._records[record.id]
        self._gone.append((record.seq, record.queue, record.status))
        tx.bury(record.id, record.run_id, self._actor, {"attempt": record.attempt})
        return Amended(record.id, None, changed=True)


def amend(tx: Tx, change: Change, task_ids: Sequence[str], actor: str, rng: Rng) -> list[Amended | HoldfastError]:
    return Amending(tx, change, task_ids, actor, rng).answers()


def nothing_outlived(conn: sqlite3.Connection, retention: Retention, now: int) -> int | None:
    """The answer of a prune that finds nothing; None where there is something to delete."""
    old = any(_outlived(conn, retention, now, 1)) or any(_tombstones(conn, retention, now, 1))
    return None if old or sinks.stray(conn) or not superseded.nothing(conn, retention, now) else 0


def prune(tx: Tx, retention: Retention, limit: int) -> int:
    """Oldest first; then old versions of datasets. Tombstones older than completed tasks are kept go too; they are not
    counted.
    """
    rows = sorted(_outlived(tx.conn, retention, tx.now, limit))[:limit]
    _remove(tx, [(seq, queue, status) for _, seq, queue, status in rows])
    buried = [event_id for (event_id,) in _tombstones(tx.conn, retention, tx.now, limit)]
    if buried:
        tx.conn.execute(UNBURY, (json_param(buried),))
    if (stray := sinks.stray(tx.conn)) is not None:
        outbox.forget(tx, outbox.of_sink(tx.conn, stray)[:limit])
    return len(rows) + superseded.prune(tx, retention, limit - len(rows))


_OutlivedRow = tuple[int, int, str, TaskStatus]
_outlived_decoder = msgspec.json.Decoder(list[_OutlivedRow])


def _outlived(conn: sqlite3.Connection, retention: Retention, now: int, limit: int) -> Iterable[_OutlivedRow]:
    for status in sorted(TERMINAL):
        age = retention.age_of(status)
        if age is not None:
            before = now - span_micros(age.total_seconds())
            parameters = {"status": status.value, "before": before, "limit": limit}
            yield from _outlived_decoder.decode(conn.execute(statement("outlived"), parameters).fetchone()[0])


def _tombstones(conn: sqlite3.Connection, retention: Retention, now: int, limit: int) -> list[tuple[int]]:
    age = retention.age_of(TaskStatus.COMPLETED)
    if age is None:
        return []
    before = now - span_micros(age.total_seconds())
    return conn.execute(BURIED, (before, limit)).fetchall()


def _remove(tx: Tx, gone: Sequence[tuple[int, str, TaskStatus]]) -> None:
    """Take these tasks (seq, queue, status) out of every table."""
    if not gone:
        return
    seqs = json_param([seq for seq, _, _ in gone])
    for removal in REMOVALS:
        tx.conn.execute(removal, (seqs,))
    completed = [seq for seq, _, status in gone if status is TaskStatus.COMPLETED]
    tx.conn.execute(SETTLED_EDGES, (json_param(completed),))
    for _, queue, status in gone:
        tx.counts[queue, status] -= 1
