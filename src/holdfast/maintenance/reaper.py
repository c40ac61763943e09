"""Rescues the work of those who are gone (contract C6.5, C6.7): first ends the leases of workers that are known to be
dead, then records every expired attempt as lost. Which attempts those are, and what follows, the store decides.
"""

from __future__ import annotations

import asyncio

from holdfast import ids
from holdfast.events.bus import Bus
from holdfast.events.facts import Evicted, Reaped
from holdfast.health import StoreHealth
from holdfast.stores.protocol import Store

INTERVAL_SECONDS = 1.0
BATCH = 200


class Reaper:
    def __init__(self, worker_id: str, bus: Bus) -> None:
        self._worker_id = worker_id
        self._bus = bus

    async def run(self, store: Store, health: StoreHealth) -> None:
        while True:
            await health.persist(lambda: self.sweep(store))
            await asyncio.sleep(INTERVAL_SECONDS * (0.8 + 0.4 * ids.JITTER.random()))

    async def sweep(self, store: Store) -> int:
        """How many attempts were rescued."""
        if store.capabilities.early_reaping:
            gone = await store.evict(actor=self._worker_id)
            if gone:
                self._bus.publish(Evicted(gone))
        total = 0
        while True:
            settled = await store.reap(limit=BATCH, actor=self._worker_id)
            total += len(settled)
            if settled:
                self._bus.publish(Reaped(settled))
            if len(settled) < BATCH:
                return total
