"""Concurrent submits of one handle on NATS share atomic steps, and each still gets its own answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from typing import ParamSpec

import pytest

from holdfast import ids
from holdfast.errors import IdempotencyConflict, PayloadTooLarge
from holdfast.model.task import NewTask, Submitted
from holdfast.stores.nats.options import parsed
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.nats.submit_verbs import GATHERED_MOST
from holdfast.stores.nats.wire import Message
from tests import jetstream_servers

P = ParamSpec("P")


def run(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    @wraps(test)
    def ran(*args: P.args, **kwargs: P.kwargs) -> None:
        async def whole() -> None:
            await test(*args, **kwargs)

        asyncio.run(whole())

    return ran


@asynccontextmanager
async def opened() -> AsyncIterator[NatsStore]:
    url = jetstream_servers.single().url(jetstream_servers.fresh_prefix())
    store = NatsStore(parsed(url, {}))
    try:
        yield store
    finally:
        await store.close()
        jetstream_servers.remove(url)


def task(*, name: str = "work", key: str | None = None, payload: str = "{}", queue: str = "default") -> NewTask:
    return NewTask(id=ids.task_ids(1)[0], name=name, payload=payload, idempotency_key=key, queue=queue)


def steps_of(store: NatsStore) -> list[int]:
    """How many messages each atomic step has, from now on."""
    wire, sizes = store._ledger.wire, list[int]()
    write = wire.write

    async def counted(messages: Sequence[Message], named: Callable[[str], None] = lambda _: None) -> int:
        sizes.append(len(messages))
        return await write(messages, named)

    wire.write = counted  # type: ignore[method-assign]
    return sizes


@run
async def test_submits_that_come_together_are_written_together() -> None:
    async with opened() as store:
        await store.submit([task()])
        sizes = steps_of(store)
        news = [task() for _ in range(100)]
        answers = await asyncio.gather(*(store.submit([new]) for new in news))
        assert answers == [[Submitted(new.id, created=True)] for new in news]
        assert sizes == [3, 199], "what was submitted, the images, and a bulletin"
        assert (await store.queues())[0].counts["queued"] == 101


@run
async def test_each_gets_its_own_answer_where_something_is_known() -> None:
    async with opened() as store:
        known = task(key="k")
        await store.submit([known])
        fresh, repeat, clash = task(), task(key="k"), task(name="other", key="k")
        pair, large = [task(key="j"), task(key="j")], task(payload='"' + "x" * (4 << 20) + '"')
        calls: list[list[NewTask]] = [[task()], [fresh], [repeat], [clash], pair, [known], [large], [task(queue="q")]]
        answers = await asyncio.gather(*map(store.submit, calls), return_exceptions=True)
        assert answers[1:3] == [[Submitted(fresh.id, created=True)], [Submitted(known.id, created=False)]]
        assert isinstance(answers[3], IdempotencyConflict)
        assert answers[4] == [Submitted(pair[0].id, created=True), Submitted(pair[0].id, created=False)]
        assert answers[5] == [Submitted(known.id, created=True)]
        assert isinstance(answers[6], PayloadTooLarge)
        assert {info.name: info.counts["queued"] for info in await store.queues()} == {"default": 4, "q": 1}


@run
async def test_calls_that_share_a_new_key_are_one_task() -> None:
    async with opened() as store:
        await store.submit([task()])
        calls = [task(), *(task(key="k") for _ in range(10))]
        answers = await asyncio.gather(*(store.submit([new]) for new in calls))
        told = {answer[0].id for answer in answers[1:]}
        assert len(told) == 1
        assert [answer[0].created for answer in answers[1:]].count(True) == 1


@run
async def test_a_caller_that_gives_up_takes_nobody_else_with_it() -> None:
    async with opened() as store:
        await store.submit([task()])
        calls = [asyncio.create_task(store.submit([task()])) for _ in range(10)]
        await asyncio.sleep(0)
        calls[5].cancel()
        done = await asyncio.gather(*calls, return_exceptions=True)
        assert [isinstance(one, asyncio.CancelledError) for one in done] == [n == 5 for n in range(10)]


@pytest.mark.parametrize("size", [1, GATHERED_MOST - 1, GATHERED_MOST + 1])
@run
async def test_a_call_of_any_size_stays_whole(size: int) -> None:
    async with opened() as store:
        calls = [[task() for _ in range(size)] for _ in range(3)]
        answers = await asyncio.gather(*map(store.submit, calls))
        assert [[one.id for one in answer] for answer in answers] == [[new.id for new in tasks] for tasks in calls]


@pytest.mark.parametrize(("size", "key"), [(500, None), (333, "k")])
@run
async def test_a_call_that_just_fills_an_atomic_step_is_taken(size: int, key: str | None) -> None:
    """With what those who follow are told it is more than a step takes."""
    async with opened() as store:
        if key is None:
            await store.submit([task()])
        tasks = [task(key=key and f"{key}{number}") for number in range(size)]
        assert [one.id for one in await store.submit(tasks)] == [new.id for new in tasks]
