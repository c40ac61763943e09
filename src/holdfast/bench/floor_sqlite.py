"""The floor on SQLite: what bare SQL in one thread can do with the same work.

Claims and settles in batches, fenced by token and expiry, one event row per transition, on a table as wide as ours,
with the same durability (WAL, synchronous FULL) and no worker around it. A rate without this beside it says nothing.
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path

from holdfast.clock import SYSTEM_CLOCK

BATCH = 500

SCHEMA = """
CREATE TABLE tasks (
  id TEXT PRIMARY KEY, queue TEXT, name TEXT, priority INT, status TEXT, payload TEXT, attempt INT DEFAULT 0,
  failures INT DEFAULT 0, max_attempts INT, run_at INT, created_at INT, started_at INT, finished_at INT,
  claimed_by TEXT, token TEXT, lease_expires_at INT, last_error TEXT, result TEXT, idempotency_key TEXT, run_id TEXT,
  concurrency_key TEXT, meta TEXT
) WITHOUT ROWID;
CREATE INDEX ready ON tasks (queue, priority DESC, run_at, id) WHERE status = 'queued';
CREATE INDEX leased ON tasks (lease_expires_at) WHERE status = 'running';
CREATE TABLE events (seq INTEGER PRIMARY KEY, task_id TEXT, kind TEXT, at INT, actor TEXT, attempt INT);
"""
INSERT = """
INSERT INTO tasks (id, queue, name, priority, status, payload, max_attempts, run_at, created_at)
VALUES (?, 'default', 'noop', 0, 'queued', ?, 5, 0, 0)
"""
CLAIM = """
UPDATE tasks SET status = 'running', attempt = attempt + 1, claimed_by = 'floor', token = hex(randomblob(16)),
  lease_expires_at = :now + 60000000
WHERE id IN (SELECT id FROM tasks WHERE status = 'queued' AND queue = 'default' AND run_at <= :now
             ORDER BY priority DESC, run_at, id LIMIT :batch)
RETURNING id, token, payload, attempt
"""
SETTLE = """
UPDATE tasks SET status = 'completed', claimed_by = NULL, lease_expires_at = NULL, finished_at = :now
WHERE id = :id AND token = :token AND lease_expires_at > :now
"""
EVENT = "INSERT INTO events (task_id, kind, at, actor, attempt) VALUES (?, ?, ?, 'floor', ?)"


def drain_rate(tasks: int) -> float:
    """Tasks claimed and settled per second."""
    with tempfile.TemporaryDirectory(prefix="holdfast-floor-") as folder:
        connection = sqlite3.connect(Path(folder) / "floor.db", isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(SCHEMA)
            _fill(connection, tasks)
            started = SYSTEM_CLOCK.monotonic()
            done = 0
            while batch := _claim(connection):
                _settle(connection, batch)
                done += len(batch)
            assert done == tasks
            return tasks / (SYSTEM_CLOCK.monotonic() - started)
        finally:
            connection.close()


def _fill(connection: sqlite3.Connection, tasks: int) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(INSERT, ((f"{i:036x}", f'{{"args":[{i}],"kwargs":{{}}}}') for i in range(tasks)))
    connection.execute("COMMIT")


def _claim(connection: sqlite3.Connection) -> list[tuple[str, str, str, int]]:
    now = SYSTEM_CLOCK.micros()
    connection.execute("BEGIN IMMEDIATE")
    rows = connection.execute(CLAIM, {"now": now, "batch": BATCH}).fetchall()
    connection.executemany(EVENT, ((task_id, "task.running", now, attempt) for task_id, _, _, attempt in rows))
    connection.execute("COMMIT")
    return rows


def _settle(connection: sqlite3.Connection, rows: list[tuple[str, str, str, int]]) -> None:
    now = SYSTEM_CLOCK.micros()
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(SETTLE, ({"now": now, "id": task_id, "token": token} for task_id, token, _, _ in rows))
    connection.executemany(EVENT, ((task_id, "task.completed", now, attempt) for task_id, _, _, attempt in rows))
    connection.execute("COMMIT")
