"""Which server takes writes, as far as this process knows: one Primary per URL, for all handles and threads on it.

Where a URL names several hosts, they are asked in turn, first the one that was right last time; the next one a moment
later even if the former has not answered, because a machine that is switched off never answers. The driver alone would
spend its whole time on the first such host.

A connection to a server that takes no writes any more (a demoted primary, a standby behind a moved address) may live on
for ever and show what was true once. Whoever meets one says so here, and every connection made before is given up
at its next use: the writer's, the reader's, the keeper's, and those of other handles.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

from holdfast.stores.postgres import faults

HEAD_START_SECONDS = 0.3


class _Link(Protocol):
    def terminate(self) -> None: ...


L = TypeVar("L", bound=_Link)


class Primary:
    """Without locks: what threads write here at the same moment is the same, and a fork leaves none held."""

    def __init__(self, hosts: tuple[str, ...]) -> None:
        self._hosts = hosts
        self.moves = 0
        """How often it has moved. A connection is good for as long as this is what it was when it was made."""

    def left(self, moves: int) -> None:
        """The server that was the primary after so many moves is so no more."""
        if self.moves == moves:  # else somebody else has said so already
            self.moves = moves + 1

    async def reached(self, connect: Callable[[str], Awaitable[L]]) -> L:
        """A connection to the host that takes writes; what the most telling one raised if none does."""
        if len(self._hosts) == 1:
            return await connect(self._hosts[0])
        race = _Race(connect)
        try:
            host, link = await race.won(self._hosts)
        finally:
            await race.over()
        self._hosts = (host, *(other for other in self._hosts if other != host))
        return link


class _Race(Generic[L]):
    """Tries to connect to several hosts, of which one is kept."""

    def __init__(self, connect: Callable[[str], Awaitable[L]]) -> None:
        self._connect = connect
        self._tries: dict[asyncio.Task[L], str] = {}
        self._errors: list[BaseException] = []

    async def won(self, hosts: tuple[str, ...]) -> tuple[str, L]:
        for host in hosts:
            self._tries[asyncio.ensure_future(self._connect(host))] = host
            winner = await self._first(HEAD_START_SECONDS)
            if winner is not None:
                return winner
        while self._tries:
            winner = await self._first(None)
            if winner is not None:
                return winner
        raise max(self._errors, key=faults.telling)

    async def _first(self, seconds: float | None) -> tuple[str, L] | None:
        done, _ = await asyncio.wait(self._tries, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            error = task.exception()
            if error is None:
                return self._tries.pop(task), task.result()
            del self._tries[task]
            self._errors.append(error)
        return None

    async def over(self) -> None:
        """Those still under way are given up, also one that has arrived by now."""
        for task in self._tries:
            task.cancel()
        for ended in await asyncio.gather(*self._tries, return_exceptions=True):
            if not isinstance(ended, BaseException):
                ended.terminate()


_known: dict[tuple[str, ...], Primary] = {}


def primary(hosts: tuple[str, ...]) -> Primary:
    return _known.setdefault(hosts, Primary(hosts))
