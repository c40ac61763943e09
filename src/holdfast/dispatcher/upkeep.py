"""What the service does besides answering: it keeps the store going, as every worker does (maintenance/crew.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from holdfast.events.bus import Bus
from holdfast.health import StoreHealth
from holdfast.maintenance.crew import Crew
from holdfast.maintenance.relay import Relay
from holdfast.model.outbox import NewSink
from holdfast.model.query import Retention
from holdfast.runtime.side_loop import SideLoop
from holdfast.sinks.protocol import Subscriber
from holdfast.stores.protocol import Capabilities, Store, StoreFactory

LEAVE_SECONDS = 5.0


class Upkeep:
    def __init__(
        self,
        actor: str,
        bus: Bus,
        *,
        retention: Retention | None = None,
        sinks: Sequence[NewSink] = (),
        subscribers: Mapping[str, Subscriber] | None = None,
    ) -> None:
        """`sinks`, `subscribers`: what the code of this process wants to be told, where it has been given one."""
        self._bus = bus
        relay = Relay(sinks, subscribers or {}, bus)
        self._crew = Crew(actor, bus, retention=retention or Retention(), schedules=None, relay=relay)
        self._side: SideLoop | None = None

    async def start(self, open_store: StoreFactory, capabilities: Capabilities) -> None:
        self._side = SideLoop(
            open_store,
            self._bus,
            StoreHealth(self._bus),
            enter=_at_once,
            parts=[self._begin, *self._crew.parts(capabilities)],
            leave=_at_once,
        )
        await self._side.start()

    async def _begin(self, store: Store, health: StoreHealth) -> None:
        """Not before the service answers: it may start while the store is away."""
        await self._crew.begin(store, health)
        await asyncio.Event().wait()

    async def stop(self) -> None:
        if self._side is not None:
            await self._side.stop(LEAVE_SECONDS)


async def _at_once(_store: Store, _health: StoreHealth) -> None:
    """Nothing has to be done first, or last."""
