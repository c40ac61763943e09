"""Tasks that come below the place where claims begin are claimed all the same (C5.2, stores/postgres/fronts.py).

Another process is a second handle with fronts of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.model.outcome import Completed, Released, Settlement
from holdfast.stores.postgres.fronts import LOWEST, Fronts, Place, Queued
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.postgres.survey import survey
from tests.stores.postgres_support import claim_one, new_task, opened, request, somebody_else

INSERT = """
INSERT INTO tasks (id, run_at, created_at, status, name, queue, priority, max_attempts, backoff, payload)
VALUES ($1, clock_timestamp(), clock_timestamp(), 'queued', 'probe', 'default', 0, 5, '{}', 'null')
"""


@asynccontextmanager
async def another_process(store: PostgresStore) -> AsyncIterator[PostgresStore]:
    async with opened(store._options.schema) as other:
        other._fronts = Fronts()
        yield other


async def look(store: PostgresStore, times: int = 1) -> None:
    """What a worker does by itself twice a second."""
    for _ in range(times):
        await store._opened.claimer.run(lambda session: survey(session, store._fronts, None))


async def claimed(store: PostgresStore, limit: int = 1) -> list[str]:
    return [one.task_id for one in (await store.claim(request(limit=limit))).claims]


async def work_off(store: PostgresStore, tasks: int) -> None:
    await store.submit([new_task() for _ in range(tasks)])
    claims = (await store.claim(request(limit=tasks))).claims
    assert len(claims) == tasks
    await store.settle([Settlement(one.lease, Completed()) for one in claims])


def front(store: PostgresStore) -> Place:
    (shelf,) = store._fronts.order(None)
    return shelf.place


def floor(store: PostgresStore) -> Place:
    (shelf,) = store._fronts.order(None, from_floor=True)
    return shelf.place


def test_a_task_that_is_committed_late_is_claimed_although_later_ones_went_before() -> None:
    """1. A transaction submits and stays open. 2. Later tasks are submitted, claimed, settled; surveys come by.

    3. It commits. 4. The next claim has it, for the floor never passed a transaction that was still writing.
    """

    async def use() -> None:
        async with opened() as store, somebody_else(store) as slow:
            await work_off(store, 3)
            late = new_task()
            transaction = slow.transaction()
            await transaction.start()
            await slow.execute(INSERT, late.id)
            for _ in range(4):
                await work_off(store, 3)
                await look(store)
            assert await claimed(store) == []
            await transaction.commit()
            assert await claimed(store) == [late.id]

    asyncio.run(use())


def test_a_joined_task_that_is_committed_late_is_claimed_although_later_ones_went_before() -> None:
    """As above, with the functions that callers use: they too hold the table's lock before they read the clock."""

    async def use() -> None:
        async with opened() as store, somebody_else(store) as slow:
            await work_off(store, 3)
            late, over = new_task(idempotency_key="late"), new_task(run_at=datetime.now(UTC) - timedelta(days=1))
            joined = (await store.joining()).into(slow)
            transaction = slow.transaction()
            await transaction.start()
            await joined.asubmit([late, over])
            for _ in range(4):
                await work_off(store, 3)
                await look(store)
            assert await claimed(store) == []
            await transaction.commit()
            await look(store)
            assert await claimed(store, limit=10) == [over.id, late.id]

    asyncio.run(use())


def test_a_late_task_goes_before_the_backlog_after_the_next_look() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as slow:
            await work_off(store, 1)
            late = new_task()
            transaction = slow.transaction()
            await transaction.start()
            await slow.execute(INSERT, late.id)
            await work_off(store, 3)
            await store.submit([new_task() for _ in range(5)])
            await look(store, 3)
            await transaction.commit()
            await look(store)
            assert await claimed(store) == [late.id]

    asyncio.run(use())


def test_the_floor_rises_once_the_writers_of_its_time_have_ended_and_not_before() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as slow:
            await work_off(store, 1)
            await look(store, 2)
            before = floor(store)
            assert before > LOWEST
            transaction = slow.transaction()
            await transaction.start()
            await slow.execute(INSERT, new_task().id)
            await look(store)
            held = floor(store)
            await look(store, 3)
            assert floor(store) == held
            await transaction.rollback()
            await look(store, 2)
            assert floor(store) > held

    asyncio.run(use())


def test_a_reader_that_stays_does_not_hold_the_floor() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as reader:
            await work_off(store, 1)
            async with reader.transaction(isolation="repeatable_read"):
                await reader.fetch("select from tasks")
                await look(store, 2)
                before = floor(store)
                await look(store)
                assert floor(store) > before

    asyncio.run(use())


def test_what_another_process_releases_is_claimed_again_in_its_place() -> None:
    async def use() -> None:
        async with opened() as store, another_process(store) as other:
            await store.submit([new_task() for _ in range(3)])
            first = await claim_one(other)
            second = await claim_one(store)
            await look(store, 3)
            assert front(store) > LOWEST
            await other.settle([Settlement(first.lease, Released())])
            await look(store)
            assert await claimed(store) == [first.task_id]
            assert second.task_id != first.task_id

    asyncio.run(use())


