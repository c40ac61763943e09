"""Forgets ended tasks that retention no longer keeps (contract C8.5), in small batches so that nobody waits for it."""

from __future__ import annotations

import asyncio

from holdfast import ids
from holdfast.health import StoreHealth
from holdfast.model.query import Retention
from holdfast.stores.protocol import Store

INTERVAL_SECONDS = 60.0
PAUSE_SECONDS = 0.1
BATCH = 500


class Pruner:
    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    async def run(self, store: Store, health: StoreHealth) -> None:
        while True:
            await asyncio.sleep(INTERVAL_SECONDS * (0.8 + 0.4 * ids.JITTER.random()))
            await self._sweep(store, health)

    async def _sweep(self, store: Store, health: StoreHealth) -> None:
        gone = BATCH
        while gone == BATCH:
            gone = await health.persist(lambda: store.prune(self._retention, limit=BATCH))
            await asyncio.sleep(PAUSE_SECONDS)
