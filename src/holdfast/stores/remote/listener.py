"""Hears from a dispatcher that there may be something new: long-polls, one at a time, while somebody is idle.

    ask for the mark ──► wake everybody ──► ask what came after the mark, for as long as 20 s ──► wake, ask again …
           ▲                                                │ lost
           └────────────── longer and longer pauses ◄───────┘

A mark says up to where this handle has heard. What happened before the first one nobody has told, so everybody is woken
once; from then on nothing falls between two questions. Another dispatcher does not know the mark and gives its own:
one wake-up more. If answers come faster than anybody can work, it rests a moment. Polling goes on underneath.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError
from holdfast.wakeups.protocol import Wake

WAIT_SECONDS = 20.0
"""How long a dispatcher keeps a question that nothing answers."""
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.05, 2.0
LINGER_SECONDS = 5.0
FLOOD, FLOOD_SECONDS = 30, 0.1
FLOOD_REST_SECONDS = 0.1

Ask = Callable[[str | None, float], Awaitable[str]]
"""From the mark (None: the first time) and the patience to the new mark; the same if nothing has happened."""

log = logging.getLogger(__name__)


class Listener:
    """A wake-up of one handle."""

    def __init__(self, ask: Ask, *, label: str) -> None:
        self._ask = ask
        self._label = label
        self._wakes: tuple[Wake, ...] = ()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        self._idle = 0
        self._closed = False
        self._mark: str | None = None
        self._lost = False
        self._answers = 0
        self._since = 0.0

    # A wake-up

    def listen(self, wake: Wake) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the first time, or what there was went with its loop
            self._loop, self._task, self._wakes, self._idle = loop, None, (), 0
            self._mark, self._wanted = None, asyncio.Event()
        self._wakes = (*self._wakes, wake)

        def stop() -> None:
            self._wakes = tuple(other for other in self._wakes if other is not wake)

        return stop

    def idle(self) -> None:
        self._idle += 1
        self._wanted.set()
        if self._task is None and self._loop is not None and not self._closed:
            self._task = self._loop.create_task(self._serve(), name="holdfast-remote-listener")

    def busy(self) -> None:
        self._idle -= 1

    async def close(self) -> None:
        self._closed = True
        task, self._task = self._task, None
        if task is None or self._loop is None:
            return
        if self._loop is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait({task})
        elif not self._loop.is_closed():
            self._loop.call_soon_threadsafe(task.cancel)

    # Its life

    async def _serve(self) -> None:
        """Until nobody has been idle for a while."""
        pause = FIRST_PAUSE_SECONDS
        while await self._is_wanted():
            try:
                mark = await self._ask(self._mark, WAIT_SECONDS)
            except HoldfastError as error:
                self._say_lost(str(error))
                await asyncio.sleep(pause * (0.5 + ids.JITTER.random()))
                pause = min(2 * pause, LAST_PAUSE_SECONDS)
                continue
            self._say_back()
            pause = FIRST_PAUSE_SECONDS
            if mark != self._mark:
                self._mark = mark
                self._wake_all()
                await self._rest_in_a_flood()
        self._task, self._mark = None, None

    async def _is_wanted(self) -> bool:
        if self._idle > 0:
            return True
        self._wanted.clear()
        try:
            async with asyncio.timeout(LINGER_SECONDS):
                await self._wanted.wait()
        except TimeoutError:
            return self._idle > 0
        return True

    async def _rest_in_a_flood(self) -> None:
        now = SYSTEM_CLOCK.monotonic()
        if now - self._since > FLOOD_SECONDS:
            self._since, self._answers = now, 0
        self._answers += 1
        if self._answers > FLOOD:
            self._answers = 0
            await asyncio.sleep(FLOOD_REST_SECONDS)

    def _wake_all(self) -> None:
        for wake in self._wakes:
            wake()

    def _say_lost(self, words: str) -> None:
        """Once per change, as a log line; and what is told while nobody hears is made good by a wake-up afterwards."""
        self._mark = None
        if not self._lost:
            self._lost = True
            log.warning("wakeups.lost store=%s: %s; workers poll meanwhile", self._label, words)

    def _say_back(self) -> None:
        if self._lost:
            self._lost = False
            log.warning("wakeups.back store=%s", self._label)
