"""How anything changes: plan on the replica, write by compare-and-set, or catch up and plan again.

    replica ──act──► Changes ──Plan──► one atomic batch ──► acknowledged: commit
       ▲                                     │
       └── undo, see what others wrote ◄── refused: the images that it was planned on are not the last any more

The batch decides, never the replica: a plan made on old knowledge is refused. An answer that changes nothing is not
tested by a write, so it is only given on fresh knowledge (following.py). A change that stands apart from all others is
written while the next is planned (turns.py); any other is alone from its plan to its acknowledgement.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import HoldfastError, StoreClosed, StoreUnavailable
from holdfast.model.task import NewTask
from holdfast.policy.backoff import Rng
from holdfast.stores.nats.besides import Besides, Noted
from holdfast.stores.nats.changes import Changes
from holdfast.stores.nats.following import Following
from holdfast.stores.nats.images import Kept, decode_image
from holdfast.stores.nats.linked import Lacking
from holdfast.stores.nats.members import Members, homes
from holdfast.stores.nats.messages import Plan
from holdfast.stores.nats.options import Options
from holdfast.stores.nats.outage import Outage
from holdfast.stores.nats.packs import Packs
from holdfast.stores.nats.planner import Planner
from holdfast.stores.nats.presence import Presence
from holdfast.stores.nats.reader import Found, Reader
from holdfast.stores.nats.replica import Busy, Replica
from holdfast.stores.nats.rows import LEFT
from holdfast.stores.nats.sheets import Sheets
from holdfast.stores.nats.specs import Known, Specs
from holdfast.stores.nats.stream import Stream
from holdfast.stores.nats.subjects import Subjects
from holdfast.stores.nats.turns import Turns
from holdfast.stores.nats.unreadable import understood
from holdfast.stores.nats.wire import Conflict, Message, Wire
from holdfast.wakeups.in_process import Hub

T = TypeVar("T")

TRIES = 200
"""Each time somebody else was faster: the system as a whole goes on."""
DOUBT_TRIES = 30
"""Refused so often, the replica may have missed something."""
FORGIVE_MOST = 450
"""Two messages each at most: the image, and the bulletin where it is large."""


def _whole(answer: object) -> bool:
    """Nothing of it is a refusal."""
    return not isinstance(answer, list) or not any(isinstance(one, HoldfastError) for one in answer)


@dataclass(slots=True)
class Wanted(Generic[T]):
    """A change as it is asked for; see Ledger.change."""

    act: Callable[[int], T]
    tasks: Sequence[str]
    follow_ups: Sequence[NewTask]
    sure: Callable[[T], bool]
    adding: Callable[[Plan], None]
    overlaps: bool


@dataclass(slots=True)
class Planned(Generic[T]):
    changes: Changes
    plan: Plan
    answer: tuple[T] | None = None
    refusal: HoldfastError | None = None
    apart: bool = False
    """Others may be planned while it is written."""
    noted: Noted | None = None
    messages: Sequence[Message] = ()
    """Made when it was planned: its records may be others' by the time it is written."""
    over: bool = False
    """It is written; or there is nothing to write."""

    def given(self) -> T:
        if self.refusal is not None:
            raise self.refusal
        assert self.answer is not None
        return self.answer[0]


