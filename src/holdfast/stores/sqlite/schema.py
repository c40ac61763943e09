"""Which tables the file has, and how it gets the ones that this version knows.

Our version stands in our own table, so that our tables can live in a database that holds others. Steps are the
numbered files in migrations/, applied in order, each in one transaction with its row in holdfast_schema.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from holdfast.errors import SchemaMismatch


@dataclass(frozen=True, slots=True)
class Step:
    version: int
    name: str
    sql: str


@cache
def steps() -> tuple[Step, ...]:
    found = []
    for entry in files(__package__).joinpath("migrations").iterdir():
        if entry.name.endswith(".sql"):
            name = entry.name.removesuffix(".sql")
            found.append(Step(int(name.split("_")[0]), name, entry.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda step: step.version))


def newest() -> int:
    return steps()[-1].version


def version_of(conn: sqlite3.Connection) -> int:
    """0 where the database has none of our tables."""
    named = conn.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'holdfast_schema'").fetchone()
    return 0 if named is None else recorded(conn)


def recorded(conn: sqlite3.Connection) -> int:
    return int(conn.execute("SELECT coalesce(max(version), 0) FROM holdfast_schema").fetchone()[0])


def current(conn: sqlite3.Connection, path: str) -> bool:
    """Is it the schema of this version? An unknown newer one is refused; nothing is written either way."""
    version = version_of(conn)
    if version > newest():
        raise too_new(path, version)
    return version == newest()


def too_new(path: str, version: int) -> SchemaMismatch:
    return SchemaMismatch(
        f"{path} has schema version {version} and this Holdfast knows {newest()} at most; "
        "nothing was written: install the newer Holdfast that made it"
    )


def pending(conn: sqlite3.Connection) -> list[Step]:
    version = version_of(conn)
    return [step for step in steps() if step.version > version]


def migrate(conn: sqlite3.Connection, path: str, now: int) -> list[str]:
    """Do what is pending; the names of the steps done here. Two processes at once do each step once."""
    done = []
    for step in pending(conn):
        conn.execute("BEGIN IMMEDIATE")
        try:
            if version_of(conn) < step.version:
                _do(conn, step, now)
                done.append(step.name)
            conn.execute("COMMIT")
        finally:
            if conn.in_transaction:
                conn.execute("ROLLBACK")
    current(conn, path)
    return done


def make(conn: sqlite3.Connection, now: int) -> None:
    """All tables, in a database that has none, inside the transaction that is open."""
    for step in steps():
        _do(conn, step, now)


def _do(conn: sqlite3.Connection, step: Step, now: int) -> None:
    for sql in _statements(step.sql):
        conn.execute(sql)
    conn.execute("INSERT INTO holdfast_schema VALUES (?, ?, ?)", (step.version, step.name, now))


def _statements(script: str) -> Iterator[str]:
    """One at a time: sqlite3's executescript would commit in between."""
    text = ""
    for line in script.splitlines(keepends=True):
        text += line
        if sqlite3.complete_statement(text):
            yield text
            text = ""
