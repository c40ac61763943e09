"""Concurrent submits of one handle share commits, and each still gets its own answer."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import IdempotencyConflict, StoreUnavailable
from holdfast.model.task import Submitted
from tests import postgres_server
from tests.stores.postgres_support import new_task, opened, somebody_else


def test_submits_that_come_together_are_written_together() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            news = [new_task() for _ in range(100)]
            answers = await asyncio.gather(*(store.submit([new]) for new in news))
            assert answers == [[Submitted(new.id, created=True)] for new in news]
            written = await other.fetchval("select count(distinct xmin::text) from events")
            assert await other.fetchval("select count(*) from events") == 100
            assert written <= 5

    asyncio.run(use())


def test_each_gets_its_own_answer_where_a_key_is_known() -> None:
    async def use() -> None:
        async with opened() as store:
            known = new_task(idempotency_key="k")
            await store.submit([known])
            fresh, repeat, clash = new_task(), new_task(idempotency_key="k"), new_task(name="x", idempotency_key="k")
            pair = [new_task(idempotency_key="j"), new_task(idempotency_key="j")]
            answers = await asyncio.gather(
                *(store.submit(tasks) for tasks in ([new_task()], [fresh], [repeat], [clash], pair, [new_task()])),
                return_exceptions=True,
            )
            assert answers[1:3] == [[Submitted(fresh.id, created=True)], [Submitted(known.id, created=False)]]
            assert isinstance(answers[3], IdempotencyConflict)
            assert answers[4] == [Submitted(pair[0].id, created=True), Submitted(pair[0].id, created=False)]
            assert (await store.queues())[0].counts == {"queued": 5}

    asyncio.run(use())


def test_a_caller_that_gives_up_takes_nobody_else_with_it() -> None:
    async def use() -> None:
        async with opened() as store:
            await store.now()
            calls = [asyncio.create_task(store.submit([new_task()])) for _ in range(10)]
            await asyncio.sleep(0)
            calls[0].cancel()
            calls[5].cancel()
            done = await asyncio.gather(*calls, return_exceptions=True)
            assert [isinstance(one, asyncio.CancelledError) for one in done] == [n in (0, 5) for n in range(10)]
            await store.submit([new_task()])

    asyncio.run(use())


def test_all_that_wait_hear_that_the_store_is_away() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            await store.submit([new_task()])
            transaction = other.transaction()
            await transaction.start()
            await other.execute("lock table tasks")
            calls = [asyncio.create_task(store.submit([new_task()])) for _ in range(5)]
            waits = "select from pg_locks where not granted and relation = 'tasks'::regclass"
            while not await other.fetch(waits):  # noqa: ASYNC110  the server tells nobody
                await asyncio.sleep(0.01)
            await postgres_server.end_sessions([store._opened.writer._conn])
            first = await asyncio.gather(calls[0], return_exceptions=True)
            assert isinstance(first[0], StoreUnavailable)
            await transaction.rollback()
            assert all(answer[0].created for answer in await asyncio.gather(*calls[1:])), (
                "they went on a new connection"
            )
            await store.submit([new_task()])

    asyncio.run(use())


@pytest.mark.parametrize("size", [1, 999, 1001])
def test_a_call_of_any_size_stays_whole(size: int) -> None:
    async def use() -> None:
        async with opened() as store:
            calls = [[new_task() for _ in range(size)] for _ in range(3)]
            answers = await asyncio.gather(*(store.submit(tasks) for tasks in calls))
            assert [[one.id for one in answer] for answer in answers] == [[new.id for new in tasks] for tasks in calls]

    asyncio.run(use())
