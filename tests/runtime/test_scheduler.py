"""What a worker does about schedules, look by look, on a virtual clock."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from holdfast.errors import SchemaMismatch, StoreUnavailable
from holdfast.events.bus import Bus
from holdfast.events.facts import ScheduleFailed, ScheduleFired, Told
from holdfast.maintenance.scheduler import FOR_OTHERS, LONGEST_SECONDS, MOST, RENEW, Scheduler
from holdfast.model.query import TaskFilter
from holdfast.model.schedule import NewSchedule, Schedule, Timing
from holdfast.model.task import NewTask
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.store import MemoryStore
from holdfast.testing.virtual_clock import VirtualClock

START = datetime(2030, 1, 1, tzinfo=UTC)


def new_schedule(name: str = "tidy", *, declared: bool = True, task: str = "tidy_up", **timing: Any) -> NewSchedule:
    given: dict[str, Any] = {"every": 60.0, "missed": "all"} | timing
    new = NewTask(id="", name=task, payload="null")
    return NewSchedule(name=name, timing=Timing(**given), task=new, declared=declared)


class World:
    """A store, its clock, and what schedulers on it have told."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START)
        self.state = MemoryState(self.clock)
        self.store = MemoryStore(self.state)
        self.told: list[Told] = []

    def scheduler(self, *declared: NewSchedule) -> Scheduler:
        return Scheduler(declared, Bus(self.told.append))

    async def keys(self) -> list[str]:
        tasks = await self.store.page(TaskFilter(limit=10_000))
        return [str(task.idempotency_key) for task in reversed(tasks)]

    async def only(self) -> Schedule:
        (schedule,) = await self.store.schedules()
        return schedule

    @property
    def failed(self) -> list[str]:
        return [told.name for told in self.told if isinstance(told, ScheduleFailed)]


def keys_of(name: str, *minutes: int) -> list[str]:
    return [f"schedule:{name}:{START + timedelta(minutes=n):%Y-%m-%dT%H:%M:%SZ}" for n in minutes]


def test_a_worker_fires_what_its_code_declares() -> None:
    async def use() -> None:
        world = World()
        scheduler = world.scheduler(new_schedule())
        await scheduler.look(world.store)
        assert await world.keys() == []
        world.clock.advance(125)
        await scheduler.look(world.store)
        await scheduler.look(world.store)
        assert await world.keys() == keys_of("tidy", 1, 2)
        first, second = (START + timedelta(minutes=n) for n in (1, 2))
        assert world.told == [ScheduleFired("tidy", (first, second))]

    asyncio.run(use())


def test_it_looks_again_when_the_next_one_is_due_and_at_least_every_few_seconds() -> None:
    async def use() -> None:
        world = World()
        scheduler = world.scheduler(new_schedule(every=60.0), new_schedule("often", every=2.0, missed="once"))
        assert await scheduler.look(world.store) == 2.0
        world.clock.advance(1.5)
        assert await scheduler.look(world.store) == 0.5
        world.clock.advance(0.5)
        assert await scheduler.look(world.store) == 2.0
        await world.store.pause_schedule("often", paused=True)
        assert await scheduler.look(world.store) == LONGEST_SECONDS
        assert await world.scheduler().look(world.store) == LONGEST_SECONDS

    asyncio.run(use())


@pytest.mark.parametrize("seed", range(20))
def test_any_number_of_workers_fire_every_instant_once(seed: int) -> None:
    """They come and go, look in any order, and at any time."""

    async def use() -> None:
        rng, world = random.Random(seed), World()
        workers = [world.scheduler(new_schedule(missed_most=1000))]
        await workers[0].look(world.store)
        for _ in range(100):
            world.clock.advance(rng.choice([0.0, 1.0, 59.0, 60.0, 61.0, 300.0]))
            if rng.random() < 0.2:
                workers[rng.randrange(len(workers))] = world.scheduler(new_schedule(missed_most=1000))
            elif len(workers) < 5:
                workers.append(world.scheduler(new_schedule(missed_most=1000)))
            await asyncio.gather(
                *(worker.look(world.store) for worker in rng.sample(workers, rng.randint(1, len(workers))))
            )
        world.clock.advance(60)
        await workers[0].look(world.store)
        minutes = int((world.clock.now() - START) / timedelta(minutes=1))
        assert await world.keys() == keys_of("tidy", *range(1, minutes + 1))

    asyncio.run(use())


class Interleaved(MemoryStore):
    """Gives everybody else a turn between what it is asked and what it answers."""

    async def schedules(self) -> list[Schedule]:
        answer = await super().schedules()
        await asyncio.sleep(0)
        return answer


