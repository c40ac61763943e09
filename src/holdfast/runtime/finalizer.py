"""Turns ended attempts into recorded facts.

Collects settlements, settles them in batches (what gathers while one batch is written is the next one), and tells what
the store recorded. What an outcome leads to is decided in policy/verdict.py, by the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.errors import HoldfastError, LeaseLost, TaskNotFound
from holdfast.events.bus import Bus
from holdfast.events.facts import LeaseWasLost, TaskSettled
from holdfast.health import StoreHealth
from holdfast.model.claim import Claim
from holdfast.model.outcome import ErrorInfo, Failed, Settlement
from holdfast.model.transition import Settled
from holdfast.stores.protocol import TaskStore

BATCH_LARGEST = 1000

Ending = tuple[Claim, Settlement]


class Finalizer:
    def __init__(self, store: TaskStore, health: StoreHealth, bus: Bus, settled: Callable[[Claim], None]) -> None:
        self._store = store
        self._health = health
        self._bus = bus
        self._settled = settled
        """Told of every attempt that is over for the store, recorded or lost: nobody has to keep its lease any more."""
        self._pending: list[Ending] = []
        self._arrived = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()

    def add(self, claim: Claim, settlement: Settlement) -> None:
        self._pending.append((claim, settlement))
        if self._idle.is_set():
            self._idle.clear()
            self._arrived.set()

    async def run(self) -> None:
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            while self._pending:
                batch = self._pending[:BATCH_LARGEST]
                del self._pending[:BATCH_LARGEST]
                await self._settle(batch)
            self._idle.set()

    @property
    def idle(self) -> bool:
        return self._idle.is_set()

    async def drained(self) -> None:
        await self._idle.wait()

    async def _settle(self, batch: list[Ending]) -> None:
        settlements = [settlement for _, settlement in batch]
        answers = await self._health.persist(lambda: self._store.settle(settlements))
        for ending, answer in zip(batch, answers, strict=True):
            self._conclude(ending, answer)

    def _conclude(self, ending: Ending, answer: Settled | HoldfastError) -> None:
        claim, settlement = ending
        match answer:
            case Settled():
                self._settled(claim)
                self._bus.publish(TaskSettled(claim, settlement.outcome, answer))
            case LeaseLost() | TaskNotFound():
                self._settled(claim)
                self._bus.publish(LeaseWasLost(claim, str(answer)))
            case _:
                # The lease is good but what came with it is not: a follow-up whose key belongs to another task.
                self._fail(claim, settlement, answer)

    def _fail(self, claim: Claim, refused: Settlement, why: HoldfastError) -> None:
        """With what was emitted; without, where it was refused with nothing else but that."""
        plain = type(refused.outcome) is Failed and not refused.follow_ups and not refused.outputs
        if plain and not refused.emitted:
            self._settled(claim)  # not even that is taken: its lease runs out, and others see to it
            self._bus.publish(LeaseWasLost(claim, str(why)))
            return
        error = ErrorInfo(str(why), why.code)
        self._pending.append((claim, Settlement(refused.lease, Failed(error), () if plain else refused.emitted)))
