"""Drains the outbox (contract section 12): takes rows, tells their sinks, records how that went.

    declare ──► targets ──► take rows ──► channel.tell ──► record deliveries
                  ▲            │             one task per sink: one that is slow or down holds up no other
                  └── a wake-up, an end, a poll, or a batch that is through

Any number may do it at once: rows are held by who took them. A relay that dies between telling and recording costs a
repetition. A sink that cannot be reached rests longer and longer, and is then probed with a single row, or with a few
where that row may itself be why there was no answer; its rows are not blamed (posts.py). Rows that meet silence while
others are answered are told apart from these. When rows are tried again, and when they are dead, is decided in
policy/relaying.py.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import HoldfastError, NotSupported
from holdfast.events.bus import Bus
from holdfast.events.facts import PartFailed, SinkFailed, SinkLeft
from holdfast.health import StoreHealth
from holdfast.maintenance.batches import Batches, record
from holdfast.maintenance.posts import LAST_SECONDS, Post
from holdfast.maintenance.untold import give_up_left
from holdfast.model.outbox import Effect, NewSink, OutboxRow
from holdfast.policy.relaying import GONE_SECONDS
from holdfast.sinks.declaring import declare
from holdfast.sinks.open import channel
from holdfast.sinks.protocol import Channel, Subscriber, unreached
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
PROBES = 10
"""Rows at most that a sink is probed with whose first one met silence before."""
APART = 20
"""Rows at most that are told apart at once. Where there are more, they come again after CROWDED_SECONDS."""
CROWDED_SECONDS = 60.0
LEFT_SECONDS = 600.0
"""Between two looks at what waits for sinks that this process cannot serve."""

Opening = Callable[[NewSink, Mapping[str, Subscriber]], Channel]


class Left(NamedTuple):
    """A sink that this process cannot serve."""

    why: str
    since: float
    effect: Effect


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
        self._batches = Batches(bus, clock)
        self._posts: dict[str, Post] = {}
        self._left: dict[str, Left] = {}
        self._left_at: float | None = None
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
        return any(post.tasks for post in list(self._posts.values()))

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
        free = [post for post in self._posts.values() if post.free(now)]
        well = [post for post in free if post.away_since is None]
        taken = await self._take(store, health, well) if well else 0
        for post in free:
            if post.away_since is not None:
                await self._probe(store, health, post)
        return taken

    async def told(self) -> None:
        """Returns when nothing is being told any more."""
        while tasks := [task for post in self._posts.values() for task in post.tasks.values()]:
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
            if targets.get(name) != post.target and not post.tasks:
                del self._posts[name]
                await post.close()
        for name in [name for name in self._left if name not in targets]:
            del self._left[name]
        for target in targets.values():
            if target.name not in self._posts:
                self._open(target, now)
        await self._give_up_left(store, health, now)

    def _open(self, target: NewSink, now: float) -> None:
        try:
            self._posts[target.name] = Post(target, self._opened(target))
            self._left.pop(target.name, None)
        except HoldfastError as error:
            known = self._left.get(target.name)
            if known is None or known.why != str(error):
                since = now if known is None else known.since
                self._left[target.name] = Left(str(error), since, target.effect)
                self._bus.publish(SinkLeft(target.name, str(error)))

    def _opened(self, target: NewSink) -> Channel:
        if not self._outside and target.name not in self._subscribers:
            raise NotSupported("nothing leaves a test")
        return self._opening(target, self._subscribers)

    async def _give_up_left(self, store: Store, health: StoreHealth, now: float) -> None:
        """Wake-ups are not given up: one row per task, and gone with it."""
        if not self._outside or (self._left_at is not None and now - self._left_at < LEFT_SECONDS):
            return
        self._left_at = now
        for name, left in list(self._left.items()):
            if left.effect is Effect.ROUTE and now - left.since >= GONE_SECONDS:
                self._batches.note_given_up(name, await give_up_left(store, health, name, left.why), left.why)

    # Telling

    async def _take(self, store: Store, health: StoreHealth, posts: Sequence[Post]) -> int:
        hold = ids.token()
        rows = await self._taken(store, health, posts, BATCH, hold)
        batches: dict[str, list[OutboxRow]] = defaultdict(list)
        for row in rows:
            batches[row.sink].append(row)
        for name, batch in batches.items():
            post = self._posts[name]
            apart = [row for row in batch if post.apart(row)]
            self._begin(store, health, post, [row for row in batch if not post.apart(row)], hold, apart=False)
            room = 0 if True in post.tasks else APART
            self._begin(store, health, post, apart[:room], hold, apart=True)
            await self._give_back(store, health, apart[room:], hold)
        return len(rows)

    async def _probe(self, store: Store, health: StoreHealth, post: Post) -> None:
        hold = ids.token()
        rows = await self._taken(store, health, [post], 1, hold)
        if rows and post.silences.met_by(rows[0].id):
            rows += await self._taken(store, health, [post], PROBES - 1, hold)
        self._begin(store, health, post, rows, hold, apart=False)

    async def _taken(
        self, store: Store, health: StoreHealth, posts: Sequence[Post], limit: int, hold: str
    ) -> list[OutboxRow]:
        names = [post.target.name for post in posts]
        return await health.persist(lambda: store.take_outbox(names, limit=limit, hold=hold, hold_seconds=HOLD_SECONDS))

    async def _give_back(self, store: Store, health: StoreHealth, rows: Sequence[OutboxRow], hold: str) -> None:
        answers = [
            replace(unreached(row.last_error or "others go first"), delay_seconds=CROWDED_SECONDS) for row in rows
        ]
        if answers:
            await record(store, health, rows, answers, hold)

    def _begin(
        self, store: Store, health: StoreHealth, post: Post, rows: Sequence[OutboxRow], hold: str, *, apart: bool
    ) -> None:
        if rows:
            post.tasks[apart] = asyncio.create_task(self._deliver(store, health, post, rows, hold, apart=apart))

    async def _deliver(
        self, store: Store, health: StoreHealth, post: Post, rows: Sequence[OutboxRow], hold: str, *, apart: bool
    ) -> None:
        try:
            await self._batches.deliver(store, health, post, rows, hold, apart=apart)
        except Exception as error:  # the hold runs out, and somebody tells them again
            self._bus.publish(PartFailed("Relay", f"{type(error).__name__}: {error}"))
        finally:
            del post.tasks[apart]
            if self._bell is not None:
                self._bell.ring()

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
        tasks = [task for post in self._posts.values() for task in post.tasks.values()]
        if tasks:
            await asyncio.wait(tasks, timeout=LAST_SECONDS)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for post in self._posts.values():
            await post.close()
        self._posts.clear()
        self._looked_at = None
