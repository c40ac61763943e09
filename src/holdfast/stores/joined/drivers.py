"""One small adapter per library: how its connection is asked, whatever its owner has set it to return.

The libraries are found in `sys.modules`: whoever hands in a connection has imported its library.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, TypeVar

from holdfast.errors import InvalidTask, NotSupported
from holdfast.stores.joined.callers import POSTGRESQL, SQLITE, AsyncCaller, Caller, PlainCaller
from holdfast.stores.joined.script import Ask, Rows, Script, in_style

T = TypeVar("T")


def asyncpg(connection: Any) -> Caller:
    """A connection, or what a pool hands out for one."""
    _expect(connection, "a connection of asyncpg", "is_in_transaction")

    async def fetch(ask: Ask) -> Rows:
        rows: Rows = await connection.fetch(ask.sql, *ask.values)
        return rows

    return AsyncCaller(POSTGRESQL, fetch)


def psycopg(connection: Any) -> Caller:
    _expect(connection, "a Connection or AsyncConnection of psycopg", "autocommit", "cursor")
    library = sys.modules["psycopg"]
    tuples = library.rows.tuple_row

    def fetch(ask: Ask) -> Rows:
        with library.Cursor(connection, row_factory=tuples) as cursor:
            rows: Rows = cursor.execute(in_style(ask.sql, "format"), ask.values).fetchall()
        return rows

    async def afetch(ask: Ask) -> Rows:
        async with library.AsyncCursor(connection, row_factory=tuples) as cursor:
            rows: Rows = await (await cursor.execute(in_style(ask.sql, "format"), ask.values)).fetchall()
        return rows

    if "AsyncConnection" in _names(connection):
        return AsyncCaller(POSTGRESQL, afetch)
    return PlainCaller(POSTGRESQL, fetch)


def psycopg2(connection: Any) -> Caller:
    _expect(connection, "a connection of psycopg2", "autocommit", "cursor")
    tuples = sys.modules["psycopg2.extensions"].cursor

    def fetch(ask: Ask) -> Rows:
        with connection.cursor(cursor_factory=tuples) as cursor:
            cursor.execute(in_style(ask.sql, "format"), ask.values)
            rows: Rows = cursor.fetchall()
        return rows

    return PlainCaller(POSTGRESQL, fetch)


def sqlalchemy(connection: Any) -> Caller:
    names = _names(connection)
    if "scoped_session" in names or "async_scoped_session" in names:
        return sqlalchemy(connection())
    if "AsyncSession" in names:
        return _AsyncAlchemy(connection, connection.get_bind().dialect.name)
    if "AsyncConnection" in names:
        return _AsyncAlchemy(connection, connection.dialect.name)
    if "Session" in names:
        connection = connection.connection()
    elif "Connection" not in names:
        raise _no_connection(connection, "a Session, AsyncSession, Connection or AsyncConnection of SQLAlchemy")
    dialect = connection.dialect

    def fetch(ask: Ask) -> Rows:
        rows: Rows = connection.exec_driver_sql(in_style(ask.sql, dialect.paramstyle), ask.values).fetchall()
        return rows

    return PlainCaller(dialect.name, fetch, sqlite=lambda: connection.connection.dbapi_connection)


class _AsyncAlchemy:
    """SQLAlchemy's async face is its plain one, run beside: so is this."""

    awaited = True

    def __init__(self, connection: Any, dialect: str) -> None:
        self._connection = connection
        self.dialect = dialect

    def walk(self, script: Script[T]) -> T:
        script.close()
        raise RuntimeError("this session is async; use the form with an `a` in front: `await …aenqueue(…)`")

    async def awalk(self, script: Script[T]) -> T:
        answer: T = await self._connection.run_sync(lambda inner: sqlalchemy(inner).walk(script))
        return answer

    def sqlite(self) -> Any:
        raise NotSupported("an async SQLite session cannot be joined; use a plain one, over Python's own sqlite3")


def django(connection: Any) -> Caller:
    _expect(connection, "django.db.connection, or one of django.db.connections", "vendor", "cursor")

    def fetch(ask: Ask) -> Rows:
        with connection.cursor() as cursor:
            cursor.execute(in_style(ask.sql, "format"), ask.values)
            rows: Rows = cursor.fetchall()
        return rows

    def bare() -> Any:
        connection.ensure_connection()
        return connection.connection

    return PlainCaller(connection.vendor, fetch, sqlite=bare)


def sqlite(connection: Any) -> Caller:
    _expect(connection, "a Connection of sqlite3", "in_transaction")

    def fetch(ask: Ask) -> Rows:
        rows: Rows = connection.execute(in_style(ask.sql, "qmark"), ask.values).fetchall()
        return rows

    return PlainCaller(SQLITE, fetch, sqlite=lambda: connection)


def own(connection: Any) -> Caller:
    """What ctx.transaction() hands out on SQLite."""
    _expect(connection, "an open connection", "sqlite")
    return sqlite(connection.sqlite)


def _expect(connection: Any, wanted: str, *attributes: str) -> None:
    if not all(hasattr(connection, attribute) for attribute in attributes):
        raise _no_connection(connection, wanted)


def _no_connection(connection: Any, wanted: str) -> InvalidTask:
    """For something of a known library that is not a connection: a pool, an engine, a cursor."""
    kind = type(connection)
    return InvalidTask(f"connection is a {kind.__module__}.{kind.__qualname__}; give {wanted}")


def _names(connection: Any) -> Sequence[str]:
    return [kind.__name__ for kind in type(connection).__mro__]
