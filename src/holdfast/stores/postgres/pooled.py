"""A connection through a pooler that hands every transaction another session (PgBouncer's transaction mode).

Nothing may be left behind in a session, and nothing found there may be trusted: it was somebody else's a moment ago.
So every statement runs in a transaction that begins by saying all that our other connections say once, when they are
made. It also keeps the two steps of a statement, prepare and execute, on one session: the driver sends them apart, and
outside of a transaction the second could meet what another client has prepared.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from holdfast.errors import NotSupported

if TYPE_CHECKING:
    from holdfast.stores.postgres.database import Connection

_OF_SESSIONS = ("application_name", "idle_session_timeout", "default_transaction_isolation")
"""Meaningless within one transaction."""
_DURABLE = (
    "SELECT pg_catalog.set_config('synchronous_commit', 'on', true)"
    " WHERE pg_catalog.current_setting('synchronous_commit') = 'off'"
)


class Pooled:
    def __init__(self, conn: Connection, settings: Mapping[str, str]) -> None:
        self._conn = conn
        self._opening = opening(settings)
        self._inside = False

    async def fetch(self, query: str, *args: Any) -> list[Any]:
        async with self._transaction():
            return await self._conn.fetch(query, *args)

    async def fetchrow(self, query: str, *args: Any) -> Any:
        async with self._transaction():
            return await self._conn.fetchrow(query, *args)

    async def fetchval(self, query: str, *args: Any) -> Any:
        async with self._transaction():
            return await self._conn.fetchval(query, *args)

    async def execute(self, query: str, *args: Any) -> str:
        async with self._transaction():
            return await self._conn.execute(query, *args)

    async def copy_records_to_table(
        self, table_name: str, *, records: Any, columns: Any = None, schema_name: str | None = None
    ) -> str:
        async with self._transaction():
            return await self._conn.copy_records_to_table(
                table_name, records=records, columns=columns, schema_name=schema_name
            )

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self._conn.transaction() if self._inside else self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[None]:
        if self._inside:
            yield
            return
        async with self._conn.transaction():
            self._inside = True
            try:
                await self._conn.execute(self._opening)
                yield
            finally:
                self._inside = False

    async def add_listener(self, channel: str, callback: Callable[[Any, int, str, str], None]) -> None:  # noqa: ARG002
        raise NotSupported("a pooler in transaction mode lets nobody listen")

    def add_termination_listener(self, callback: Callable[[Any], None]) -> None:
        self._conn.add_termination_listener(callback)

    def is_closed(self) -> bool:
        return self._conn.is_closed()

    def terminate(self) -> None:
        self._conn.terminate()

    async def close(self, *, timeout: float | None = None) -> None:
        await self._conn.close(timeout=timeout)


def opening(settings: Mapping[str, str]) -> str:
    """The first words of a transaction with these settings, which are texts of our own."""
    local = {name: value for name, value in settings.items() if name not in _OF_SESSIONS}
    return f"SET TRANSACTION ISOLATION LEVEL READ COMMITTED; {said(local, 'SET LOCAL')}; {_DURABLE}"


def said(settings: Mapping[str, str], verb: str = "SET") -> str:
    """The same settings in words, for a pooler that takes none with a connection."""
    return "; ".join(f"{verb} {name} = {_written(name, value)}" for name, value in settings.items())


def _written(name: str, value: str) -> str:
    return value if name == "search_path" else "'" + value.replace("'", "''") + "'"