def test_a_task_that_was_due_before_it_was_submitted_is_claimed_first() -> None:
    async def use() -> None:
        async with opened() as store, another_process(store) as other:
            await work_off(store, 3)
            await store.submit([new_task()])
            await look(store, 3)
            early = new_task(run_at=datetime.now(UTC) - timedelta(days=1))
            await other.submit([early])
            await look(store)
            assert await claimed(store) == [early.id]
            mine = new_task(run_at=datetime.now(UTC) - timedelta(days=2))
            await store.submit([mine])
            assert await claimed(store) == [mine.id], "in the same process at once"

    asyncio.run(use())


def test_what_a_claim_held_that_came_to_nothing_is_found_again() -> None:
    """1. Another claim has locked the first task. 2. Ours takes the second. 3. The other one is cut off and undone."""

    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            first, second = new_task(), new_task()
            await store.submit([first, second])
            transaction = other.transaction()
            await transaction.start()
            await other.execute("select from tasks where id = $1 for update", first.id)
            assert await claimed(store) == [second.id]
            await transaction.rollback()
            assert await claimed(store) == [first.id]

    asyncio.run(use())


def test_queues_and_priorities_that_others_begin_to_use_are_found() -> None:
    async def use() -> None:
        async with opened() as store, another_process(store) as other:
            await store.submit([new_task(), new_task(queue="m")])
            assert len(await claimed(store, limit=10)) == 2
            news = [
                new_task(queue=queue, priority=priority)
                for priority in (32_767, 5, 0, -5, -32_768)
                for queue in ("a", "default", "m", "z")
            ]
            await other.submit(news)
            await look(store)
            assert await claimed(store, limit=100) == [new.id for new in news]

    asyncio.run(use())


def test_only_the_queues_asked_for_are_claimed_from() -> None:
    async def use() -> None:
        async with opened() as store, another_process(store) as other:
            here, there = new_task(queue="here"), new_task(queue="there", priority=3)
            await other.submit([here, there])
            assert [one.task_id for one in (await store.claim(request(queues=("here",), limit=9))).claims] == [here.id]
            assert await claimed(store, limit=9) == [there.id]

    asyncio.run(use())


def test_more_queues_than_are_kept_in_view_are_all_worked_off() -> None:
    async def use() -> None:
        async with opened() as store, another_process(store) as other:
            news = [new_task(queue=f"q{n:03}") for n in range(150)]
            await other.submit(news)
            found: list[str] = []
            while some := await claimed(store, limit=1000):
                found += some
            assert found == [new.id for new in news]
            again = new_task(queue="q149")
            await other.submit([again])
            assert await claimed(store) == [again.id]

    asyncio.run(use())


def test_a_clock_that_goes_back_makes_everything_start_anew() -> None:
    fronts = Fronts()
    fronts.begin(NOON, {})
    fronts.queued([Queued("default", 0, NOON)])
    fronts.begin(NOON - timedelta(seconds=1), {})
    assert fronts.order(None) == []


def test_a_note_of_a_late_task_lowers_the_front_once() -> None:
    fronts = Fronts()
    fronts.begin(NOON, {})
    fronts.queued([("default", 0, None)])
    note = {1: Queued("default", 0, NOON - timedelta(hours=1))}
    raise_to(fronts, NOON)
    fronts.begin(NOON, note)
    assert place(fronts) == Place(NOON - timedelta(hours=1), 0)
    raise_to(fronts, NOON)
    fronts.begin(NOON, note)
    assert place(fronts) == Place(NOON, 0)


def test_who_read_a_shelf_before_it_was_lowered_does_not_raise_it_after() -> None:
    fronts = Fronts()
    fronts.begin(NOON, {})
    fronts.queued([("default", 0, None)])
    raise_to(fronts, NOON)
    seen = fronts.order(None)
    early = NOON - timedelta(hours=1)
    fronts.queued([("default", 0, early)])
    fronts.taken(seen, {("default", 0): Place(NOON, 9)})
    assert place(fronts) == Place(early, 0)
    fronts.taken(fronts.order(None), {("default", 0): Place(NOON, 9)})
    assert place(fronts) == Place(NOON, 9)


NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def raise_to(fronts: Fronts, now: datetime) -> None:
    fronts.taken(fronts.order(None), {("default", 0): Place(now, 0)})


def place(fronts: Fronts) -> Any:
    (shelf,) = fronts.order(None)
    return shelf.place


def test_of_many_queues_a_claim_takes_a_few_tasks_and_says_that_there_are_more() -> None:
    async def use() -> None:
        async with opened() as store:
            news = [new_task(queue=f"q{n % 60}") for n in range(300)]
            await store.submit(news)
            taken = await store.claim(request(limit=200))
            assert taken.more
            assert [one.task_id for one in taken.claims] == [new.id for new in news[: len(taken.claims)]]
            rest = await store.claim(request(limit=10))
            assert not rest.more
            assert [one.task_id for one in rest.claims] == [new.id for new in news[len(taken.claims) :][:10]]

    asyncio.run(use())
