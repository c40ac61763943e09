"""Hears what other processes tell, on a connection of its own, open while somebody listens and a little longer.

    connect ──► LISTEN ──► prove that it is heard ──► wake everybody ──► attend ──┐
       ▲                        │ swallowed: rest for long                        │ lost
       └────────────────────────┴─────────────────────────────────────────────────┘

Attending: while a listener is idle the session holds the topic's lock. Once it has the lock it wakes everybody: what
was committed before the lock was there nobody has told; what is committed later is told. Told too often, by many at
once, it lets go of the lock for a moment. A session that does not answer in time is given up. Polling goes on
underneath in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.stores.postgres.database import Connection
from holdfast.stores.postgres.pool import Seat, Session
from holdfast.stores.postgres.topics import Topic
from holdfast.wakeups.protocol import Wake

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.05, 0.5
ANSWER_SECONDS = 2.0
TICK_SECONDS = 2.0
"""So often a session is asked whether it is still there; the lock is given back one or two ticks after the last use."""
LINGER_TICKS = 10
FLOOD, FLOOD_SECONDS = 2, 0.01
"""More news than this within that time is a flood. One process alone cannot make it (see notifier.py)."""
FLOOD_REST_SECONDS = 0.1
SWALLOWED_SECONDS = 60.0
"""Until the next try after a proof that failed: a slow server looks the same."""
PROOF = "proof "
HINT = "LISTEN is accepted and nothing is heard, as by a pooler; connect to the server, or add pooler=transaction"

_LOCK = "SELECT pg_catalog.pg_advisory_lock_shared($1, $2)"
_UNLOCK = "SELECT pg_catalog.pg_advisory_unlock_shared($1, $2)"
_HERE = "SELECT 1"

log = logging.getLogger(__name__)


class Swallowed(HoldfastError):
    """LISTEN was accepted and nothing is heard."""


class Flood:
    """Counts news: are they too many in too short a time?"""

    def __init__(self) -> None:
        self._since = 0.0
        self._news = 0
        self.over_the_banks = False

    def rises(self) -> bool:
        now = SYSTEM_CLOCK.monotonic()
        if now - self._since > FLOOD_SECONDS:
            self._since, self._news = now, 0
        self._news += 1
        self.over_the_banks |= self._news > FLOOD
        return self.over_the_banks


class Listener:
    """A wake-up of one handle. `sender` is this process; `tell` sends a payload by another connection."""

    def __init__(self, seat: Seat, topic: Topic, *, label: str, sender: str, tell: Callable[[str], Awaitable[None]]):
        self._seat = seat
        self._topic = topic
        self._label = label
        self._sender = sender
        self._tell = tell
        self._wakes: tuple[Wake, ...] = ()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        self._conn: Connection | None = None
        self._proof = ""
        self._proven = asyncio.Event()
        self._idle = 0
        self._idle_lately = False
        self._held = False
        self._flood = Flood()
        self._said = "back"
        self.proofs = 0
        """How often it has tried whether it is heard."""

    # A wake-up

    def listen(self, wake: Wake) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        if loop is not self._loop:  # the first time, or what there was went with its loop
            self._loop, self._task, self._wakes, self._idle, self._held = loop, None, (), 0, False
            self._changed, self._proven = asyncio.Event(), asyncio.Event()
        self._wakes = (*self._wakes, wake)
        if self._task is None:
            self._task = loop.create_task(self._serve(), name="holdfast-listener")

        def stop() -> None:
            self._wakes = tuple(other for other in self._wakes if other is not wake)

        return stop

    def idle(self) -> None:
        self._idle += 1
        self._idle_lately = True
        if not self._held:
            self._changed.set()

    def busy(self) -> None:
        self._idle -= 1

    # Its life

    async def prove(self) -> None:
        """Raises Swallowed, or StoreUnavailable; returns when a connection is there that hears."""
        await self._seat.run(self._attach)
        self.proofs += 1
        self._proof = PROOF + ids.nonce()
        self._proven.clear()
        await self._tell(self._proof)
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._proven.wait()
        except TimeoutError:
            raise Swallowed(f"a NOTIFY on {self._label} was not heard within {ANSWER_SECONDS:g} s") from None

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None and self._loop is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait({task})
        elif task is not None and self._loop is not None and not self._loop.is_closed():
            # On its own loop, before the connection goes there: it would take that for a loss, and say so.
            self._loop.call_soon_threadsafe(task.cancel)
        await self._seat.close()

    async def _serve(self) -> None:
        """Until nobody has listened for a while."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                await self.prove()
                self._say("back")
                self._wake_all()
                pause = FIRST_PAUSE_SECONDS
                await self._attend()
            except Swallowed:
                self._say("swallowed", HINT)
                await self._seat.close()
                pause = SWALLOWED_SECONDS
            except HoldfastError as error:
                self._say("lost", str(error))
            finally:
                self._held = False
            if not self._wakes:
                break
            await asyncio.sleep(pause * (0.5 + ids.JITTER.random()))
            pause = min(2 * pause, LAST_PAUSE_SECONDS)
        self._task = None
        await self._seat.close()

    async def _attend(self) -> None:
        """Until nobody has listened for a while. Raises StoreUnavailable when the session is lost."""
        unused = 0
        while unused < LINGER_TICKS:
            if self._flood.over_the_banks:
                await self._take_cover()
            if self._idle and not self._held:
                await self._ask(_LOCK, *self._topic.lock)
                self._held = True
                self._wake_all()
            if not await self._stirred():
                await self._tick()
                unused = 0 if self._wakes else unused + 1

    async def _stirred(self) -> bool:
        """False when it was quiet for a tick."""
        try:
            async with asyncio.timeout(TICK_SECONDS):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        self._ensure_connected()
        return True

    async def _take_cover(self) -> None:
        if self._held:
            await self._ask(_UNLOCK, *self._topic.lock)
            self._held = False
        await asyncio.sleep(FLOOD_REST_SECONDS)
        self._flood = Flood()

    async def _tick(self) -> None:
        if self._held and not self._idle and not self._idle_lately:
            await self._ask(_UNLOCK, *self._topic.lock)
            self._held = False  # who became idle meanwhile is seen in the next round
        else:
            await self._ask(_HERE)
        self._idle_lately = False

    # Its connection

    async def _attach(self, session: Session) -> None:
        if session.conn is not self._conn:
            await session.conn.add_listener(self._topic.channel, self._hear)
            session.conn.add_termination_listener(self._lost)
            self._conn = session.conn

    async def _ask(self, sql: str, *values: int) -> None:
        async def work(session: Session) -> None:
            self._ensure_connected(session.conn)
            await session.conn.fetchval(sql, *values)

        self._ensure_connected()
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._seat.run(work)
        except TimeoutError:
            raise StoreUnavailable(f"{self._label} did not answer within {ANSWER_SECONDS:g} s") from None

    def _ensure_connected(self, conn: Connection | None = None) -> None:
        if self._conn is None or self._conn.is_closed() or (conn is not None and conn is not self._conn):
            raise StoreUnavailable(f"{self._label}: the connection that listens was lost")

    def _hear(self, _conn: Any, _pid: int, _channel: str, payload: str) -> None:
        if payload == self._proof:
            self._proven.set()
        elif payload != self._sender and not payload.startswith(PROOF):
            self._wake_all()
            if self._flood.rises():
                self._changed.set()

    def _lost(self, _conn: Any) -> None:
        self._changed.set()

    def _wake_all(self) -> None:
        for wake in self._wakes:
            wake()

    def _say(self, what: str, words: str = "") -> None:
        """Once per change, as a log line."""
        if what != self._said:
            self._said = what
            log.warning(
                "wakeups.%s store=%s%s", what, self._label, f": {words}; workers poll meanwhile" if words else ""
            )
