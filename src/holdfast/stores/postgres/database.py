"""The server: how a connection to it is made and set up, and that it has our tables.

A connection is handed out only when its schema is one that this version knows; one that is missing is made on the way,
where the user may. What runs on it is not decided here.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

import asyncpg

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import NotSupported
from holdfast.stores.postgres import faults, schema
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.pooled import Pooled, said

NAME = "holdfast"
"""What the server shows as the name of our sessions."""
SEARCH_PATH = "pg_catalog, pg_temp"
CONNECT_SECONDS = 10.0
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
    "enable_nestloop": "on",
    "enable_sort": "on",
    "enable_material": "on",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}
READS = {"plan_cache_mode": "force_custom_plan", "default_transaction_read_only": "on"}
SESSION: dict[str, str] = {}


class Connection(Protocol):
    """What is used of asyncpg's connection, which has no types of its own."""

    async def fetch(self, query: str, *args: Any) -> list[Any]: ...

    async def fetchrow(self, query: str, *args: Any) -> Any: ...

    async def fetchval(self, query: str, *args: Any) -> Any: ...

    async def execute(self, query: str, *args: Any) -> str: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]: ...

    def is_closed(self) -> bool: ...

    def terminate(self) -> None: ...

    async def close(self, *, timeout: float | None = None) -> None: ...


def cut(conn: Connection) -> None:
    """End a connection whose event loop is closed: the driver's own ways out all go through the loop."""
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
        self._looked_at = 0.0

    async def connect(self, settings: dict[str, str], *, patient: bool = False) -> Connection:
        """A bare connection. A patient one waits for its statements as long as they take."""
        options = self.options
        wanted = self._settings() | settings
        conn: Connection = await asyncpg.connect(
            options.dsn,
            timeout=CONNECT_SECONDS,
            command_timeout=None if patient else options.statement_seconds + _SLACK_SECONDS,
            statement_cache_size=0 if options.pooled else 256,
            max_cached_statement_lifetime=0,
            # A pooler takes only few settings with a connection.
            server_settings=wanted if options.pooler == "none" else {"application_name": NAME},
        )
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
