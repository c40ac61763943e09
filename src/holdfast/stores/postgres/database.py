"""The server: how a connection to it is made and set up, and that it has our tables.

A connection is handed out only when its server takes writes (primary.py finds it) and its schema is the one this
version knows; it is made or brought up to date on the way. What runs on it is not decided here.

A peer that is gone without a word (switched off, unplugged) is noticed by the kernel: it asks an idle one now and then
and gives up on bytes that nobody confirms. A server that is merely busy confirms them.
"""

from __future__ import annotations

import os
import socket
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

import asyncpg

from holdfast.errors import NotSupported
from holdfast.stores.postgres import schema
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.primary import primary

CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 5.0
LOCK_SECONDS = 5.0
_SLACK_SECONDS = 5.0
OLDEST = 15

# Statistics of a queue are wrong most of the time: it was empty a moment ago, or full. The plans that are right are
# known (every table by its index, small joins by loops), so the others are ruled out and the plan is made once.
HOT = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
READS = {"plan_cache_mode": "force_custom_plan"}
SESSION: dict[str, str] = {}


# By name: not every system knows all of them.
_WATCHFUL = {
    "SO_KEEPALIVE": (socket.SOL_SOCKET, 1),
    "TCP_KEEPIDLE": (socket.IPPROTO_TCP, 5),
    "TCP_KEEPINTVL": (socket.IPPROTO_TCP, 2),
    "TCP_KEEPCNT": (socket.IPPROTO_TCP, 3),
    "TCP_USER_TIMEOUT": (socket.IPPROTO_TCP, 10_000),
}


class Connection(Protocol):
    """What is used of asyncpg's connection, which has no types of its own."""

    async def fetch(self, query: str, *args: Any) -> list[Any]: ...

    async def fetchrow(self, query: str, *args: Any) -> Any: ...

    async def fetchval(self, query: str, *args: Any) -> Any: ...

    async def execute(self, query: str, *args: Any) -> str: ...

    async def copy_records_to_table(
        self, table_name: str, *, records: Any, columns: Any = None, schema_name: str | None = None
    ) -> str: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...

    async def close(self, *, timeout: float | None = None) -> None: ...


def watch(conn: Connection) -> None:
    """Let the kernel notice a peer that is gone. A local socket needs none of this."""
    shown = conn._transport.get_extra_info("socket")  # type: ignore[attr-defined]  # the driver shows it nowhere else
    with socket.socket(fileno=os.dup(shown.fileno())) as wire:  # what is shown takes no options under uvloop
        if wire.family in (socket.AF_INET, socket.AF_INET6):
            for name, (level, value) in _WATCHFUL.items():
                if hasattr(socket, name):
                    wire.setsockopt(level, getattr(socket, name), value)


def cut(conn: Connection) -> None:
    """End a connection whose event loop is closed: the driver's own ways out all go through the loop.

    So do asyncio's. What it shows of its socket can be shut down, which ends the session, but not closed: the
    descriptor would stay until the transport is collected, with a warning.
    """
    transport = getattr(conn, "_transport", None)
    with suppress(RuntimeError):
        conn.terminate()
    sock = getattr(transport, "_sock", None)  # asyncio's; uvloop closes its own with the loop
    if transport is not None and sock is not None:
        sock.close()
        transport._sock = None


class Database:
    def __init__(self, options: Options) -> None:
        self.options = options
        self.label = options.label
        self.schema = options.quoted_schema
        self.primary = primary(options.hosts)
        self._current = False

    async def connect(self, settings: dict[str, str]) -> Connection:
        """A bare connection, to the host that takes writes."""
        return await self.primary.reached(lambda dsn: self._connect(dsn, settings))

    async def _connect(self, dsn: str, settings: dict[str, str]) -> Connection:
        options = self.options
        conn: Connection = await asyncpg.connect(
            dsn,
            target_session_attrs="read-write",
            timeout=CONNECT_SECONDS,
            command_timeout=options.statement_seconds + _SLACK_SECONDS,
            statement_cache_size=0 if options.pooled else 256,
            max_cached_statement_lifetime=0,
            # A pooler hands these to nobody, or refuses the connection for them.
            server_settings={} if options.pooled else self._settings() | settings,
        )
        watch(conn)
        return conn

    async def ready(self, settings: dict[str, str]) -> Connection:
        """A connection to a database that has our tables."""
        conn = await self.connect(settings)
        try:
            if not self._current:
                await self._check(conn)
                if await schema.pending(conn, self.schema, self.label):
                    await self.migrate()
                self._current = True
        except BaseException:
            conn.terminate()
            raise
        return conn

    async def pending(self) -> list[str]:
        """The names of the migrations that opening would do. Writes nothing."""
        conn = await self.connect(SESSION)
        try:
            return [step.name for step in await schema.pending(conn, self.schema, self.label)]
        finally:
            await conn.close(timeout=CLOSE_SECONDS)

    async def migrate(self) -> list[str]:
        conn = await self.connect(SESSION)
        try:
            return await schema.migrate(conn, self.schema, self.label)
        finally:
            await conn.close(timeout=CLOSE_SECONDS)

    def _settings(self) -> dict[str, str]:
        """Of every session: nothing that a role or a database was given may change what our statements mean."""
        return {
            "application_name": "holdfast",
            "search_path": "pg_catalog",
            "timezone": "UTC",
            "jit": "off",
            "default_transaction_isolation": "read committed",
            "lock_timeout": f"{LOCK_SECONDS * 1000:.0f}",
            "statement_timeout": f"{self.options.statement_seconds * 1000:.0f}",
            "idle_in_transaction_session_timeout": f"{self.options.statement_seconds * 1000:.0f}",
        }

    async def _check(self, conn: Connection) -> None:
        version, encoding = await conn.fetchrow(
            "SELECT pg_catalog.current_setting('server_version_num')::int / 10000,"
            " pg_catalog.current_setting('server_encoding')"
        )
        if version < OLDEST:
            raise NotSupported(f"{self.label} is PostgreSQL {version}; Holdfast needs {OLDEST} or newer")
        if encoding != "UTF8":
            raise NotSupported(f"{self.label} keeps its texts as {encoding}; Holdfast needs a database in UTF8")
