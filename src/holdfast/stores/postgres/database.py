"""The server: how a connection to it is made and set up, and that it has our tables.

A connection is handed out only when its server takes writes (primary.py finds it) and its schema is one that this
version knows; one that is missing is made on the way, where the user may. What runs on it is not decided here.

A peer that is gone without a word (switched off, unplugged) is noticed by the kernel: it asks an idle one now and then
and gives up on bytes that nobody confirms. A server that is merely busy confirms them.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

import asyncpg

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import NotSupported
from holdfast.stores.postgres import faults, schema
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.pooled import Pooled, said
from holdfast.stores.postgres.primary import primary

NAME = "holdfast"
"""What the server shows as the name of our sessions."""
SEARCH_PATH = "pg_catalog, pg_temp"
CONNECT_SECONDS = 5.0
CLOSE_SECONDS = 5.0
LOCK_SECONDS = 5.0
_SLACK_SECONDS = 5.0
LOOK_SECONDS = 5.0
"""How often an open handle looks whether its schema is still one that it knows."""
OLDEST = 15

# Statistics of a queue are wrong most of the time: it was empty a moment ago, or full. The plans that are right are
# known (every table by its index, small joins by loops), so the others are ruled out and the plan is made once.
HOT = {
    "plan_cache_mode": "force_generic_plan",
    "enable_indexscan": "on",
    "enable_indexonlyscan": "on",
    "enable_tidscan": "on",
    "enable_nestloop": "on",
    "enable_sort": "on",
    "enable_material": "on",
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

    async def add_listener(self, channel: str, callback: Callable[[Any, int, str, str], None]) -> None: ...

    def add_termination_listener(self, callback: Callable[[Any], None]) -> None: ...

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
        self._looked_at = 0.0

    async def connect(self, settings: dict[str, str], *, patient: bool = False) -> Connection:
        """A bare connection, to the host that takes writes. A patient one waits as long as a statement takes."""
        return await self.primary.reached(lambda dsn: self._connect(dsn, settings, patient=patient))

    async def _connect(self, dsn: str, settings: dict[str, str], *, patient: bool) -> Connection:
        options = self.options
        wanted = self._settings() | settings
        conn: Connection = await asyncpg.connect(
            dsn,
            # To look, the driver would send a statement outside of a transaction (see pooled.py).
            target_session_attrs="any" if options.pooled else "read-write",
            timeout=CONNECT_SECONDS,
            command_timeout=None if patient else options.statement_seconds + _SLACK_SECONDS,
            statement_cache_size=0 if options.pooled else 256,
            max_cached_statement_lifetime=0,
            # A pooler takes only few settings with a connection.
            server_settings=wanted if options.pooler == "none" else {"application_name": NAME},
        )
        watch(conn)
        if options.pooler == "session":
            await conn.execute(said(wanted))
        return Pooled(conn, wanted) if options.pooled else conn

    async def ready(self, settings: dict[str, str]) -> Connection:
        """A connection to a database that has our tables."""
        conn = await self.connect(settings)
        try:
            await self._check(conn)
            await self._check_schema(conn)
        except BaseException:
            conn.terminate()
            raise
        return conn

    async def look_again(self, conn: Connection) -> None:
        """Every few seconds, is the schema still one that we know? Somebody may have brought it further."""
        if SYSTEM_CLOCK.monotonic() - self._looked_at > LOOK_SECONDS:
            await self._check_schema(conn)

    async def version(self) -> int:
        """Of the schema that is there. A newer one than we know is refused; nothing is written."""
        conn = await self.connect(SESSION)
        try:
            version = await schema.version_of(conn, self.schema)
            schema.refuse_newer(version, self.label)
            return version
        finally:
            await conn.close(timeout=CLOSE_SECONDS)

    async def migrate(self) -> list[str]:
        conn = await self.connect(SESSION, patient=True)
        try:
            return await schema.migrate(conn, self.schema, self.label)
        finally:
            await conn.close(timeout=CLOSE_SECONDS)

    async def _check_schema(self, conn: Connection) -> None:
        version = await schema.version_of(conn, self.schema)
        schema.refuse_newer(version, self.label)
        wanted = self.options.migrate == "always" or (self.options.migrate == "create" and not version)
        if wanted and version < schema.newest() and await schema.may_create(conn, self.schema):
            await self.migrate()
        else:
            schema.refuse_older(version, self.label)
        self._looked_at = SYSTEM_CLOCK.monotonic()

    def _settings(self) -> dict[str, str]:
        """Of every session: nothing that a role or a database was given may change what our statements mean."""
        return {
            "application_name": NAME,
            "search_path": SEARCH_PATH,
            "timezone": "UTC",
            "jit": "off",
            "idle_session_timeout": "0",
            "default_transaction_isolation": "read committed",
            "lock_timeout": f"{LOCK_SECONDS * 1000:.0f}",
            "statement_timeout": f"{self.options.statement_seconds * 1000:.0f}",
            "idle_in_transaction_session_timeout": f"{self.options.statement_seconds * 1000:.0f}",
        }

    async def _check(self, conn: Connection) -> None:
        version, encoding, path = await conn.fetchrow(
            "SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4 / 10000,"
            " pg_catalog.current_setting('server_encoding'), pg_catalog.current_setting('search_path')"
        )
        if version < OLDEST:
            raise NotSupported(f"{self.label} is PostgreSQL {version}; Holdfast needs {OLDEST} or newer")
        if encoding != "UTF8":
            raise NotSupported(f"{self.label} keeps its texts as {encoding}; Holdfast needs a database in UTF8")
        if path != SEARCH_PATH:
            raise faults.unnamed_pooler(self.label, "it drops the settings of our sessions")
