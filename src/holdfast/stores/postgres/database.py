"""The server: how a connection to it is made and set up, and that it has our tables.

A connection is handed out only when its schema is the one this version knows; it is made or brought up to date on the
way. What runs on it is not decided here.
"""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

import asyncpg

from holdfast.errors import NotSupported
from holdfast.stores.postgres import schema
from holdfast.stores.postgres.options import Options

CONNECT_SECONDS = 10.0
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
READS = {"plan_cache_mode": "force_custom_plan", "default_transaction_read_only": "on"}
SESSION: dict[str, str] = {}


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
        self._current = False

    async def connect(self, settings: dict[str, str]) -> Connection:
        """A bare connection."""
        options = self.options
        conn: Connection = await asyncpg.connect(
            options.dsn,
            timeout=CONNECT_SECONDS,
            command_timeout=options.statement_seconds + _SLACK_SECONDS,
            statement_cache_size=0 if options.pooled else 256,
            max_cached_statement_lifetime=0,
            # A pooler hands these to nobody, or refuses the connection for them.
            server_settings={} if options.pooled else self._settings() | settings,
        )
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
