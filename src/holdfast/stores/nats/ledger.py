"""How anything changes: plan on the replica, write by compare-and-set, or catch up and plan again.

    replica ──act──► Changes ──Plan──► one atomic batch ──► acknowledged: commit
       ▲                                     │
       └── undo, see what others wrote ◄── refused: the images that it was planned on are not the last any more

The batch decides, never the replica: a plan made on old knowledge is refused. An answer that changes nothing ("no such
task", "lease lost", "nothing to claim") is not tested by a write, so it is only given on fresh knowledge: by then the
replica has seen all that the leader had when it was asked. One change of a handle is in flight at a time; handles do
not wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TypeVar

import msgspec

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import HoldfastError, StoreClosed, StoreUnavailable
from holdfast.model.task import NewTask
from holdfast.policy.backoff import Rng
from holdfast.stores.nats.changes import Changes, Rule, Tally, added
from holdfast.stores.nats.feed import Feed
from holdfast.stores.nats.images import Image, Kept, decode_image, encode
from holdfast.stores.nats.linked import Lacking
from holdfast.stores.nats.members import Members, homes
from holdfast.stores.nats.messages import MARKER_TTL, Plan
from holdfast.stores.nats.options import Options
from holdfast.stores.nats.outage import Outage
from holdfast.stores.nats.packs import Packs
from holdfast.stores.nats.planner import Planner
from holdfast.stores.nats.presence import Presence
from holdfast.stores.nats.reader import Found, Reader
from holdfast.stores.nats.replica import Replica
from holdfast.stores.nats.rows import LEFT, TABLES
from holdfast.stores.nats.specs import Known, Specs
from holdfast.stores.nats.stream import Stream
from holdfast.stores.nats.subjects import REPAIRED, Subjects, head_of, text
from holdfast.stores.nats.wire import Conflict, Message, Wire
from holdfast.wakeups.in_process import Hub

T = TypeVar("T")

TRIES = 200
"""Each time somebody else was faster: the system as a whole goes on."""
DOUBT_TRIES = 30
"""Refused so often, the replica may have missed something."""
CATCH_UP_SECONDS = 2.0
FORGIVE_MOST = 900

_rule = msgspec.msgpack.Decoder(Rule)
_tally = msgspec.msgpack.Decoder(Tally)


def _whole(answer: object) -> bool:
    """Nothing of it is a refusal."""
    return not isinstance(answer, list) or not any(isinstance(one, HoldfastError) for one in answer)


class Ledger:
    def __init__(self, options: Options, clock: Clock, rng: Rng) -> None:
        self.options = options
        self.subjects = Subjects(options.prefix)
        self.wire = Wire(options)
        self.stream = Stream(self.wire, options, self.subjects)
        self.reader = Reader(self.wire, self.stream, self.subjects.origin)
        self.specs = Specs(self.reader, self.subjects)
        self.presence = Presence(self.wire, self.subjects, options.evict_grace_seconds)
        self.packs = Packs(self.wire, self.reader, self.subjects)
        self.clock: Clock = self.stream.clock if clock is SYSTEM_CLOCK else clock
        self.replica = Replica(self.clock)
        self.acts = Planner(self.replica, rng)
        self.members = Members(self.reader, self.subjects, self.specs, self.replica)
        self.news, self.ends = Hub(), Hub()
        self.handle = ids.token_hex(8)
        self._counts_as = self.handle
        """Under which name it tallies what it ends."""
        self._feed = Feed(self.wire, self.stream.name, (self.subjects.replicated,), self._seen, self._anew)
        self._outage = Outage()
        self._opened = self._follows = self._hears = self._closed = False
        self._opening, self._lock = asyncio.Lock(), asyncio.Lock()
        self._wrote = 0
        """The last that was written without the replica."""
        self._anews, self._whole_since = 0, 0
        """How often everything was read anew, and the last of these of which the end was seen."""
        self._rereading: asyncio.Task[None] | None = None
        self._repaired = 0
        self.wire.lost, self.wire.back = self._lost, self._feed.disturb
        self.stream.replaced, self.stream.confirm = self._feed.forget, self._mark

    # Opening and closing

    async def ready(self) -> None:
        if self._closed:
            raise StoreClosed(f"{self.options.label} was closed; open it again to go on")
        if not self._opened:
            async with self._opening:
                if not self._opened:
                    await self.stream.open()
                    self._opened = True

    async def close(self) -> None:
        self._closed = True
        if self._rereading is not None:
            self._rereading.cancel()
        if self._follows:
            await self._feed.close()
        await self.wire.close()

    def _lost(self) -> None:
        self._feed.disturb()
        if self._opened:
            self._outage.failed(self.clock.micros())

    async def hear_ends(self) -> None:
        """From now on `ends` tells of tasks that end."""
        if not self._hears:
            await self.wire.listen(self.subjects.ended, self._ended)
            self._hears = True

    async def _ended(self, _message: object) -> None:
        self.ends.announce()

    async def fresh(self) -> None:
        """The replica has seen all that was acknowledged before this was called."""
        await self.ready()
        try:
            while True:
                anews = self._anews
                await self._catch_up()
                if anews == self._anews:
                    self._whole_since = anews
                    return
        except StoreUnavailable:
            self._outage.failed(self.clock.micros())
            raise

    @asynccontextmanager
    async def steady(self) -> AsyncIterator[None]:
        """The replica is fresh, and shows nothing that is only planned."""
        await self.fresh()
        async with self._lock:
            yield

    async def _catch_up(self) -> None:
        if not self._follows:
            await self._follow()
            return
        last = await self.stream.last()
        if not await self._feed.reached(last, CATCH_UP_SECONDS):
            await self._see(await self._mark())

    async def _follow(self) -> None:
        """The mark is made first: later, the word that it was written would come behind all that there is to read."""
        mark = await self._mark()
        async with self._opening:
            if not self._follows:
                self._repaired = mark
                await self._feed.start()
                self._follows = True
        await self._see(mark)

    async def _mark(self) -> int:
        """What was last may be gone already; a message of our own will come."""
        return await self.wire.write([Message(self.subjects.mark(self.handle), b"", None, MARKER_TTL)])

    async def _see(self, sequence: int) -> None:
        if not await self._feed.reached(sequence, self.options.timeout_seconds):
            raise StoreUnavailable(f"{self.options.label}: the stream cannot be followed at the moment")

    def doubt(self) -> None:
        """The replica may have missed something: read everything anew."""
        self._feed.forget()

    async def write(self, messages: Sequence[Message]) -> None:
        """Without the replica. Its next change has seen it."""
        self._wrote = max(self._wrote, await self.wire.write(messages))

    # What others write

    def _anew(self) -> None:
        self._anews += 1
        self.replica.clear()

    @property
    def _partial(self) -> bool:
        """The replica is being read anew: a limit must not be judged by the part that is there."""
        return self._whole_since != self._anews

    def _seen(self, subject: str, body: bytes, seq: int) -> None:
        kind, _, rest = subject.removeprefix(f"{self.subjects.prefix}.r.").partition(".")
        if kind == "live":
            task_id = text(rest.rpartition(".")[2])
            if not body:
                self.replica.drop(task_id, seq)
                return
            record = self.replica.records.get(task_id)
            if not isinstance(record, Kept) or seq > record.rev:
                self._place(task_id, decode_image(body), seq)
        elif kind == "queue":
            self.replica.place_rule(text(rest), _rule.decode(body), seq)
            self.news.announce()
        elif kind == "tally":
            self.replica.place_tally(rest, _tally.decode(body) if body else None, seq)
        elif kind == "head":
            self.replica.heads.add(rest)
        elif kind == "mark" and rest == REPAIRED:
            self._read_anew(seq)
        elif kind in TABLES:
            self.replica.place_row(kind, text(rest), TABLES[kind].decode(body) if body else None, seq)

    def _place(self, task_id: str, image: Image, seq: int) -> None:
        if image.status.terminal:
            self.replica.place_ended(task_id, image, seq - image.back)
        else:
            self.replica.place(task_id, image, seq)
            self.news.announce()

    def _read_anew(self, seq: int) -> None:
        """Somebody has repaired the stream (repair.py): what is known of it may be wrong. Between two changes."""
        if seq <= self._repaired:
            return
        self._repaired = seq

        async def reread() -> None:
            async with self._lock:
                self._feed.forget()
                with suppress(StoreUnavailable):  # then the feed goes on trying
                    await self._see(await self._mark())

        self._rereading = asyncio.create_task(reread())

    # Changes

    async def change(
        self,
        act: Callable[[int], T],
        *,
        tasks: Sequence[str] = (),
        follow_ups: Sequence[NewTask] = (),
        sure: Callable[[T], bool] = _whole,
        extra: Callable[[Plan], None] = lambda _: None,
        fresh: bool = False,
        once: bool = False,
    ) -> T:
        """Make an act on the replica true.

        `tasks`: those it names, which may have ended. `follow_ups`: those it may submit. `sure`: may this answer, with
        a write, be given without a look at what the leader has? `extra` adds to what is written. `once`: where it was
        refused, Conflict.
        """
        await self.ready()
        async with self._lock:
            if fresh or not self._follows or self._partial or self._outage.suspected:
                await self.fresh()
                await self._forgive()
                fresh = True
            elif not await self._feed.reached(self._wrote, CATCH_UP_SECONDS):
                await self.fresh()
            self.acts.known = await self.specs.known(follow_ups) if fresh and follow_ups else Known()
            for tried in range(TRIES):
                done = await self._with_all(tasks, partial(self._once, act, sure, extra, fresh=fresh), once=once)
                if done is not None:
                    return done[0]
                if tried == DOUBT_TRIES:
                    self.doubt()
                await self.fresh()
                fresh = True
                if follow_ups:
                    self.acts.known = await self.specs.known(follow_ups)
                if tried > 2:
                    await asyncio.sleep(ids.JITTER.random() * 0.002 * tried)
            raise StoreUnavailable(f"{self.options.label}: too many others change the same tasks at the same time")

    async def _with_all(
        self, tasks: Sequence[str], attempt: Callable[[], Awaitable[tuple[T] | None]], *, once: bool
    ) -> tuple[T] | None:
        """With these tasks at hand, and with whatever of their runs the act turns out to need."""
        loaded: list[str] = []
        try:
            while True:
                guests = await self._invite(tasks)
                try:
                    return await attempt()
                except Conflict:
                    if once:
                        raise
                    return None
                except Lacking as lacking:
                    loaded.append(lacking.run_id)
                    await self.members.load(lacking.run_id, self.fresh)
                finally:
                    self._dismiss(guests)
        finally:
            for run_id in loaded:
                self.replica.keep_if_live(run_id)

    async def _once(
        self, act: Callable[[int], T], sure: Callable[[T], bool], extra: Callable[[Plan], None], *, fresh: bool
    ) -> tuple[T] | None:
        """The answer; None: not to be given on this knowledge."""
        if self._partial:
            return None
        changes = self.replica.begin_change()
        plan = Plan(self.subjects, self.acts.known)
        refusal: HoldfastError | None = None
        try:
            answer = act(self.clock.micros())
            extra(plan)
        except HoldfastError as error:
            refusal = error  # what was done before it stands: a lease that had expired is reaped
        except BaseException:
            self.replica.undo(changes)
            raise
        written = bool(changes or plan.messages)
        if not fresh and (not written or refusal is not None or not sure(answer) or changes.fails_fast):
            self.replica.undo(changes)
            return None
        if written:
            await self._write(changes, plan)
        else:
            self.replica.undo(changes)
        if refusal is not None:
            raise refusal
        return (answer,)

    async def _write(self, changes: Changes, plan: Plan) -> None:
        for name in changes.left:
            plan.row(LEFT, name, self.replica.left.get(name), None)  # who changes it touches its task
        plan.change(changes, self.replica)
        self._add_queues(changes, plan)
        heads = self._add_heads(changes, plan)
        tally = self._tallied(changes, plan)
        try:
            last = await self._written(plan)
        except BaseException as error:
            self.replica.undo(changes)
            if isinstance(error, StoreUnavailable):
                self._outage.failed(self.clock.micros())
            raise
        self.replica.commit(changes, plan.revs(last), plan.line_revs(last))
        for table, key, row, rev in plan.rows(last):
            self.replica.place_row(table, key, row, rev)
        self.replica.heads |= heads
        if tally is not None:
            self.replica.place_tally(self._counts_as, tally, last)
        if changes.wakes:
            self.news.announce()

    async def _written(self, plan: Plan) -> int:
        """The feed passes it over: a replica that has planned it knows it."""
        steps: set[str] = set()

        def named(step: str) -> None:
            steps.add(step)
            self._feed.under_way(step)

        try:
            last = await self.wire.write(plan.messages, named)
        except Conflict:
            self._feed.refused(steps)
            raise
        except BaseException:
            self._feed.unknown(steps)
            raise
        self._feed.written(steps)
        return last

    async def _forgive(self) -> None:
        """The servers are back, and the replica is fresh: leases that ran out meanwhile hold for another length."""
        now = self.clock.micros()
        while (window := self._outage.window(now)) is not None:
            changes = self.replica.begin_change()
            for record in list(self.replica.running.values()):
                expires = record.lease_expires_at
                if expires is not None and window[0] < expires <= window[1] and len(changes.records) < FORGIVE_MOST:
                    self.replica.touch(record)
                    record.lease_expires_at = now + record.lease_length
            if not changes:
                self.replica.undo(changes)
                break
            try:
                await self._write(changes, Plan(self.subjects, Known()))
            except Conflict:
                await self.fresh()
        self._outage.well()

    def _add_queues(self, changes: Changes, plan: Plan) -> None:
        """A queue is known from its first task on."""
        for queue in {touched.record.new.queue for touched in changes.records.values() if touched.before is None}:
            if not self.replica.line_revs.get(queue) and queue not in changes.lines:
                plan.rule(queue, encode(Rule()), 0)

    def _add_heads(self, changes: Changes, plan: Plan) -> set[str]:
        """Where ended tasks are to be looked for (walk.py)."""
        ended = {task_id for task_id, touched in changes.records.items() if touched.record.status.terminal}
        heads = set(map(head_of, ended)) - self.replica.heads
        for head in sorted(heads):
            plan.head(head)
        return heads

    def _tallied(self, changes: Changes, plan: Plan) -> Tally | None:
        """On what the stream has of ours: a write whose acknowledgement was lost may be in it."""
        counts = {place: number for place, number in changes.tallied.items() if number}
        if not counts:
            return None
        name, known, rev = self.own_tally()
        tally = added(known, counts)
        plan.tally(name, tally, rev)
        return tally

    def own_tally(self) -> tuple[str, Tally, int]:
        """Its name, what it says, and where it stands.

        One that was taken away, because it had not changed for long (tallies.py), is begun anew under another name:
        the empty message in its place vanishes some time, and nobody is told when.
        """
        tally, rev = self.replica.tallies.get(self._counts_as, ({}, 0))
        if rev and not tally:
            self._counts_as, rev = ids.token_hex(8), 0
        return self._counts_as, tally, rev

    # Tasks that the replica does not have

    async def _invite(self, task_ids: Sequence[str]) -> list[str]:
        unknown = [task_id for task_id in dict.fromkeys(task_ids) if task_id not in self.replica.records]
        if not unknown:
            return []
        for task_id, found in (await self.homes(unknown)).items():
            self.replica.place(task_id, decode_image(found.body), found.seq)
        return unknown

    def _dismiss(self, task_ids: Sequence[str]) -> None:
        for task_id in task_ids:
            record = self.replica.records.get(task_id)
            if isinstance(record, Kept) and record.status.terminal and record.new.run_id not in self.replica.whole:
                self.replica.take_out(record)

    async def homes(self, task_ids: Sequence[str]) -> dict[str, Found]:
        return await homes(self.reader, self.subjects, task_ids)
