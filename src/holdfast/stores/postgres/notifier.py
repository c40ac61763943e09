"""Tells other processes, after a commit, that there is something new.

The first time at once, then no more often than the gap, with a last time for what came within it. The gap is longer
where nobody was idle: whoever becomes so looks for itself. What gets lost costs latency, since everybody also polls.

A NOTIFY makes commits wait for each other, so those of a stream carry none. One that comes after silence may carry it,
and spares its task a way to the server and back.
"""

from __future__ import annotations

import asyncio

from holdfast.errors import StoreUnavailable
from holdfast.stores.postgres.pool import Seat, Session
from holdfast.stores.postgres.topics import News, Topic

HEARD_GAP_SECONDS, UNHEARD_GAP_SECONDS = 0.005, 0.1
SILENCE_SECONDS = 0.015
"""After so long without anything new, a commit may tell of itself."""
CLOSE_SECONDS = 1.0


class Notifier:
    """Of one handle, for one topic. `sender` names the process: it does not have to hear itself."""

    def __init__(self, seat: Seat, topic: Topic, sender: str) -> None:
        self._seat = seat
        self._topic = topic
        self._sender = sender
        self._loop: asyncio.AbstractEventLoop | None = None
        self._due = False
        self._announced_at = 0.0
        self._telling: asyncio.Task[None] | None = None
        self._rest: asyncio.TimerHandle | None = None

    def announce(self) -> None:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the first time, or what was under way went with its loop
            self._loop, self._telling, self._rest = loop, None, None
        self._announced_at = loop.time()
        self._due = True
        if self._telling is None and self._rest is None:
            self._start(loop)

    def for_the_commit(self) -> News | None:
        """What the next commit may tell; told() is to follow."""
        loop = asyncio.get_running_loop()
        silent = loop is not self._loop or loop.time() - self._announced_at >= SILENCE_SECONDS
        if not silent or self._telling is not None or self._rest is not None:
            return None
        return News(self._topic.channel, self._sender, *self._topic.lock)

    def told(self, *, heard: bool) -> None:
        """A commit has told of itself."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._loop, self._telling, self._rest = loop, None, None
        self._announced_at = loop.time()
        if self._telling is None and self._rest is None:
            self._rest_a_while(loop, heard=heard)

    async def close(self) -> None:
        """Tells what is still due: a program may end right after its submit."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            return
        await self._told()
        if self._due:
            self._start(loop)
            await self._told()

    async def tell(self, payload: str) -> None:
        """In any case."""

        async def work(session: Session) -> None:
            await session.conn.fetchval("SELECT pg_catalog.pg_notify($1, $2)", self._topic.channel, payload)

        await self._seat.run(work)

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._due = False
        self._telling = loop.create_task(self._tell_the_idle(loop), name="holdfast-notifier")

    async def _told(self) -> None:
        """What is under way is over, and nothing follows by itself."""
        if self._telling is not None:
            _, late = await asyncio.wait({self._telling}, timeout=CLOSE_SECONDS)
            for task in late:
                task.cancel()
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None

    async def _tell_the_idle(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            somebody = await self._seat.run(self._tell_if_idle)
        except StoreUnavailable:
            somebody = False  # after the outage every listener looks for itself
        self._telling = None
        self._rest_a_while(loop, heard=somebody)

    def _rest_a_while(self, loop: asyncio.AbstractEventLoop, *, heard: bool) -> None:
        self._rest = loop.call_later(HEARD_GAP_SECONDS if heard else UNHEARD_GAP_SECONDS, self._rested, loop)

    async def _tell_if_idle(self, session: Session) -> bool:
        return bool(await session.value("tell", *self._topic.lock, self._topic.channel, self._sender))

    def _rested(self, loop: asyncio.AbstractEventLoop) -> None:
        self._rest = None
        if self._due:
            self._start(loop)
