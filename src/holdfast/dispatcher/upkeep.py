"""What the service does besides answering: it keeps the store going, as every worker does (maintenance/crew.py)."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.events.bus import Bus
from holdfast.health import StoreHealth
from holdfast.maintenance.crew import Crew
from holdfast.maintenance.relay import Relay
from holdfast.model.outbox import NewSink
from holdfast.model.query import Retention
from holdfast.runtime.side_loop import SideLoop
from holdfast.stores.protocol import Capabilities, Store, StoreFactory

LEAVE_SECONDS = 5.0


class Upkeep:
    def __init__(
        self, actor: str, bus: Bus, *, retention: Retention | None = None, sinks: Sequence[NewSink] = ()
    ) -> None:
        self._bus = bus
        self._crew = Crew(actor, bus, retention=retention or Retention(), schedules=None, relay=Relay(sinks, {}, bus))
        self._side: SideLoop | None = None

    async def start(self, open_store: StoreFactory, capabilities: Capabilities) -> None:
        self._side = SideLoop(
            open_store,
            self._bus,
            StoreHealth(self._bus),
            enter=_at_once,
            parts=self._crew.parts(capabilities),
            leave=_at_once,
        )
        await self._side.start()

    async def stop(self) -> None:
        if self._side is not None:
            await self._side.stop(LEAVE_SECONDS)


async def _at_once(_store: Store, _health: StoreHealth) -> None:
    """A service that starts while the store is away answers 503 until it is back."""
