"""The store's wake-ups, for many calls that wait at once.

One listener for all of them. Hints are numbered: who says which one it has seen is told at once of any that came since,
so nothing is missed between two calls. While nobody waits, and a little longer, nobody listens; whoever comes then is
told at once, since anything may have happened.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from holdfast import ids
from holdfast.wakeups.protocol import Wakeup

LINGER_SECONDS = 5.0


class Hints:
    def __init__(self, wakeups: Sequence[Wakeup]) -> None:
        self._wakeups = wakeups
        self._loop = asyncio.get_running_loop()
        self._nonce = ids.nonce()
        self._stops: list[Callable[[], None]] = []
        self._users = 0
        self._rest: asyncio.TimerHandle | None = None
        self._rung: asyncio.Future[None] = self._loop.create_future()
        self.number = 0
        """Of the latest hint."""

    @property
    def seen(self) -> str:
        """The number, as callers hand it back: to this dispatcher or to another, where it says nothing."""
        return f"{self._nonce}-{self.number}"

    def number_of(self, seen: str | None) -> int:
        nonce, _, number = (seen or "").partition("-")
        return int(number) if nonce == self._nonce and number.isdecimal() and len(number) < 20 else -1

    @property
    def next(self) -> asyncio.Future[None]:
        """Done with the next hint."""
        return self._rung

    @contextmanager
    def listened_to(self) -> Iterator[None]:
        """Hints are noticed while anybody is in here."""
        self._enter()
        try:
            yield
        finally:
            self._leave()

    async def after(self, number: int, seconds: float, *, or_when: Sequence[asyncio.Future[Any]]) -> bool:
        """Until there is a later hint than this one (True); at most so long, or until one of these is done."""
        if self.number <= number and seconds > 0:
            await asyncio.wait((self._rung, *or_when), timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        return self.number > number

    def close(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
        self._stop()

    def _enter(self) -> None:
        self._users += 1
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
        if not self._stops:
            self._stops = [wakeup.listen(self._wake) for wakeup in self._wakeups]
            for wakeup in self._wakeups:
                wakeup.idle()
            self._ring()

    def _leave(self) -> None:
        self._users -= 1
        if self._users == 0:
            self._rest = self._loop.call_later(LINGER_SECONDS, self._stop)

    def _stop(self) -> None:
        for wakeup in self._wakeups if self._stops else ():
            wakeup.busy()
        for stop in self._stops:
            stop()
        self._stops = []

    def _wake(self) -> None:
        """From any thread."""
        try:
            self._loop.call_soon_threadsafe(self._ring)
        except RuntimeError:
            return  # the loop has closed; nobody is left to wake

    def _ring(self) -> None:
        self.number += 1
        rung, self._rung = self._rung, self._loop.create_future()
        rung.set_result(None)
