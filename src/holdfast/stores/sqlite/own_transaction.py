"""Transactions of handlers (contract C7.6): a connection to the store's file on which people run their own SQL.

It holds the write lock from its first moment to its last, so that it takes its turn among the writers of all processes,
and so that nobody can take the lease away in between. Plain functions get the sqlite3 connection itself, coroutines one
that works on a thread of its own.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, TypeVar

from holdfast.clock import Clock
from holdfast.stores.sqlite import faults
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.patience import Patience

T = TypeVar("T")

Values = Sequence[Any] | dict[str, Any]


class OwnTransaction:
    def __init__(self, database: Database, clock: Clock, busy_seconds: float, committed: Callable[[], None]) -> None:
        self._database = database
        self._committed = committed
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._lock = ExitStack()
        self._conn: sqlite3.Connection | None = None
        self._thread: ThreadPoolExecutor | None = None

    def enter(self) -> sqlite3.Connection:
        patience = Patience(self._database.path, self._busy_seconds)
        conn = self._database.ready(patience, self._clock.micros(), writes=True)
        try:
            self._lock.enter_context(self._database.lock.held(patience))
            self._begin(conn, patience)
        except BaseException:
            self._lock.close()
            self._database.close(conn)
            raise
        self._conn = conn
        return conn

    def leave(self, *, commit: bool) -> None:
        conn, self._conn = self._conn, None
        if conn is None:
            return
        try:
            if commit:
                conn.execute("COMMIT")
                self._committed()
        except sqlite3.Error as error:
            raise faults.translated(error, self._database.path) from error
        finally:
            if conn.in_transaction:
                with suppress(sqlite3.Error):
                    conn.execute("ROLLBACK")
            self._lock.close()
            self._database.close(conn)

    async def aenter(self) -> AsyncConnection:
        self._thread = ThreadPoolExecutor(1, "holdfast-sqlite-handler")
        try:
            return AsyncConnection(await _on(self._thread, self.enter), self._thread)
        except BaseException:
            # It may be entered yet, after this: then it is left at once, on the same thread.
            self._thread.submit(self.leave, commit=False)
            self._thread.shutdown(wait=False)
            raise

    async def aleave(self, *, commit: bool) -> None:
        assert self._thread is not None
        try:
            await _on(self._thread, lambda: self.leave(commit=commit))
        finally:
            self._thread.shutdown(wait=False)

    def _begin(self, conn: sqlite3.Connection, patience: Patience) -> None:
        while True:
            try:
                conn.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not faults.transient(error):
                    raise faults.translated(error, self._database.path) from error
                patience.wait()


class AsyncConnection:
    """sqlite3 for coroutines, with the words of asyncpg: `await connection.execute("INSERT …", (1, 2))`."""

    def __init__(self, sqlite: sqlite3.Connection, thread: ThreadPoolExecutor) -> None:
        self.sqlite = sqlite
        """The connection itself."""
        self._thread = thread

    async def execute(self, sql: str, values: Values = ()) -> None:
        await _on(self._thread, lambda: self.sqlite.execute(sql, values).close())

    async def executemany(self, sql: str, rows: Sequence[Values]) -> None:
        await _on(self._thread, lambda: self.sqlite.executemany(sql, rows).close())

    async def fetch(self, sql: str, values: Values = ()) -> list[Any]:
        return await _on(self._thread, lambda: self.sqlite.execute(sql, values).fetchall())

    async def fetchrow(self, sql: str, values: Values = ()) -> Any:
        return await _on(self._thread, lambda: self.sqlite.execute(sql, values).fetchone())

    async def fetchval(self, sql: str, values: Values = ()) -> Any:
        row = await self.fetchrow(sql, values)
        return None if row is None else row[0]


async def _on(thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(thread, work)
