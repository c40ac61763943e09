"""Goes on with workflows where a settle left more than it could do itself (contract C10.5): in batches, each one step
of the store. Who does it does not matter; a batch that is lost is done by the next one who looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast import ids
from holdfast.health import StoreHealth
from holdfast.stores.protocol import Store

INTERVAL_SECONDS = 1.0
SOON_SECONDS = 0.05
"""Between two looks, however much is settled."""
BATCH = 500


class Advancer:
    def __init__(self, worker_id: str) -> None:
        self._worker_id = worker_id
        self.busy = False
        """While something may be in its hands. For other threads to read."""
        self._wanted = True
        self._wake: Callable[[], object] = lambda: None

    def look_soon(self) -> None:
        """A member of a run was settled, and may have left something. From any thread, for every one of them."""
        if not self._wanted:
            self._wanted = True
            self._wake()

    async def run(self, store: Store, health: StoreHealth) -> None:
        loop = asyncio.get_running_loop()
        woken = asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(woken.set)
        while True:
            woken.clear()
            self._wanted = False  # before the look: what is settled during it is looked for again
            await health.persist(lambda: self._sweep(store))
            await asyncio.sleep(SOON_SECONDS)
            try:
                async with asyncio.timeout(INTERVAL_SECONDS * (0.8 + 0.4 * ids.JITTER.random())):
                    await woken.wait()
            except TimeoutError:
                pass

    async def _sweep(self, store: Store) -> None:
        self.busy = True
        try:
            await advance_all(store, actor=self._worker_id)
        finally:
            self.busy = False


async def advance_all(store: Store, *, actor: str) -> int:
    """Until nothing is left, but for what is in somebody else's hands; how many dependents were advanced."""
    total = 0
    while store.capabilities.workflows and (advanced := await store.advance(limit=BATCH, actor=actor)):
        total += advanced
        await asyncio.sleep(0)  # a store in memory answers without ever giving way
    return total
