"""Transactions of handlers (contract C7.6): connections to the store's database on which people run their own SQL.

They come from a small pool of the handle, apart from the store's own sessions, and are set to nothing but what the
server gives every user: search_path, time-outs and plans are the handler's affair. They go to the server that takes
writes, and are given up when it has moved, like all others (primary.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import asyncpg

from holdfast.errors import NotSupported
from holdfast.stores.postgres import faults
from holdfast.stores.postgres.database import CLOSE_SECONDS, CONNECT_SECONDS
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.primary import primary

MOST_CONNECTIONS = 10
"""So many transactions of handlers are open at once, per handle; further ones wait for their turn."""


class HandlerPool:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._primary = primary(options.hosts)
        self._moves = 0
        self._opening = asyncio.Lock()
        self._pool: Any = None

    async def acquire(self) -> Any:
        async with self._opening:
            if self._pool is None:
                self._pool = await asyncpg.create_pool(
                    self._options.dsn,
                    connect=self._connect,
                    min_size=0,
                    max_size=MOST_CONNECTIONS,
                    timeout=CONNECT_SECONDS,
                    statement_cache_size=0 if self._options.pooled else 100,
                )
        if self._moves != self._primary.moves:
            self._moves = self._primary.moves
            await self._pool.expire_connections()
        try:
            return await self._pool.acquire()
        except faults.Fault as error:
            faults.raise_translated(error, self._options.label)

    async def _connect(self, _dsn: str, **options: Any) -> Any:
        attrs = "any" if self._options.pooled else "read-write"
        return await self._primary.reached(lambda dsn: asyncpg.connect(dsn, target_session_attrs=attrs, **options))

    async def release(self, connection: Any) -> None:
        await self._pool.release(connection)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            try:
                async with asyncio.timeout(CLOSE_SECONDS):
                    await pool.close()
            except TimeoutError:
                pool.terminate()


class OwnTransaction:
    """One transaction. Its end is known only when `aleave` has returned: then it happened as asked."""

    def __init__(self, pool: HandlerPool, committed: Callable[[], None]) -> None:
        self._pool = pool
        self._committed = committed
        self._transaction: Any = None
        self.connection: Any = None

    def enter(self) -> Any:
        raise NotSupported(
            "a plain function cannot use an asyncpg connection; open one of your own (psycopg, SQLAlchemy, Django) and "
            "end the task on it with ctx.complete_in(connection, result)"
        )

    def leave(self, *, commit: bool) -> None:  # noqa: ARG002
        raise AssertionError("never entered")

    async def aenter(self) -> Any:
        self.connection = await self._pool.acquire()
        self._transaction = self.connection.transaction()
        await self._transaction.start()
        return self.connection

    async def aleave(self, *, commit: bool) -> None:
        connection, self.connection = self.connection, None
        try:
            if commit:
                await self._transaction.commit()
                self._committed()
            elif not connection.is_closed():
                await self._transaction.rollback()
        finally:
            await self._pool.release(connection)
