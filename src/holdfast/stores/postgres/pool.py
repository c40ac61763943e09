"""Connections held by a handle, one per kind of use, so that the hot path borrows nothing and waits for nobody else.

    writer   every verb that changes something      hot plans, made once
    claimer  claims, beside the settles             likewise
    carrier  large batches of new tasks             likewise; two, opened by the first such batch
    reader   what people look at                    read-only, planned anew for every call
    keeper   the evidence that workers live         opened by the first enroll

A connection that breaks is dropped, the call that met it raises StoreUnavailable, and the next one connects again. A
call is not repeated here: only its caller knows whether it may be (an operator's act on a task that has moved on since
is another act). When the primary has moved, every connection made before is dropped at its next use, or at that of
another seat (primary.py).
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar
from weakref import WeakSet

import asyncpg

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK, Clock, from_micros
from holdfast.errors import StoreUnavailable
from holdfast.policy import refusals
from holdfast.stores.postgres import faults, outage, schema
from holdfast.stores.postgres.database import CLOSE_SECONDS, HOT, READS, SESSION, Connection, Database, cut
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.statements import statement

T = TypeVar("T")

TRIES = 5
_PAUSE_SECONDS = 0.01
_READ_ONLY = "SET default_transaction_read_only = on"
# Not where it waits for standbys in some way that was chosen: only `off` acknowledges what a crash may take back.
_DURABLE = (
    "SELECT pg_catalog.set_config('synchronous_commit', 'on', false)"
    " WHERE pg_catalog.current_setting('synchronous_commit') = 'off'"
)

_inherited: list[Connection] = []
"""A parent's, kept and never used: to let go of one in a forked child would also end the parent's watching of it."""


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
        try:
            await self.conn.copy_records_to_table(table, schema_name=bare, columns=columns, records=records)
        except UnicodeEncodeError:
            raise refusals.not_text() from None

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
        self._moves = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self.beside: WeakSet[Seat] = WeakSet()
        """The seats of the handle. One that rests for long would keep a connection to what was the primary."""

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

    @property
    def connected(self) -> bool:
        return self._conn is not None

    @property
    def busy(self) -> bool:
        return self._lock.locked()

    def holds(self, conn: Connection) -> bool:
        """Is this the connection that the next call will use?"""
        return conn is self._conn and self._usable(conn)

    async def _run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        try:
            return await work(self._session(await self._connected()))
        except faults.Fault as error:
            if faults.moved(error):
                self._database.primary.left(self._moves)
            if faults.broken(error):
                self._drop()
            raise
        except asyncio.CancelledError:
            # Nobody knows how far it came: the server undoes what was not committed.
            self._drop()
            raise

    async def _connected(self) -> Connection:
        self._drop_stale()
        if self._conn is None:
            self._conn = await self._made()
            for seat in self.beside:
                if not seat._lock.locked():
                    seat._drop_stale()
        else:
            await self._database.look_again(self._conn)
        return self._conn

    async def _made(self) -> Connection:
        moves = self._database.primary.moves
        conn = await self._database.ready(self._settings)
        try:
            await self._prepare(conn)
        except BaseException:
            conn.terminate()
            raise
        self._moves, self._loop, self._pid = moves, asyncio.get_running_loop(), os.getpid()
        return conn

    async def _prepare(self, conn: Connection) -> None:
        """What a new connection needs before its first call."""

    def _drop_stale(self) -> None:
        if self._conn is not None and not self._usable(self._conn):
            self._drop()

    def _usable(self, conn: Connection) -> bool:
        return self._pid == os.getpid() and self._moves == self._database.primary.moves and not conn.is_closed()

    def _leave_behind(self) -> None:
        """Give up a connection whose event loop is another one, or over: nothing of it can be awaited here."""
        conn, self._conn = self._conn, None
        if conn is None or self._loop is None:
            return
        if self._pid != os.getpid():
            _inherited.append(conn)
        elif self._loop.is_closed():
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
        if conn is None:
            return
        if self._pid != os.getpid():
            _inherited.append(conn)
        else:
            with suppress(Exception):
                conn.terminate()


class Reader(Seat):
    """Cannot write. Said only once connected: a session that begins read-only looks like one with a standby."""

    async def _prepare(self, conn: Connection) -> None:
        if not self._database.options.pooled:
            await conn.execute(_READ_ONLY)


class Writer(Seat):
    """Notices that the server was away, and repairs what that did to leases before anything else is written."""

    def __init__(self, database: Database, clock: Clock) -> None:
        super().__init__(database, clock, HOT)
        self._outage = outage.Outage()
        self.back_at = -math.inf
        """When the server was back from what this handle knows of, in monotonic seconds."""

    async def run(self, work: Callable[[Session], Awaitable[T]]) -> T:
        began = self._clock.monotonic()
        try:
            answer = await super().run(work)
        except StoreUnavailable:
            self._outage.seen(began, self._clock.monotonic())
            raise
        if self._outage.began:
            self._outage.over()
            self.back_at = SYSTEM_CLOCK.monotonic()
        return answer

    async def _prepare(self, conn: Connection) -> None:
        if not self._database.options.pooled:
            await conn.execute(_DURABLE)
        session = self._session(conn)
        if session.given is not None:
            return
        back = await session.row("back")
        await self._repair(session, None, None, back["started_at"])
        if back["left_at"] is not None:
            await self._repair(session, None, back["left_at"], back["now"])
        age = (back["now"] - back["started_at"]).total_seconds()
        self.back_at = max(self.back_at, SYSTEM_CLOCK.monotonic() - age)

    async def _connected(self) -> Connection:
        conn = await super()._connected()
        if self._outage.began:
            session = self._session(conn)
            there = session.given or await conn.fetchval(outage.NOW)
            window = self._outage.window(self._clock.monotonic(), there)
            if window is not None:
                await self._repair(session, session.given, *window)
        return conn

    async def _repair(self, session: Session, *values: datetime | None) -> None:
        with suppress(asyncpg.InsufficientPrivilegeError):  # who may only submit leaves it to a worker
            await session.rows("repair", *values)


class Pool:
    def __init__(self, options: Options, clock: Clock) -> None:
        self.database = Database(options)
        self.writer = Writer(self.database, clock)
        self.claimer = Writer(self.database, clock)
        self.reader = Reader(self.database, clock, READS)
        self.keeper = Seat(self.database, clock, SESSION)
        self._carriers = (Writer(self.database, clock), Writer(self.database, clock))
        self._seats = (self.keeper, self.reader, self.claimer, *self._carriers, self.writer)
        for seat in self._seats:
            seat.beside.update(self._seats)

    @property
    def carrier(self) -> Seat:
        """Two, so that one batch is made and sent while the server is at work on the other."""
        first, second = self._carriers
        return second if first.busy and not second.busy else first

    async def migrate(self, *, dry_run: bool) -> list[str]:
        """The names of the steps done, or to be done."""
        if dry_run:
            return [step.name for step in schema.steps_after(await self.version())]
        try:
            return await self.database.migrate()
        except faults.Fault as error:
            faults.raise_translated(error, self.database.label)

    async def version(self) -> int:
        """Of the schema that is there; 0 also where there is no such database yet."""
        try:
            return await self.database.version()
        except asyncpg.InvalidCatalogNameError:
            return 0
        except faults.Fault as error:
            faults.raise_translated(error, self.database.label)

    async def close(self) -> None:
        for seat in self._seats:
            await seat.close()
