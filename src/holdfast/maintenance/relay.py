"""Drains the outbox (contract section 12): takes rows, tells their sinks, records how that went.

    declare ──► targets ──► take rows ──► channel.tell ──► record deliveries
                  ▲            │             one task per sink: one that is slow or down holds up no other
                  └── a wake-up, an end, a poll, or a batch that is through

Any number may do it at once: rows are held by who took them. A relay that dies between telling and recording costs a
repetition. A sink that cannot be reached rests longer and longer, and is then probed with a single row; its rows are
not blamed. When rows are tried again, and when they are dead, is decided in policy/relaying.py.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import HoldfastError, NotSupported
from holdfast.events.bus import Bus
from holdfast.events.facts import PartFailed, Relayed, RowDead, SinkAway, SinkBack, SinkFailed, SinkLeft
from holdfast.health import StoreHealth
from holdfast.model.outbox import Delivery, Effect, NewSink, OutboxRow
from holdfast.policy.relaying import next_try
from holdfast.sinks.declaring import declare
from holdfast.sinks.open import channel
from holdfast.sinks.protocol import TELL_SECONDS, Answer, Channel, Subscriber, unreached
from holdfast.stores.protocol import Store
from holdfast.wakeups.bell import Bell
from holdfast.wakeups.protocol import Wakeup

POLL_SECONDS = 1.0
LOOK_SECONDS = 1.0
"""Between two looks at who the sinks are."""
GATHER_SECONDS = 0.01
"""After a wake-up: what comes within so short a time is told in one go."""
BATCH = 100
HOLD_SECONDS = 60.0
"""More than TELL_SECONDS, and time to record."""
FIRST_REST_SECONDS, LONGEST_REST_SECONDS = 1.0, 60.0
LAST_SECONDS = 2.0
"""How long a relay that is stopped waits for what it is just telling."""

Opening = Callable[[NewSink, Mapping[str, Subscriber]], Channel]


class Relay:
    """`outside` is False in tests of our users: then nothing leaves the process."""

    def __init__(
        self,
        declared: Sequence[NewSink],
        subscribers: Mapping[str, Subscriber],
        bus: Bus,
        *,
        outside: bool = True,
        clock: Clock = SYSTEM_CLOCK,
        opening: Opening = channel,
    ) -> None:
        self._undeclared = list(declared)
        self._subscribers = subscribers
        self._bus = bus
        self._outside = outside
        self._clock = clock
        self._opening = opening
        self._posts: dict[str, _Post] = {}
        self._left: dict[str, str] = {}
        self._failed: dict[str, str] = {}
        self._looked_at: float | None = None
        self._bell: Bell | None = None
        self._asked = self._taking = False

    @property
    def busy(self) -> bool:
        """While somebody's `look_soon` is unanswered or something is being told. For other threads to read."""
        return bool(self._posts) and (self._asked or self._taking or self._telling)

    @property
    def _telling(self) -> bool:
        return any(post.task is not None for post in list(self._posts.values()))

    def look_soon(self) -> None:
        """From any thread."""
        self._asked = True
        bell = self._bell
        if bell is not None:
            bell.ring()

    async def begin(self, store: Store, health: StoreHealth) -> None:
        """Make known what this process's code wants to be told."""
        await health.persist(lambda: self._declare(store))
        if store.capabilities.outbox and not store.capabilities.maintained:
            await self._look(store, health)

    async def run(self, store: Store, health: StoreHealth) -> None:
        if not store.capabilities.outbox:
            await asyncio.Event().wait()
        try:
            while True:
                if not await self.round(store, health):
                    await self._wait(store)
        finally:
            await self._stop()

    async def round(self, store: Store, health: StoreHealth) -> bool:
        """Take what is due and begin to tell it; True if there may be more at once."""
        await self._look(store, health)
        asked, self._asked, self._taking = self._asked, False, True
        taken = 0
        try:
            taken = await self._take_due(store, health)
        finally:
            # What is being told has more behind it, perhaps: who asked wants another look after that.
            self._asked |= asked and (taken > 0 or self._telling)
            self._taking = False
        return taken == BATCH

    async def _take_due(self, store: Store, health: StoreHealth) -> int:
        now = self._clock.monotonic()
        free = [post for post in self._posts.values() if post.task is None and post.rests_until <= now]
        well = [post for post in free if post.away_since is None]
        taken = await self._take(store, health, well, BATCH) if well else 0
        for post in free:
            if post.away_since is not None:
                await self._take(store, health, [post], 1)
        return taken

    async def told(self) -> None:
        """Returns when nothing is being told any more."""
        while tasks := [post.task for post in self._posts.values() if post.task is not None]:
            await asyncio.wait(tasks)

    # Who the sinks are

    async def _declare(self, store: Store) -> None:
        self._undeclared = await declare(store, self._undeclared, self._tell_failed)

    def _tell_failed(self, sink: str, error: HoldfastError) -> None:
        if self._failed.get(sink) != str(error):
            self._failed[sink] = str(error)
            self._bus.publish(SinkFailed(sink, str(error)))

    async def _look(self, store: Store, health: StoreHealth) -> None:
        now = self._clock.monotonic()
        if self._looked_at is not None and now - self._looked_at < LOOK_SECONDS:
            return
        if self._undeclared:
            await health.persist(lambda: self._declare(store))
        targets = {target.name: target for target in await health.persist(store.targets)}
        self._looked_at = now
        for name, post in list(self._posts.items()):
            if targets.get(name) != post.target and post.task is None:
                del self._posts[name]
                await post.close()
        for name in [name for name in self._left if name not in targets]:
            del self._left[name]
        for target in targets.values():
            if target.name not in self._posts:
                self._open(target)

    def _open(self, target: NewSink) -> None:
        try:
            self._posts[target.name] = _Post(target, self._opened(target))
        except HoldfastError as error:
            if self._left.get(target.name) != str(error):
                self._left[target.name] = str(error)
                self._bus.publish(SinkLeft(target.name, str(error)))

    def _opened(self, target: NewSink) -> Channel:
        if not self._outside and target.name not in self._subscribers:
            raise NotSupported("nothing leaves a test")
        return self._opening(target, self._subscribers)

    # Telling

    async def _take(self, store: Store, health: StoreHealth, posts: Sequence[_Post], limit: int) -> int:
        names, hold = [post.target.name for post in posts], ids.token()
        rows = await health.persist(lambda: store.take_outbox(names, limit=limit, hold=hold, hold_seconds=HOLD_SECONDS))
        batches: dict[str, list[OutboxRow]] = defaultdict(list)
        for row in rows:
            batches[row.sink].append(row)
        for name, batch in batches.items():
            post = self._posts[name]
            post.task = asyncio.create_task(self._deliver(store, health, post, batch, hold))
        return len(rows)

    async def _deliver(
        self, store: Store, health: StoreHealth, post: _Post, rows: Sequence[OutboxRow], hold: str
    ) -> None:
        try:
            answers = await post.tell(rows)
            deliveries = [_delivery(row, hold, answer) for row, answer in zip(rows, answers, strict=True)]
            await health.persist(lambda: store.record_deliveries(deliveries))
            self._conclude(post, rows, answers)
        except Exception as error:  # the hold runs out, and somebody tells them again
            self._bus.publish(PartFailed("Relay", f"{type(error).__name__}: {error}"))
        finally:
            post.task = None
            if self._bell is not None:
                self._bell.ring()

    def _conclude(self, post: _Post, rows: Sequence[OutboxRow], answers: Sequence[Answer]) -> None:
        name, now = post.target.name, self._clock.monotonic()
        delivered = sum(answer.error is None for answer in answers)
        if delivered:
            self._bus.publish(Relayed(name, delivered))
        for row, answer in zip(rows, answers, strict=True):
            if answer.error is not None and next_try(row.tries, _delivery(row, "", answer)) is None:
                self._bus.publish(RowDead(name, row.id, row.task_id, answer.error))
        away = [answer.error for answer in answers if answer.error is not None and not answer.blame]
        if len(away) < len(answers):
            if post.away_since is not None:
                self._bus.publish(SinkBack(name, now - post.away_since))
            post.well()
        else:
            if post.away_since is None:
                self._bus.publish(SinkAway(name, away[0]))
            post.rest(now)

    # Waiting and stopping

    async def _wait(self, store: Store) -> None:
        """Only who serves a sink listens: to be idle costs those who would have to wake us."""
        if self._bell is None and self._posts:
            self._bell = Bell(self._news(store)).__enter__()
        elif self._bell is not None and not self._posts:
            self._silence()
        if self._bell is None:
            await asyncio.sleep(POLL_SECONDS)
        elif await self._bell.wait(POLL_SECONDS):
            await asyncio.sleep(GATHER_SECONDS)

    def _news(self, store: Store) -> Sequence[Wakeup]:
        routes = any(post.target.effect is Effect.ROUTE for post in self._posts.values())
        return [*store.wakeups, *(store.endings if routes else [])]

    def _silence(self) -> None:
        if self._bell is not None:
            self._bell.__exit__()
            self._bell = None

    async def _stop(self) -> None:
        self._silence()
        tasks = [post.task for post in self._posts.values() if post.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for post in self._posts.values():
            await post.close()
        self._posts.clear()
        self._looked_at = None


class _Post:
    """A sink that this process serves, and how it goes with it."""

    def __init__(self, target: NewSink, to: Channel) -> None:
        self.target = target
        self._channel = to
        self.task: asyncio.Task[None] | None = None
        self.rests_until = 0.0
        self.away_since: float | None = None
        self._rest_seconds = 0.0

    async def tell(self, rows: Sequence[OutboxRow]) -> list[Answer]:
        try:
            async with asyncio.timeout(TELL_SECONDS):
                return await self._channel.tell(rows)
        except Exception as error:
            return [unreached(error)] * len(rows)

    def rest(self, now: float) -> None:
        self.away_since = now if self.away_since is None else self.away_since
        self._rest_seconds = min(max(2 * self._rest_seconds, FIRST_REST_SECONDS), LONGEST_REST_SECONDS)
        self.rests_until = now + self._rest_seconds * (0.8 + 0.2 * ids.JITTER.random())

    def well(self) -> None:
        self.away_since, self._rest_seconds, self.rests_until = None, 0.0, 0.0

    async def close(self) -> None:
        with suppress(Exception):
            async with asyncio.timeout(LAST_SECONDS):
                await self._channel.close()


def _delivery(row: OutboxRow, hold: str, answer: Answer) -> Delivery:
    return Delivery(
        row_id=row.id,
        hold=hold,
        error=answer.error,
        blame=answer.blame,
        final=answer.final,
        delay_seconds=answer.delay_seconds,
    )