def test_of_those_who_found_the_same_firing_one_submits_it() -> None:
    """1. All read the schedule. 2. All see that it is due. 3. Each fires; the first is right."""

    async def use() -> None:
        world = World()
        store = Interleaved(world.state)
        workers = [world.scheduler(new_schedule()) for _ in range(8)]
        await asyncio.gather(*(worker.look(store) for worker in workers))
        world.clock.advance(60)
        await asyncio.gather(*(worker.look(store) for worker in workers))
        assert await world.keys() == keys_of("tidy", 1)
        assert len(world.told) == 1

    asyncio.run(use())


class LosesReplies(MemoryStore):
    """Does what it is asked, and then does not answer; every second time it does."""

    calls = 0

    async def fire(self, *args: Any, **kwargs: Any) -> bool:
        answer = await super().fire(*args, **kwargs)
        self.calls += 1
        if self.calls % 2:
            raise StoreUnavailable("the connection was lost")
        return answer


def test_a_firing_whose_reply_was_lost_is_not_made_again() -> None:
    async def use() -> None:
        world = World()
        store, scheduler = LosesReplies(world.state), world.scheduler(new_schedule())
        await scheduler.look(store)
        world.clock.advance(60)
        with pytest.raises(StoreUnavailable):
            await scheduler.look(store)
        await scheduler.look(store)
        assert await world.keys() == keys_of("tidy", 1)

    asyncio.run(use())


def test_what_fell_due_during_an_outage_is_dealt_with_after_it() -> None:
    async def use() -> None:
        world = World()
        scheduler = world.scheduler(new_schedule())
        await scheduler.look(world.store)
        world.state.go_away()
        world.clock.advance(180)
        with pytest.raises(StoreUnavailable):
            await scheduler.look(world.store)
        world.state.come_back()
        await scheduler.look(world.store)
        assert await world.keys() == keys_of("tidy", 1, 2, 3)

    asyncio.run(use())


def test_a_worker_that_starts_in_an_outage_declares_when_it_is_over() -> None:
    async def use() -> None:
        world = World()
        scheduler = world.scheduler(new_schedule())
        world.state.go_away()
        with pytest.raises(StoreUnavailable):
            await scheduler.look(world.store)
        world.state.come_back()
        await scheduler.look(world.store)
        assert (await world.only()).name == "tidy"

    asyncio.run(use())


def test_a_schedule_whose_code_is_gone_stops_with_the_last_worker_that_has_it() -> None:
    async def use() -> None:
        world = World()
        old, new = world.scheduler(new_schedule("ghost")), world.scheduler()
        await old.look(world.store)
        world.clock.advance(60)
        await new.look(world.store)
        assert await world.keys() == []
        await old.look(world.store)
        assert await world.keys() == keys_of("ghost", 1)

    asyncio.run(use())


def test_a_schedule_that_a_person_put_there_is_fired_by_any_worker() -> None:
    async def use() -> None:
        world = World()
        await world.store.declare_schedule(new_schedule("put", declared=False))
        world.clock.advance(60)
        await world.scheduler().look(world.store)
        assert await world.keys() == keys_of("put", 1)

    asyncio.run(use())


def test_whoever_started_last_is_right_about_what_a_schedule_is() -> None:
    async def use() -> None:
        world = World()
        old, new = world.scheduler(new_schedule(task="old")), world.scheduler(new_schedule(task="new", every=30.0))
        await old.look(world.store)
        await new.look(world.store)
        for _ in range(3):
            world.clock.advance(RENEW)
            await old.look(world.store)
            schedule = await world.only()
            assert (schedule.task.name, schedule.timing.every) == ("new", 30.0)
        tasks = await world.store.page(TaskFilter(limit=1000))
        assert {task.name for task in tasks} == {"new"}

    asyncio.run(use())


def test_a_worker_renews_the_sign_that_its_code_has_it_now_and_then() -> None:
    async def use() -> None:
        world = World()
        workers = [world.scheduler(new_schedule(every=86400.0)) for _ in range(3)]
        for worker in workers:
            await worker.look(world.store)
        made = await world.only()
        world.clock.advance(RENEW - timedelta(microseconds=1))
        await workers[0].look(world.store)
        assert await world.only() == made
        world.clock.advance(0.000001)
        for worker in workers:
            await worker.look(world.store)
        renewed = await world.only()
        assert renewed.declared_at == world.clock.now()
        assert renewed.last_fired_at == made.last_fired_at

    asyncio.run(use())


def test_what_a_person_has_deleted_comes_back_with_the_next_worker_and_not_before() -> None:
    async def use() -> None:
        world = World()
        scheduler = world.scheduler(new_schedule())
        await scheduler.look(world.store)
        await world.store.delete_schedule("tidy")
        world.clock.advance(RENEW)
        await scheduler.look(world.store)
        assert await world.store.schedules() == []
        await world.scheduler(new_schedule()).look(world.store)
        assert (await world.only()).created_at == world.clock.now()

    asyncio.run(use())