class Ledger:
    def __init__(self, options: Options, clock: Clock, rng: Rng) -> None:
        self.options = options
        self.subjects = Subjects(options.prefix)
        self.wire = Wire(options)
        self.stream = Stream(self.wire, options, self.subjects)
        self.reader = Reader(self.wire, self.stream, self.subjects.origin)
        self.specs = Specs(self.reader, self.subjects)
        self.sheets = Sheets(self.reader, self.subjects)
        self.presence = Presence(self.wire, self.subjects, options.evict_grace_seconds)
        self.packs = Packs(self.wire, self.reader, self.subjects)
        self.clock: Clock = self.stream.clock if clock is SYSTEM_CLOCK else clock
        self._turns = Turns()
        self.following = Following(self.wire, self.reader, self.stream, self.subjects, options, self.clock, self._turns)
        self.replica: Replica = self.following.replica
        self.besides = Besides(self.replica)
        self.acts = Planner(self.replica, rng)
        self.members = Members(self.reader, self.subjects, self.specs, self.replica)
        self.news, self.ends = self.following.news, Hub()
        self._outage = Outage()
        self._opened = self._hears = self._closed = False
        self._opening = asyncio.Lock()
        self._wrote = 0
        """The last that was written without the replica."""
        self._refused: list[str] = []
        """What the last change that was refused had relied on."""
        self.wire.lost, self.wire.back = self._lost, self.following.feed.disturb

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
        await self.following.close()
        await self.wire.close()

    def _lost(self) -> None:
        self.following.feed.disturb()
        if self._opened:
            self._outage.failed(self.clock.micros())

    async def hear_ends(self) -> None:
        """From now on `ends` tells of tasks that end."""
        if not self._hears:
            await self.wire.listen(self.subjects.ended, self._ended)
            self._hears = True

    async def _ended(self, _message: object) -> None:
        self.ends.announce()

    # What is known

    async def fresh(self) -> None:
        """The replica has seen all that was acknowledged before this was called."""
        await self.ready()
        try:
            await self.following.fresh()
        except StoreUnavailable:
            self._outage.failed(self.clock.micros())
            raise

    @asynccontextmanager
    async def steady(self) -> AsyncIterator[None]:
        """The replica is fresh, and shows nothing that is only planned."""
        await self.fresh()
        async with self._turns.alone():
            yield

    async def doubt(self) -> None:
        """Refused again and again: the replica may have missed something, or the leader cannot read what it checks."""
        self.following.feed.forget()
        await self.reader.ensure_led_whole(self._refused)

    async def write(self, messages: Sequence[Message]) -> None:
        """Without the replica. Its next change has seen it."""
        self._wrote = max(self._wrote, await self.wire.write(messages))

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
        overlaps: bool = False,
    ) -> T:
        """Make an act on the replica true.

        `tasks`: those it names, which may have ended. `follow_ups`: those it may submit. `sure`: may this answer, with
        a write, be given without a look at what the leader has? `extra` adds to what is written. `once`: where it was
        refused, Conflict. `overlaps`: others may be planned while it is written, if it stands apart from them.
        """
        await self.ready()
        wanted = Wanted(act, tasks, follow_ups, sure, extra, overlaps)
        for tried in range(TRIES):
            try:
                planned = await self._made(wanted, fresh=fresh)
            except Conflict:
                if once:
                    raise
                planned = None
            if planned is not None:
                return planned.given()
            fresh = True
            if tried == DOUBT_TRIES:
                await self.doubt()
            if tried > 2:
                await asyncio.sleep(ids.JITTER.random() * 0.002 * tried)
        raise StoreUnavailable(f"{self.options.label}: too many others change the same tasks at the same time")

    async def _made(self, wanted: Wanted[T], *, fresh: bool) -> Planned[T] | None:
        """None: not to be answered on this knowledge."""
        async with self._turns.turn():
            fresh = await self._prepare(wanted, fresh=fresh)
            planned = await self._with_all(wanted, fresh=fresh)
            if planned is None or planned.over:
                return planned
            self._turns.begin()
        try:
            await self._carry_out(planned)
        finally:
            self._turns.end()
        return planned

    async def _prepare(self, wanted: Wanted[T], *, fresh: bool) -> bool:
        """Whether the replica is fresh."""
        if fresh or self.following.partial or self._outage.suspected:
            await self._turns.quiet()
            await self.fresh()
            await self._forgive()
            fresh = True
        elif not await self.following.reached(self._wrote):
            await self.fresh()
        if any(task_id in self.replica.busy for task_id in wanted.tasks):
            await self._turns.quiet()
        self.acts.known = await self.specs.known(wanted.follow_ups) if fresh and wanted.follow_ups else Known()
        return fresh

    async def _with_all(self, wanted: Wanted[T], *, fresh: bool) -> Planned[T] | None:
        """With the tasks that it names at hand, and with whatever of their runs the act turns out to need."""
        loaded: list[str] = []
        try:
            while True:
                guests = await self._invite(wanted.tasks)
                try:
                    return await self._once(wanted, fresh=fresh, alone=bool(guests or loaded))
                except Lacking as lacking:
                    loaded.append(lacking.run_id)
                    await self.members.load(lacking.run_id, self.fresh)
                finally:
                    self._dismiss(guests)
        finally:
            for run_id in loaded:
                self.replica.keep_if_live(run_id)

    async def _once(self, wanted: Wanted[T], *, fresh: bool, alone: bool) -> Planned[T] | None:
        """What stands apart is left to be carried out."""
        while True:
            try:
                planned = self._planned(wanted, fresh=fresh, alone=alone)
            except Busy:
                await self._turns.quiet()
                continue
            if planned is not None and not planned.over and not planned.apart:
                await self._carry_out(planned)
            return planned

    def _planned(self, wanted: Wanted[T], *, fresh: bool, alone: bool) -> Planned[T] | None:
        if self.following.partial:
            return None
        planned: Planned[T] = Planned(self.replica.begin_change(), Plan(self.subjects, self.acts.known))
        try:
            self._act(wanted, planned)
            planned.over = not planned.changes and not planned.plan.size
            if planned.over or not (fresh or self._sure(planned, wanted)):
                self.replica.undo(planned.changes)
                return planned if planned.over and fresh else None
            planned.apart = wanted.overlaps and not alone and self._apart(planned.changes)
            if self._turns.busy and not planned.apart:
                raise Busy
            self._compose(planned)
        except BaseException:
            self.replica.undo(planned.changes)
            raise
        return planned

    def _act(self, wanted: Wanted[T], planned: Planned[T]) -> None:
        try:
            planned.answer = (wanted.act(self.clock.micros()),)
            wanted.adding(planned.plan)
        except HoldfastError as error:
            planned.refusal = error  # what was done before it stands: a lease that had expired is reaped

    def _sure(self, planned: Planned[T], wanted: Wanted[T]) -> bool:
        return planned.refusal is None and not planned.changes.fails_fast and wanted.sure(planned.given())

    def _apart(self, changes: Changes) -> bool:
        return self.replica.apart(changes) and not (self.besides.counting and changes.ends)

    def _compose(self, planned: Planned[T]) -> None:
        """The whole of what is to be written."""
        changes, plan = planned.changes, planned.plan
        for name in changes.left:
            plan.row(LEFT, name, self.replica.left.get(name), None)  # who changes it touches its task
        plan.change(changes, self.replica)
        planned.noted = self.besides.add(changes, plan)
        planned.messages = plan.messages
        self.replica.planned(changes)

    async def _carry_out(self, planned: Planned[T]) -> None:
        changes, plan = planned.changes, planned.plan
        assert planned.noted is not None
        try:
            last = await self._written(planned)
        except BaseException as error:
            self.replica.undo(changes)
            if isinstance(error, StoreUnavailable):
                self._outage.failed(self.clock.micros())
            raise
        finally:
            self.besides.over(planned.noted)
        self.replica.commit(changes, plan.revs(last), plan.line_revs(last), plan.sheets(last))
        for table, key, row, rev in plan.rows(last):
            self.replica.place_row(table, key, row, rev)
        self.besides.commit(planned.noted, plan, last)
        planned.over = True
        if changes.wakes:
            self.news.announce()

    async def _written(self, planned: Planned[T]) -> int:
        """The feed passes it over: a replica that has planned it knows it. One that is read anew since does not."""
        steps: set[str] = set()

        def named(step: str) -> None:
            self.following.feed.refused(steps)  # nobody took the one before
            steps.clear()
            if self.replica.is_under_way(planned.changes):
                steps.add(step)
                self.following.feed.under_way(step)

        try:
            last = await self.wire.write(planned.messages, named)
        except Conflict:
            self._refused = [message.subject for message in planned.messages if message.expected]
            self.following.feed.refused(steps)
            raise
        except BaseException:
            self.following.feed.unknown(steps)
            raise
        self.following.feed.written(steps)
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
            planned: Planned[None] = Planned(changes, Plan(self.subjects, Known()))
            self._compose(planned)
            try:
                await self._carry_out(planned)
            except Conflict:
                await self.fresh()
        self._outage.well()

    # Tasks that the replica does not have

    async def _invite(self, task_ids: Sequence[str]) -> list[str]:
        unknown = [task_id for task_id in dict.fromkeys(task_ids) if task_id not in self.replica.records]
        if not unknown:
            return []
        overtaken = unknown
        while overtaken:
            told = self.replica.told = dict.fromkeys(overtaken, 0)
            homes = await self.homes(overtaken)
            overtaken = [task_id for task_id, rev in told.items() if rev and task_id not in self.replica.records]
            for task_id, found in homes.items() if told is self.replica.told else ():
                if found.seq > told[task_id]:
                    self.replica.place(task_id, understood(decode_image, found), found.seq)
        self.replica.told = {}
        return unknown

    def _dismiss(self, task_ids: Sequence[str]) -> None:
        for task_id in task_ids:
            record = self.replica.records.get(task_id)
            if isinstance(record, Kept) and record.status.terminal and record.new.run_id not in self.replica.whole:
                self.replica.take_out(record)

    async def homes(self, task_ids: Sequence[str]) -> dict[str, Found]:
        return await homes(self.reader, self.subjects, task_ids)
