"""Fires schedules (contract C10.8). Every worker does it; the store decides by compare-and-set who was first.

A worker fires what its own code declares, and what a person put there at run time: so a schedule whose code is gone
stops with the last worker that has it. It declares at its start, so whoever started last is right about what a schedule
is. Later it only renews the sign that its code has it, and only where the schedule is still as declared: it does not
undo what a newer worker has changed, nor bring back what a person has deleted.

On a store that others maintain (behind a dispatcher) a worker declares and renews, and fires nothing. A dispatcher has
no code of its own: it fires for others, as long as somebody renews.

When a schedule fires, and as which tasks, is decided in policy/firing.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast import ids
from holdfast.errors import StoreUnavailable
from holdfast.events.bus import Bus
from holdfast.events.facts import ScheduleFailed, ScheduleFired
from holdfast.health import StoreHealth
from holdfast.model.schedule import NewSchedule, Schedule
from holdfast.policy import firing
from holdfast.stores.protocol import Store

LONGEST_SECONDS = 5.0
"""Between two looks: so soon are changes seen."""
SPREAD_SECONDS = 0.05
"""Workers look a little apart, so that most of them find a firing already dealt with."""
RENEW = timedelta(minutes=5)
FOR_OTHERS = 3 * RENEW
"""So long after the last sign of a worker that has it a schedule is fired by those who have no code."""
MOST = 100
"""How many are fired and renewed in one look; the next one follows at once."""


class Scheduler:
    def __init__(self, declared: Sequence[NewSchedule], bus: Bus, *, for_others: bool = False) -> None:
        self._declared = {new.name: new for new in declared}
        self._for_others = for_others
        self._undeclared = list(declared)
        self._bus = bus
        self._told: dict[str, str] = {}

    async def begin(self, store: Store, health: StoreHealth) -> None:
        """Make known what this worker's code has, and fire what is due."""
        await health.persist(lambda: self.look(store))

    async def run(self, store: Store, health: StoreHealth) -> None:
        while True:
            wait = await health.persist(lambda: self.look(store))
            await asyncio.sleep(wait + SPREAD_SECONDS * ids.JITTER.random())

    async def look(self, store: Store) -> float:
        """Declare what is left to declare, fire what is due; how many seconds to wait before the next look.

        Repeated after an outage it does what is left: what it has fired has moved on.
        """
        await self._declare(store)
        if store.capabilities.maintained and not self._declared:
            return LONGEST_SECONDS
        try:
            known = await store.schedules()
            now = await store.now() if known else None
        except StoreUnavailable:
            raise
        except Exception as error:
            self._failed("*", error)
            return LONGEST_SECONDS
        self._well("*")
        if now is None:
            return LONGEST_SECONDS
        return await self._work(store, [schedule for schedule in known if self._mine(schedule, now)], now)

    def _mine(self, schedule: Schedule, now: datetime) -> bool:
        if schedule.declared_at is None or schedule.name in self._declared:
            return True
        return self._for_others and now - schedule.declared_at < FOR_OTHERS

    async def _declare(self, store: Store) -> None:
        """One that is refused stays to be declared: the store's schema may be about to change."""
        for new in list(self._undeclared):
            try:
                await store.declare_schedule(new)
            except StoreUnavailable:
                raise
            except Exception as error:
                self._failed(new.name, error)
            else:
                self._undeclared.remove(new)
                self._well(new.name)

    async def _work(self, store: Store, mine: Sequence[Schedule], now: datetime) -> float:
        fires = not store.capabilities.maintained
        left, wait = MOST, LONGEST_SECONDS if fires else RENEW.total_seconds() / 5
        for schedule in mine:
            try:
                left -= await self._renew(store, schedule, now)
                if fires:
                    left -= await self._fire(store, schedule, now)
                    wait = min(wait, _until(schedule, now))
            except StoreUnavailable:
                raise
            except Exception as error:
                self._failed(schedule.name, error)
            else:
                self._well(schedule.name)
            if left <= 0:
                return 0.0
        return wait

    async def _fire(self, store: Store, schedule: Schedule, now: datetime) -> bool:
        following = None if schedule.paused else firing.next_firing(schedule.timing, schedule.last_fired_at)
        if following is None or following > now:
            return False
        due = firing.due(schedule, now)
        assert due is not None
        task_ids = ids.task_ids(len(due.instants))
        tasks = [firing.task_for(schedule, *one) for one in zip(due.instants, task_ids, strict=True)]
        if await store.fire(schedule.name, last_fired_at=schedule.last_fired_at, upto=due.upto, tasks=tasks):
            self._bus.publish(ScheduleFired(schedule.name, due.instants))
        return True

    async def _renew(self, store: Store, schedule: Schedule, now: datetime) -> bool:
        """The first of all workers to find it old does it."""
        new = self._declared.get(schedule.name)
        if new is None or schedule.declared_at is None or now - schedule.declared_at < RENEW:
            return False
        if (schedule.timing, schedule.task) != (new.timing, new.task):
            return False
        await store.declare_schedule(new)
        return True

    def _failed(self, name: str, error: Exception) -> None:
        """Told once, until it changes."""
        text = f"{type(error).__name__}: {error}"
        if self._told.get(name) != text:
            self._told[name] = text
            self._bus.publish(ScheduleFailed(name, text))

    def _well(self, name: str) -> None:
        self._told.pop(name, None)


def _until(schedule: Schedule, now: datetime) -> float:
    if schedule.paused:
        return LONGEST_SECONDS
    following = firing.next_firing(schedule.timing, max(now, schedule.last_fired_at))
    return LONGEST_SECONDS if following is None else (following - now).total_seconds()
