"""Whose turn it is to plan, and what is under way meanwhile.

One change is planned at a time. Those that touch nothing of each other are written at the same time: while the servers
agree on one, the next is planned. Whoever has to know that nothing is only planned waits until it is quiet.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Turns:
    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._number = 0
        self._one_over = asyncio.Event()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        async with self._lock:
            yield

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """Nothing is under way, and nothing begins."""
        async with self._lock:
            await self.quiet()
            yield

    def begin(self) -> None:
        """Something is under way from here on, also when one's turn is over."""
        self._number += 1

    def end(self) -> None:
        self._number -= 1
        self._one_over.set()

    @property
    def busy(self) -> bool:
        return self._number > 0

    async def quiet(self) -> None:
        """Until what is under way is over; in one's turn, so that nothing begins meanwhile."""
        while self._number:
            self._one_over.clear()
            await self._one_over.wait()
