"""Connections held by a handle, one per kind of use, so that the hot path borrows nothing and waits for nobody else.

    writer   every verb that changes something      hot plans, made once
    claimer  claims, beside the settles             likewise
    reader   what people look at                    read-only, planned anew for every call
    keeper   the evidence that workers live         opened by the first enroll

A connection that breaks is dropped, the call that met it raises StoreUnavailable, and the next one connects again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK, Clock, from_micros
from holdfast.errors import StoreUnavailable
from holdfast.stores.postgres import faults, outage
from holdfast.stores.postgres.database import CLOSE_SECONDS, HOT, READS, SESSION, Connection, Database, cut
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.statements import statement

T = TypeVar("T")

TRIES = 5
_PAUSE_SECONDS = 0.01


class Session:
    """A connection for the length of one call, with the SQL of its schema."""

    __slots__ = ("conn", "given", "schema")

    def __init__(self, conn: Connection, schema: str, given: datetime | None) -> None:
        self.conn = conn
        self.given = given
        """The instant that a test wants it to be; None: the database's clock decides."""
        self.schema = schema

    async def rows(self, name: str, *values: Any) -> list[Any]:
        return await self.conn.fetch(statement(self.schema, name), *values)

    def table(self, name: str) -> str:
        return f"{self.schema}.{name}"

    async def copy(self, table: str, columns: Sequence[str], records: list[tuple[Any, ...]]) -> None:
        """Rows of a table, in their order."""
        bare = self.schema[1:-1].replace('""', '"')
        await self.conn.copy_records_to_table(table, schema_name=bare, columns=columns, records=records)

    async def row(self, name: str, *values: Any) -> Any:
        return await self.conn.fetchrow(statement(self.schema, name), *values)

    async def value(self, name: str, *values: Any) -> Any:
        return await self.conn.fetchval(statement(self.schema, name), *values)


class Seat:
    """One connection. Calls on it take turns."""

    def __init__(self, database: Database, clock: Clock, settings: dict[str, str]) -> None:
        self._database = database
        self._clock = clock
        self._settings = settings
        self._lock = asyncio.Lock()
        self._conn: Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0

    def __del__(self) -> None:
        self._leave_behind()

    async def run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """Run `work`; once more, from the start, where others were at the same rows first."""
        async with self._lock:
            for tries in range(1, TRIES + 1):
                try:
                    return await self._run(work)
                except faults.Fault as error:
                    if not faults.repeatable(error) or tries == TRIES:
                        faults.raise_translated(error, self._database.label)
                await asyncio.sleep(_PAUSE_SECONDS * tries * ids.JITTER.random())
        raise AssertionError("the last try returns or raises")

    async def close(self) -> None:
        if self._loop is not asyncio.get_running_loop() or self._pid != os.getpid():
            self._leave_behind()
            return
        async with self._lock:
            conn, self._conn = self._conn, None
            if conn is None:
                return
            try:
                await conn.close(timeout=CLOSE_SECONDS)
            except faults.Fault:
                conn.terminate()

    async def _run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        try:
            return await work(self._session(await self._connected()))
        except faults.Fault as error:
            if faults.broken(error):
                self._drop()
            raise
        except asyncio.CancelledError:
            # Nobody knows how far it came: the server undoes what was not committed.
            self._drop()
            raise

    async def _connected(self) -> Connection:
        """In a forked child the parent's connection is left alone and a new one is made."""
        if self._conn is None or self._conn.is_closed() or self._pid != os.getpid():
            self._conn = await self._database.ready(self._settings)
            self._loop, self._pid = asyncio.get_running_loop(), os.getpid()
        return self._conn

    def _leave_behind(self) -> None:
        """Give up a connection whose event loop is another one, or over: nothing of it can be awaited here."""
        conn, self._conn = self._conn, None
        if conn is None or self._loop is None or self._pid != os.getpid():
            return
        if self._loop.is_closed():
            cut(conn)
        else:
            with suppress(RuntimeError):  # closed just now
                self._loop.call_soon_threadsafe(conn.terminate)

    def _session(self, conn: Connection) -> Session:
        return Session(conn, self._database.schema, self._given())

    def _given(self) -> datetime | None:
        return None if self._clock is SYSTEM_CLOCK else from_micros(self._clock.micros())

    def _drop(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None and self._pid == os.getpid():
            with suppress(Exception):
                conn.terminate()


class Writer(Seat):
    """Notices that the server was away, and repairs what that did to leases before anything else is written."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock, HOT)
        self._outage = outage.Outage()

    async def run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        began = self._clock.monotonic()
        try:
            return await super().run(work)
        except StoreUnavailable:
            self._outage.seen(began, self._clock.monotonic())
            raise

    async def _connected(self) -> Connection:
        before = self._conn
        conn = await super()._connected()
        session = self._session(conn)
        if conn is not before and session.given is None:
            await session.rows("repair", None, None, await conn.fetchval(outage.STARTED))
        if self._outage.began:
            there = session.given or await conn.fetchval(outage.NOW)
            window = self._outage.window(self._clock.monotonic(), there)
            if window is not None:
                await session.rows("repair", session.given, *window)
            self._outage.over()
        return conn


class Pool:
    def __init__(self, options: Options, clock: Clock) -> None:
        self.database = Database(options)
        self.writer = Writer(self.database, clock)
        self.claimer = Writer(self.database, clock)
        self.reader = Seat(self.database, clock, READS)
        self.keeper = Seat(self.database, clock, SESSION)

    async def migrate(self, *, dry_run: bool) -> list[str]:
        """The names of the steps done, or to be done."""
        try:
            return await (self.database.pending() if dry_run else self.database.migrate())
        except faults.Fault as error:
            faults.raise_translated(error, self.database.label)

    async def close(self) -> None:
        for seat in (self.keeper, self.reader, self.claimer, self.writer):
            await seat.close()
