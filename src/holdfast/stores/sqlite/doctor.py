"""What `holdfast doctor` asks of a SQLite file: (question, is it well, in words)."""

from __future__ import annotations

import os
import sqlite3
import stat

from holdfast.clock import from_micros
from holdfast.policy.relaying import backlog
from holdfast.stores.sqlite import schema, sinks
from holdfast.stores.sqlite.options import Options

Finding = tuple[str, bool | None, str]

MISCOUNTED = """
SELECT id FROM holdfast_tasks AS t
WHERE status = 'waiting' AND NOT EXISTS (SELECT 1 FROM holdfast_advances) AND pending != (
    SELECT count(*) FROM holdfast_edges AS e CROSS JOIN holdfast_tasks AS p ON p.seq = e.parent
    WHERE e.child = t.seq AND NOT e.counted AND p.status != 'completed'
)
LIMIT 1
"""


def findings(conn: sqlite3.Connection, options: Options, now: int) -> list[Finding]:
    return [
        _version(),
        _journal(conn),
        _durable(options),
        _schema(conn),
        _intact(conn),
        _private(options.path),
        _counted(conn),
        _awaited(conn),
        _outbox(conn, now),
    ]


def has_reset_bug(version: tuple[int, ...]) -> bool:
    """Can a checkpoint beside a commit that starts the journal anew lose frames? Repaired in three lines."""
    if version >= (3, 51, 3):
        return False
    return not (version[:2] == (3, 50) and version >= (3, 50, 7)) and not (
        version[:2] == (3, 44) and version >= (3, 44, 6)
    )


def _version() -> Finding:
    if has_reset_bug(sqlite3.sqlite_version_info):
        words = "has the WAL-reset bug; Holdfast never checkpoints beside a commit, other programs on the file must not"
    else:
        words = "is free of the WAL-reset bug; Holdfast checkpoints only under its write lock all the same"
    return "SQLite version", True, f"{sqlite3.sqlite_version} {words}"


def _journal(conn: sqlite3.Connection) -> Finding:
    mode = str(conn.execute("PRAGMA journal_mode").fetchone()[0])
    return "journal mode", mode == "wal", mode


def _durable(options: Options) -> Finding:
    if options.synchronous == "full":
        return "durable", True, "synchronous=full: an acknowledged task survives a power cut"
    return "durable", False, "synchronous=normal: the last moments before a power cut may be lost"


def _schema(conn: sqlite3.Connection) -> Finding:
    version = schema.version_of(conn)
    return "schema", version == schema.newest(), f"version {version}, this Holdfast knows {schema.newest()}"


def _intact(conn: sqlite3.Connection) -> Finding:
    answer = str(conn.execute("PRAGMA quick_check(1)").fetchone()[0])
    return "file intact", answer == "ok", answer


def _private(path: str) -> Finding:
    mode = stat.S_IMODE(os.stat(path).st_mode)
    if mode & 0o077:
        return "file mode", False, f"{mode:04o}: others can read the tasks; run: chmod 600 {path}"
    return "file mode", True, f"{mode:04o}"


def _counted(conn: sqlite3.Connection) -> Finding:
    kept = conn.execute("SELECT queue, status, n FROM holdfast_counts WHERE n != 0 ORDER BY 1, 2").fetchall()
    real = conn.execute("SELECT queue, status, count(*) FROM holdfast_tasks GROUP BY 1, 2 ORDER BY 1, 2").fetchall()
    if kept == real:
        return "counts", True, "equal to the real ones"
    wrong = sorted(set(kept) ^ set(real))
    return "counts", False, f"differ from the real ones, first at {wrong[0][:2]!r}; this is a bug: please report it"


def _awaited(conn: sqlite3.Connection) -> Finding:
    """What is still being told (holdfast_advances) would look like an error."""
    wrong = conn.execute(MISCOUNTED).fetchone()
    if wrong is None:
        return "parents", True, "every waiting task waits for as many as it should"
    return "parents", False, f"task {wrong[0]} waits for another number than it should; this is a bug: please report it"


def _outbox(conn: sqlite3.Connection, now: int) -> Finding:
    if sinks.standing(conn) != sinks.wanted(conn):
        return "outbox", False, "its triggers are not those that its sinks want; declare a sink anew to repair them"
    return "outbox", *backlog(sinks.listed(conn, now), from_micros(now))
