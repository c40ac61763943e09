"""What the named steps of a handler gave: recorded once per task, fenced like a settle (contract C10.7)."""

from __future__ import annotations

import sqlite3

from holdfast.clock import from_micros
from holdfast.model.claim import Lease
from holdfast.model.workflow import Step
from holdfast.stores.sqlite import leases
from holdfast.stores.sqlite.statements import text_param
from holdfast.stores.sqlite.tx import Tx

_RECORD = "INSERT OR IGNORE INTO holdfast_steps (task, name, result, at) VALUES (?, ?, ?, ?)"
_RECORDED = "SELECT name, result, at FROM holdfast_steps WHERE task = ? AND name = ?"
_ALL = """
SELECT s.name, s.result, s.at FROM holdfast_tasks AS t CROSS JOIN holdfast_steps AS s ON s.task = t.seq
WHERE t.id = ? ORDER BY s.id
"""


def record(tx: Tx, lease: Lease, name: str, result: str) -> Step:
    seq = leases.held(tx, lease).seq
    tx.conn.execute(_RECORD, (seq, name, result, tx.now))
    return _step(*tx.conn.execute(_RECORDED, (seq, name)).fetchone())


def steps(conn: sqlite3.Connection, task_id: str) -> list[Step]:
    return [_step(*row) for row in conn.execute(_ALL, (text_param(task_id),)).fetchall()]


def _step(name: str, result: str, at: int) -> Step:
    return Step(name, result, from_micros(at))
