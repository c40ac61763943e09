"""Keeps the slots full: asks policy how many, claims them, and sleeps until there is reason to ask again.

Reasons: half of what it holds is gone, a wake-up, the next task falls due, or the poll interval (the floor) is over.
A claim whose reply was lost is made again under the same claim_id and gets the same leases.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence, Sized
from datetime import datetime

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.health import StoreHealth
from holdfast.model.claim import Claim, Claimed, ClaimRequest
from holdfast.policy.demand import demand, low_water
from holdfast.stores.protocol import Store
from holdfast.wakeups.bell import Bell
from holdfast.wakeups.protocol import Transport

HOARD_SECONDS = 0.5
"""A buffer from which nothing was started for so long is hoarding."""


class Claimer:
    def __init__(
        self,
        *,
        store: Store,
        health: StoreHealth,
        worker_id: str,
        queues: tuple[str, ...] | None,
        slots: int,
        lease_seconds: float,
        poll_seconds: float,
        running: Sized,
        hold: Callable[[Sequence[Claim]], None],
        start: Callable[[Claim], None],
        give_back: Callable[[list[Claim]], None],
        transport: Transport | None = None,
    ) -> None:
        self._store = store
        self._health = health
        self._worker_id = worker_id
        self._queues = queues
        self._slots = slots
        self._lease_seconds = lease_seconds
        self._poll_seconds = poll_seconds
        self._running = running
        self._hold = hold
        self._start = start
        self._give_back = give_back
        self._transport = transport
        self._buffer: deque[Claim] = deque()
        self._below_mark = asyncio.Event()
        self._rate = _Rate()
        self._mark = low_water(slots=slots, started_per_second=0.0)
        self.started = 0
        """How many runs so far."""
        self._inspection: asyncio.TimerHandle | None = None
        self._bell: Bell | None = None
        self._stopping = False
        self._asked_before = False
        """True while a claim is out that somebody's `look_again` came after: its answer may be old by then."""
        self.empty_handed = asyncio.Event()
        """Set whenever the store had nothing claimable."""

    @property
    def buffered(self) -> int:
        return len(self._buffer)

    def slot_freed(self) -> None:
        # Ends are counted, not starts: a worker whose slots hold long tasks must not claim ahead on their account.
        self._rate.ended += 1
        self._fill()

    def _fill(self) -> None:
        """Start what is buffered; ask for more once enough is gone."""
        while self._buffer and not self._stopping and len(self._running) < self._slots:
            self.started += 1
            self._start(self._buffer.popleft())
        if len(self._running) + len(self._buffer) <= self._mark:
            self._below_mark.set()

    def _wanted(self) -> int:
        rate = self._rate.measured()
        self._mark = low_water(slots=self._slots, started_per_second=rate)
        return demand(
            slots=self._slots, running=len(self._running), buffered=len(self._buffer), started_per_second=rate
        )

    def look_again(self) -> bool:
        """Claim once more even if nothing says so; True if there is something in hand already."""
        if self._buffer or self._running:
            return True
        self.empty_handed.clear()
        self._asked_before = True
        if self._bell is not None:
            self._bell.ring()
        return False

    def stop(self) -> None:
        """Ask for no more. A claim that is on its way is waited for: its tasks are in nobody else's hands."""
        self._stopping = True
        self._below_mark.set()
        if self._bell is not None:
            self._bell.ring()

    async def run(self) -> None:
        """Until stopped."""
        with Bell([*self._store.wakeups, *([] if self._transport is None else [self._transport])]) as bell:
            self._bell = bell
            while not self._stopping:
                wanted = self._wanted()
                if wanted == 0:
                    self._below_mark.clear()
                    await self._below_mark.wait()
                    continue
                self._asked_before = False
                claimed = await self._claim(wanted)
                if claimed.claims:
                    self._accept(claimed.claims)
                if len(claimed.claims) < wanted and not claimed.more:
                    if not claimed.claims and not self._asked_before:
                        self.empty_handed.set()
                    await bell.wait(await self._pause(claimed.next_due_at))

    async def _claim(self, wanted: int) -> Claimed:
        request = ClaimRequest(
            worker_id=self._worker_id,
            claim_id=ids.token(),
            queues=self._queues,
            limit=wanted,
            lease_seconds=self._lease_seconds,
        )
        asked = 0 if self._transport is None else self._transport.asking()
        claimed = await self._health.persist(lambda: self._store.claim(request))
        if self._transport is not None:
            short = len(claimed.claims) < wanted and not claimed.more
            self._transport.answered(asked, [claim.task_id for claim in claimed.claims], short=short)
        return claimed

    def _accept(self, claims: list[Claim]) -> None:
        self.empty_handed.clear()
        self._hold(claims)
        self._buffer.extend(claims)
        self._fill()
        if self._inspection is None:
            self._inspect_later()

    def _inspect_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._inspection = loop.call_later(HOARD_SECONDS, self._inspect, self.started)

    def _inspect(self, started_before: int) -> None:
        """What waits here behind tasks that turned out to be long is given back, for others to run."""
        self._inspection = None
        if self._buffer and self.started == started_before:
            self._give_back(self.give_up_buffer())
        elif self._buffer:
            self._inspect_later()

    async def _pause(self, next_due_at: datetime | None) -> float:
        if next_due_at is None:
            return self._poll_seconds
        now = await self._health.persist(self._store.now)
        return min(self._poll_seconds, max((next_due_at - now).total_seconds(), 0.001))

    def give_up_buffer(self) -> list[Claim]:
        """What was claimed and never started, for release."""
        claims = list(self._buffer)
        self._buffer.clear()
        return claims


class _Rate:
    """Tasks per second over the last moments."""

    def __init__(self) -> None:
        self.ended = 0
        self._per_second = 0.0
        self._since = SYSTEM_CLOCK.monotonic()

    def measured(self) -> float:
        now = SYSTEM_CLOCK.monotonic()
        elapsed = now - self._since
        if elapsed >= 0.02:
            fresh = min(1.0, elapsed / 0.1)  # what was measured a tenth of a second ago no longer counts
            self._per_second += fresh * (self.ended / elapsed - self._per_second)
            self.ended, self._since = 0, now
        return self._per_second
