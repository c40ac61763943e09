"""What keeps a store going besides its workers' work: everybody who does it, as one list.

Workers run it on their side loop, dispatchers in their service; any number at once. A store that is maintained by
somebody else (behind a dispatcher) needs none of it, but for the word of a worker that its code has its schedules.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from holdfast.events.bus import Bus
from holdfast.health import StoreHealth
from holdfast.maintenance.advancer import Advancer
from holdfast.maintenance.pruner import Pruner
from holdfast.maintenance.reaper import Reaper
from holdfast.maintenance.relay import Relay
from holdfast.maintenance.scheduler import Scheduler
from holdfast.model.query import Retention
from holdfast.model.schedule import NewSchedule
from holdfast.stores.protocol import Capabilities, Store

Part = Callable[[Store, StoreHealth], Awaitable[None]]
"""Runs until it is canceled; one that fails is started again by whoever runs it."""


class Crew:
    def __init__(
        self, actor: str, bus: Bus, *, retention: Retention, schedules: Sequence[NewSchedule] | None, relay: Relay
    ) -> None:
        """`schedules`: what the code of this process declares; None: it has none of its own, and fires those that any
        worker says it has (a dispatcher).
        """
        self.advancer = Advancer(actor)
        self.scheduler = Scheduler(schedules or (), bus, for_others=schedules is None)
        self._reaper = Reaper(actor, bus)
        self._pruner = Pruner(retention)
        self._relay = relay

    async def begin(self, store: Store, health: StoreHealth) -> None:
        """Before anything else: make the schedules known, and who wants to be told."""
        await self.scheduler.begin(store, health)
        await self._relay.begin(store, health)

    def parts(self, capabilities: Capabilities) -> list[Part]:
        """What a store of these capabilities needs of it."""
        if capabilities.maintained:
            return [self.scheduler.run]
        return [self._reaper.run, self.advancer.run, self.scheduler.run, self._pruner.run, self._relay.run]