def test_what_a_person_has_put_over_a_declared_one_stays() -> None:
    async def use() -> None:
        world = World()
        scheduler = world.scheduler(new_schedule())
        await scheduler.look(world.store)
        await world.store.declare_schedule(new_schedule(every=600.0, declared=False))
        world.clock.advance(RENEW)
        await scheduler.look(world.store)
        schedule = await world.only()
        assert (schedule.timing.every, schedule.declared_at) == (600.0, None)

    asyncio.run(use())


def test_a_bad_schedule_is_told_once_and_stops_only_itself() -> None:
    async def use() -> None:
        world = World()
        bad = new_schedule("bad", every=None, cron="0 3 * * *", timezone="Mars/Olympus_Mons", declared=False)
        odd = new_schedule("odd", every=None, cron="no cron", declared=False)
        for new in (bad, odd):
            await world.store.declare_schedule(new)
        scheduler = world.scheduler(new_schedule("good"))
        for _ in range(3):
            await scheduler.look(world.store)
            world.clock.advance(60)
        await scheduler.look(world.store)
        assert await world.keys() == keys_of("good", 1, 2, 3)
        assert world.failed == ["bad", "odd"]

    asyncio.run(use())


def test_a_taken_key_stops_only_its_own_schedule_and_only_while_it_matters() -> None:
    async def use() -> None:
        world = World()
        (key,) = keys_of("a", 1)
        await world.store.submit([NewTask(id="1", name="other", payload="null", idempotency_key=key)])
        scheduler = world.scheduler(new_schedule("a", missed="once"), new_schedule("b", missed="once"))
        await scheduler.look(world.store)
        for _ in range(2):
            world.clock.advance(60)
            await scheduler.look(world.store)
        assert await world.keys() == [key, *keys_of("b", 1), *keys_of("a", 2), *keys_of("b", 2)]
        assert world.failed == ["a"]

    asyncio.run(use())


class OldSchema(MemoryStore):
    old = True

    async def declare_schedule(self, new: NewSchedule) -> Schedule:
        if self.old:
            raise SchemaMismatch("run `holdfast migrate`")
        return await super().declare_schedule(new)

    async def schedules(self) -> list[Schedule]:
        if self.old:
            raise SchemaMismatch("run `holdfast migrate`")
        return await super().schedules()


def test_a_store_without_schedules_is_told_once_and_tried_again() -> None:
    async def use() -> None:
        world = World()
        store, scheduler = OldSchema(world.state), world.scheduler(new_schedule())
        for _ in range(3):
            assert await scheduler.look(store) == LONGEST_SECONDS
        assert world.failed == ["tidy", "*"]
        store.old = False
        await scheduler.look(store)
        assert (await world.only()).name == "tidy"

    asyncio.run(use())


class Counting(MemoryStore):
    fired = 0

    async def fire(self, name: str, *, last_fired_at: datetime, upto: datetime, tasks: Sequence[NewTask]) -> bool:
        self.fired += 1
        return await super().fire(name, last_fired_at=last_fired_at, upto=upto, tasks=tasks)


def test_one_look_does_a_bounded_amount_of_work() -> None:
    async def use() -> None:
        world = World()
        store = Counting(world.state)
        for number in range(2 * MOST + 1):
            await store.declare_schedule(new_schedule(f"{number:04}", declared=False))
        world.clock.advance(60)
        scheduler = world.scheduler()
        waits, fired = [], []
        for _ in range(3):
            waits.append(await scheduler.look(store))
            fired.append(store.fired)
        assert fired == [MOST, 2 * MOST, 2 * MOST + 1]
        assert waits == [0.0, 0.0, LONGEST_SECONDS]

    asyncio.run(use())


class Maintained(MemoryStore):
    """As it stands behind a dispatcher, for those who work on it."""

    capabilities = msgspec.structs.replace(MemoryStore.capabilities, maintained=True)


def test_on_a_store_that_others_maintain_it_declares_and_renews_and_fires_nothing() -> None:
    async def use() -> None:
        world = World()
        store = Maintained(world.state)
        scheduler = world.scheduler(new_schedule())
        await scheduler.look(store)
        world.clock.advance(RENEW.total_seconds() + 1)
        assert await scheduler.look(store) > LONGEST_SECONDS
        assert (await world.only()).declared_at == world.clock.now()
        assert await world.keys() == []

    asyncio.run(use())


def test_who_has_no_code_fires_what_somebody_still_says_he_has() -> None:
    async def use() -> None:
        world = World()
        dispatcher = Scheduler((), Bus(world.told.append), for_others=True)
        await world.scheduler(new_schedule()).look(Maintained(world.state))
        world.clock.advance(60)
        await dispatcher.look(world.store)
        assert await world.keys() == keys_of("tidy", 1)
        world.clock.advance(FOR_OTHERS.total_seconds() - 60)
        await dispatcher.look(world.store)
        assert await world.keys() == keys_of("tidy", 1)

    asyncio.run(use())
