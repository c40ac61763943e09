"""What the tests of the relay share: a store in virtual time, a channel that answers as it is told to, and a relay that
goes one round at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from holdfast import ids
from holdfast.errors import HoldfastError
from holdfast.events.bus import Bus
from holdfast.events.facts import Told
from holdfast.health import StoreHealth
from holdfast.maintenance.relay import Relay
from holdfast.model.claim import Claim, ClaimRequest
from holdfast.model.outbox import Effect, NewSink, OutboxRow, OutboxState
from holdfast.model.outcome import Completed, Outcome, Settlement
from holdfast.model.task import NewTask
from holdfast.sinks.protocol import DELIVERED, Answer, Channel, Subscriber
from holdfast.stores.protocol import Store
from holdfast.testing.virtual_clock import VirtualClock
from tests.conformance.subjects import FRESH

F = TypeVar("F")

HOOK = NewSink(name="hook", url="https://example.org/told", effect=Effect.ROUTE)
WAKE = NewSink(name="wake", url="sqs://wake-ups", effect=Effect.WAKE)


class Scripted:
    """A channel that remembers what it was told, and answers what `answer` says."""

    def __init__(self) -> None:
        self.rows: list[OutboxRow] = []
        self.calls: list[int] = []
        self.answer: Callable[[OutboxRow], Answer] = lambda _row: DELIVERED
        self.raises: Exception | None = None
        self.gate: asyncio.Event | None = None
        self.closed = 0

    async def tell(self, rows: Sequence[OutboxRow]) -> list[Answer]:
        self.calls.append(len(rows))
        if self.gate is not None:
            await self.gate.wait()
        if self.raises is not None:
            raise self.raises
        self.rows += rows
        return [self.answer(row) for row in rows]

    async def close(self) -> None:
        self.closed += 1

    @property
    def heard(self) -> list[tuple[str, str]]:
        """Task and kind, in the order in which they were told."""
        return [(row.task_id, row.event.kind if row.event is not None else "due") for row in self.rows]


class World:
    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock
        self.told: list[Told] = []
        self.bus = Bus(self.told.append)
        self.health = StoreHealth(self.bus)
        self.channels: dict[str, Scripted] = {}
        self.to_close: list[Channel] = []
        """Channels that a test opened itself."""

    def of(self, kind: type[F]) -> list[F]:
        return [told for told in self.told if isinstance(told, kind)]

    def channel(self, name: str = "hook") -> Scripted:
        return self.channels.setdefault(name, Scripted())

    def relay(self, *declared: NewSink, opening: Callable[[NewSink], Channel] | None = None) -> Relay:
        def opened(target: NewSink, _subscribers: Mapping[str, Subscriber]) -> Channel:
            return self.channel(target.name) if opening is None else opening(target)

        return Relay(declared, {}, self.bus, clock=self.clock, opening=opened)

    async def round(self, relay: Relay) -> bool:
        """Take, tell and record, once."""
        more = await relay.round(self.store, self.health)
        await relay.told()
        return more

    async def drain(self, relay: Relay) -> None:
        """Until a round has nothing to tell."""
        before = -1
        while sum(sum(channel.calls) for channel in self.channels.values()) > before:
            before = sum(sum(channel.calls) for channel in self.channels.values())
            await self.round(relay)

    async def submit(self, **fields: Any) -> str:
        new = NewTask(**({"id": ids.task_id(), "name": "t", "payload": "null"} | fields))
        (answer,) = await self.store.submit([new])
        return answer.id

    async def claim(self) -> Claim:
        request = ClaimRequest(worker_id="w", claim_id=ids.token(), lease_seconds=3600.0)
        (claim,) = (await self.store.claim(request)).claims
        return claim

    async def settle(self, claim: Claim, outcome: Outcome | None = None) -> None:
        (answer,) = await self.store.settle([Settlement(claim.lease, outcome or Completed("null"))])
        assert not isinstance(answer, HoldfastError), answer

    async def lived(self) -> str:
        """A task that was submitted, run and completed: three events."""
        task_id = await self.submit()
        await self.settle(await self.claim())
        return task_id

    async def rows(self, state: OutboxState | None = None) -> list[OutboxRow]:
        return await self.store.outbox(sink=None, state=state, limit=10_000, after=0)


@asynccontextmanager
async def world_on(store: str) -> AsyncIterator[World]:
    clock = VirtualClock()
    factory, remove = FRESH[store](clock)
    handle = factory()
    world = World(handle, clock)
    try:
        yield world
    finally:
        for opened in world.to_close:
            await opened.close()
        await handle.close()
        remove()


def on_each(store: str, use: Callable[[World], Any]) -> None:
    """Run a scenario on a fresh store of this kind."""

    async def main() -> None:
        async with world_on(store) as world:
            await use(world)

    asyncio.run(main())


async def until(condition: Callable[[], object]) -> None:
    """Let the loop go on until it is so; a test that waits longer has failed."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110  what is waited for has no event
            await asyncio.sleep(0.001)
