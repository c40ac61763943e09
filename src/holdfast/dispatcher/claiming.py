"""Claims that wait for something to claim.

However many wait for the same queues, they look one after the other, and one that finds nothing has looked for all of
them: a hint costs the store one claim that finds nothing, not one per caller. The same for the look that is the floor
under all hints, and for the moment at which the next task falls due.
"""

from __future__ import annotations

import asyncio
from datetime import datetime

from holdfast.clock import SYSTEM_CLOCK
from holdfast.dispatcher.bodies import Disconnected
from holdfast.dispatcher.hints import Hints
from holdfast.model.claim import Claimed, ClaimRequest
from holdfast.model.outcome import Released, Settlement
from holdfast.stores.protocol import Store

FLOOR_SECONDS = 1.0
SHORTEST_SECONDS = 0.001


class Line:
    """Those who wait for the same queues."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.dry = -1
        """The latest hint after which somebody looked and found nothing."""
        self._look_at = 0.0

    def found_nothing(self, number: int, pause: float) -> None:
        """By a claim that was made after this hint. The next task falls due after so many seconds."""
        self.dry = max(self.dry, number)
        self._look_at = SYSTEM_CLOCK.monotonic() + min(max(pause, SHORTEST_SECONDS), FLOOR_SECONDS)

    def is_dry(self, number: int) -> bool:
        """Somebody has looked since this hint, and nothing has fallen due since."""
        return self.dry >= number and self.rest > 0

    @property
    def rest(self) -> float:
        return self._look_at - SYSTEM_CLOCK.monotonic()


class Lines:
    def __init__(self, store: Store, hints: Hints, closing: asyncio.Future[None]) -> None:
        self._store = store
        self._hints = hints
        self._closing = closing
        self._lines: dict[tuple[str, ...] | None, Line] = {}

    async def claim(self, request: ClaimRequest, wait_seconds: float, gone: asyncio.Future[None]) -> Claimed:
        """What there is to claim, as soon as there is; empty after so many seconds. `gone`: the caller has hung up."""
        ends_at = SYSTEM_CLOCK.monotonic() + wait_seconds
        line = self._lines.setdefault(request.queues, Line())
        line.waiting += 1
        try:
            with self._hints.listened_to():
                claimed = await self._claim(request, line, ends_at, gone)
        finally:
            line.waiting -= 1
            if not line.waiting:
                self._lines.pop(request.queues, None)
        if gone.done():
            await self._give_back(claimed)
            raise Disconnected
        return claimed

    async def _claim(self, request: ClaimRequest, line: Line, ends_at: float, gone: asyncio.Future[None]) -> Claimed:
        """The first look is everybody's own: it may be the repetition of a claim whose answer was lost."""
        claimed = await self._look(request, line)
        while not claimed.claims and not self._closing.done() and not gone.done():
            left = ends_at - SYSTEM_CLOCK.monotonic()
            if left <= 0:
                break
            await self._hints.after(line.dry, min(line.rest, left), or_when=(gone, self._closing))
            async with line.lock:
                if not gone.done() and not line.is_dry(self._hints.number):
                    claimed = await self._look(request, line)
        return claimed

    async def _look(self, request: ClaimRequest, line: Line) -> Claimed:
        number = self._hints.number  # first: a hint that comes during the claim is not answered by it
        claimed = await self._store.claim(request)
        if not claimed.claims:
            line.found_nothing(number, 0.0 if claimed.more else await self._until(claimed.next_due_at))
        return claimed

    async def _until(self, next_due_at: datetime | None) -> float:
        if next_due_at is None:
            return FLOOR_SECONDS
        return (next_due_at - await self._store.now()).total_seconds()

    async def _give_back(self, claimed: Claimed) -> None:
        if claimed.claims:
            await self._store.settle([Settlement(claim.lease, Released()) for claim in claimed.claims])
