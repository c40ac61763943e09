"""Survives a store that is away: every part of a worker makes its calls through here.

A call that fails with StoreUnavailable is made again, after a capped and jittered pause; every verb is safe to repeat.
One line is told when the store goes and one when it is back, however many parts, on whichever thread, wait for it; and
one a minute while it stays away. What waiting does not heal (a wrong password) is raised if the store never answered:
then the worker was set up wrongly. Later it is waited for like everything else, since somebody may be at it.
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
TELL_AGAIN_SECONDS = 60.0


class StoreHealth:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._lock = threading.Lock()
        self._failing = 0
        self._away_since = 0.0
        self._told_at = 0.0
        self._answered = False

    @property
    def away(self) -> bool:
        """While any call fails. Others may succeed meanwhile (reads on a full disk), which does not make it whole."""
        return self._failing > 0

    async def persist(self, call: Callable[[], Awaitable[T]]) -> T:
        """The answer of `call`, however long the store takes to come back."""
        try:
            answer = await call()
            self._answered = True
            return answer
        except StoreClosed:
            raise
        except StoreUnavailable as error:
            if error.lasting and not self._answered:
                raise
            self._note_failing(error)
        answered = False
        try:
            answer = await self._retried(call)
            answered = True
            return answer
        finally:
            self._note_over(answered=answered)

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        pause = FIRST_PAUSE_SECONDS
        while True:
            await asyncio.sleep(pause * (0.5 + ids.JITTER.random()))
            try:
                return await call()
            except StoreClosed:
                raise
            except StoreUnavailable as error:
                self._note_still_failing(error)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _note_failing(self, error: StoreUnavailable) -> None:
        with self._lock:
            self._failing += 1
            first = self._failing == 1
            if first:
                self._away_since = self._told_at = SYSTEM_CLOCK.monotonic()
        if first:
            self._bus.publish(StoreAway(str(error)))

    def _note_still_failing(self, error: StoreUnavailable) -> None:
        now = SYSTEM_CLOCK.monotonic()
        with self._lock:
            again = now - self._told_at >= TELL_AGAIN_SECONDS
            if again:
                self._told_at = now
        if again:
            self._bus.publish(StoreAway(str(error)))

    def _note_over(self, *, answered: bool) -> None:
        with self._lock:
            self._failing -= 1
            back = self._failing == 0 and answered
        if back:
            self._bus.publish(StoreBack(SYSTEM_CLOCK.monotonic() - self._away_since))
