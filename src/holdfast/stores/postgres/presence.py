"""The evidence that a worker lives: an advisory lock that a session of its own handle holds (contract C6.7).

The server drops the lock with the session, however that ends, and keeps it while the worker is merely slow. Locks are
named by a nonce that the worker's row repeats. A session that was lost is replaced, with new nonces; until then the
grace time of options.py protects the worker.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast import ids
from holdfast.stores.postgres.database import Connection
from holdfast.stores.postgres.pool import Seat, Session

_LOCK = "SELECT pg_catalog.pg_advisory_lock($1)"
_UNLOCK = "SELECT pg_catalog.pg_advisory_unlock($1)"


class Held(NamedTuple):
    nonce: int
    conn: Connection


class Presence:
    def __init__(self, keeper: Seat) -> None:
        self._keeper = keeper
        self._held: dict[str, Held] = {}

    @property
    def here(self) -> list[str]:
        """The workers of this handle."""
        return list(self._held)

    async def hold(self, worker_id: str) -> int:
        """The nonce of this worker's lock, which is held by this handle from now on."""

        async def work(session: Session) -> int:
            held = self._held.get(worker_id)
            if held is None or held.conn is not session.conn:
                held = Held(int(ids.nonce(), 16), session.conn)
                await session.conn.fetchval(_LOCK, held.nonce)
                self._held[worker_id] = held
            return held.nonce

        return await self._keeper.run(work)

    async def let_go(self, worker_id: str) -> None:
        held = self._held.pop(worker_id, None)
        if held is None:
            return

        async def work(session: Session) -> None:
            if held.conn is session.conn:
                await session.conn.fetchval(_UNLOCK, held.nonce)

        await self._keeper.run(work)

    def lost(self) -> list[str]:
        """Workers of this handle whose session has ended, or is one with a server that is the primary no more."""
        return [worker_id for worker_id, held in self._held.items() if not self._keeper.holds(held.conn)]
