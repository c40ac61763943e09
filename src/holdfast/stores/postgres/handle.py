"""What every verb of a PostgreSQL handle begins with: a connection of the kind that it needs, if it is open."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.errors import StoreClosed
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.pool import Pool, Session

T = TypeVar("T")


class Handle:
    """Of one event loop."""

    def __init__(self, options: Options, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._closed = False
        self._opened = Pool(options, clock)
        self.label = options.label

    @property
    def _pool(self) -> Pool:
        self._ensure_open()
        return self._opened

    def _ensure_open(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self.label} was closed; open it again to go on")

    async def _read(self, work: Callable[[Session], Awaitable[T]]) -> T:
        return await self._pool.reader.run(work)

    async def _write(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """For what is atomic by itself: one statement."""
        return await self._pool.writer.run(work)

    async def _write_all(self, work: Callable[[Session], Awaitable[T]]) -> T:
        """In a transaction, for what turns no task; that is store.py's."""

        async def whole(session: Session) -> T:
            async with session.conn.transaction():
                return await work(session)

        return await self._pool.writer.run(whole)
