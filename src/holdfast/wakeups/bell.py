"""Wake-ups from any thread, as something that one event loop can wait for. Polling is the waiter's own business."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from holdfast.wakeups.protocol import Wakeup


class Bell:
    """Rings in this event loop when one of these wake-ups does."""

    def __init__(self, wakeups: Sequence[Wakeup]) -> None:
        self._wakeups = wakeups
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._stops: list[Callable[[], None]] = []

    def __enter__(self) -> Bell:
        self._stops = [wakeup.listen(self.ring) for wakeup in self._wakeups]
        return self

    def __exit__(self, *_: object) -> None:
        for stop in self._stops:
            stop()

    def ring(self) -> None:
        """From any thread."""
        try:
            self._loop.call_soon_threadsafe(self._rung.set)
        except RuntimeError:
            return  # the loop has closed; nobody is left to wake

    async def wait(self, timeout: float) -> bool:
        """Until it rings (True), or for `timeout` seconds. Who waits here is idle."""
        for wakeup in self._wakeups:
            wakeup.idle()
        try:
            async with asyncio.timeout(timeout):
                await self._rung.wait()
        except TimeoutError:
            return False
        finally:
            for wakeup in self._wakeups:
                wakeup.busy()
        self._rung.clear()
        return True
