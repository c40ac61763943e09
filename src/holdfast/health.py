"""Survives a store that is away: every part of a worker makes its calls through here.

A call that fails with StoreUnavailable is made again, after a capped and jittered pause; every verb is safe to repeat.
One line is told when the store goes and one when it is back, however many parts, on whichever thread, wait for it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StoreClosed, StoreUnavailable
from holdfast.events.bus import Bus
from holdfast.events.facts import StoreAway, StoreBack

T = TypeVar("T")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 1.0


class StoreHealth:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lock = threading.Lock()
        self._away_since: float | None = None

    @property
    def away(self) -> bool:
        return self._away_since is not None

    async def persist(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of `call`, however long the store takes to come back."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            asked_at = SYSTEM_CLOCK.monotonic()
            try:
                answer = await call()
            except StoreClosed:
                raise
            except StoreUnavailable as error:
                self._note_away(error)
                await asyncio.sleep(pause * (0.5 + ids.JITTER.random()))
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            else:
                if self._away_since is not None:
                    self._note_back(asked_at)
                return answer

    def _note_away(self, error: StoreUnavailable) -> None:
        with self._lock:
            gone, self._away_since = self._away_since is None, self._away_since or SYSTEM_CLOCK.monotonic()
        if gone:
            self._bus.publish(StoreAway(str(error)))

    def _note_back(self, asked_at: float) -> None:
        with self._lock:
            since = self._away_since
            if since is None or asked_at < since:
                return  # an answer to a question from before the outage says nothing about now
            self._away_since = None
        self._bus.publish(StoreBack(SYSTEM_CLOCK.monotonic() - since))
