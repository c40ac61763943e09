"""Callers whose transactions are open at the same time: who waits for whom, how long, and what each is told (C4.4)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from holdfast import Handle, Holdfast
from holdfast.errors import StoreUnavailable
from holdfast.model.outcome import Completed, Settlement
from tests import postgres_server
from tests.stores.postgres_support import claim_one, new_task, opened

ISOLATION = ["read_committed", "repeatable_read", "serializable"]
ROUNDS = 15


class Callers:
    """Two connections and an app."""

    def __init__(self, app: Holdfast, one: Any, other: Any, watch: Any) -> None:
        self.app = app
        self.one = one
        self.other = other
        self._watch = watch

    def enqueue(self, connection: Any, key: str) -> Awaitable[Handle[Any]]:
        return self.app.using(connection=connection, idempotency_key=key).aenqueue("probe")

    async def waiting(self, connection: Any) -> None:
        """Until the server says that this connection waits for a lock."""
        sql = "select count(*) from pg_locks where not granted and pid = $1"
        async with asyncio.timeout(20):
            while not await self._watch.fetchval(sql, connection.get_server_pid()):  # noqa: ASYNC110  nothing else tells
                await asyncio.sleep(0.01)


@asynccontextmanager
async def callers() -> AsyncIterator[Callers]:
    url = postgres_server.server().url
    connections = [await asyncpg.connect(url) for _ in range(3)]
    app = Holdfast(url, schema=postgres_server.fresh_schema())
    try:
        yield Callers(app, *connections)
    finally:
        for connection in connections:
            await connection.close()
        await app.aclose()


def run(work: Callable[[Callers], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with callers() as found:
            await work(found)

    asyncio.run(whole())


@pytest.mark.parametrize("isolation", ISOLATION)
def test_the_second_takes_the_key_when_the_first_rolls_back(isolation: str) -> None:
    """1. One submits with the key. 2. The other does, and waits. 3. One rolls back. 4. The other's task is the one."""

    async def work(callers: Callers) -> None:
        first = callers.one.transaction(isolation=isolation)
        await first.start()
        await callers.enqueue(callers.one, "k")
        async with callers.other.transaction(isolation=isolation):
            second = asyncio.ensure_future(callers.enqueue(callers.other, "k"))
            await callers.waiting(callers.other)
            await first.rollback()
            assert (await second).created
        assert (await callers.app.tasks.acount())["queued"] == 1
        assert (await (await second).atask()).idempotency_key == "k"

    run(work)


def test_the_second_gets_the_first_ones_task_when_that_commits() -> None:
    async def work(callers: Callers) -> None:
        first = callers.one.transaction()
        await first.start()
        handle = await callers.enqueue(callers.one, "k")
        async with callers.other.transaction():
            second = asyncio.ensure_future(callers.enqueue(callers.other, "k"))
            await callers.waiting(callers.other)
            await first.commit()
            assert ((await second).id, (await second).created) == (handle.id, False)
            assert (await callers.enqueue(callers.other, "another")).created
        assert (await callers.app.tasks.acount())["queued"] == 2

    run(work)


@pytest.mark.parametrize("isolation", ISOLATION[1:])
def test_a_snapshot_that_cannot_see_the_key_has_to_be_taken_anew(isolation: str) -> None:
    """As above, but the other's snapshot is older than the first one's commit and never shows its task: the database's
    own answer to that is a serialization failure, which such callers are ready for."""

    async def work(callers: Callers) -> None:
        async def second_try() -> Handle[Any]:
            async with callers.other.transaction(isolation=isolation):
                await callers.other.fetchval("select 1")
                return await callers.enqueue(callers.other, "k")

        first = callers.one.transaction(isolation=isolation)
        await first.start()
        handle = await callers.enqueue(callers.one, "k")
        second = asyncio.ensure_future(second_try())
        await callers.waiting(callers.other)
        await first.commit()
        with pytest.raises(asyncpg.SerializationError):
            await second
        again = await second_try()
        assert (again.id, again.created) == (handle.id, False)
        assert (await callers.app.tasks.acount())["queued"] == 1

    run(work)


def test_a_rival_is_waited_for_five_seconds_and_the_transaction_goes_on() -> None:
    async def work(callers: Callers) -> None:
        async with callers.one.transaction(), callers.other.transaction():
            await callers.enqueue(callers.one, "k")
            with pytest.raises(StoreUnavailable, match="within 5 s"):
                await callers.enqueue(callers.other, "k")
            assert (await callers.enqueue(callers.other, "free")).created
        assert (await callers.app.tasks.acount())["queued"] == 2

    run(work)


def test_keys_of_one_submit_are_taken_in_order_so_that_nobody_waits_in_a_circle() -> None:
    async def work(callers: Callers) -> None:
        async def submit(connection: Any, keys: list[str]) -> list[bool]:
            calls = [callers.app.using(idempotency_key=key).s("probe") for key in keys]
            async with connection.transaction():
                return [handle.created for handle in await callers.app.aenqueue_many(calls, connection=connection)]

        for n in range(ROUNDS):
            keys = [f"{n} {key}" for key in "abc"]
            one, other = await asyncio.gather(submit(callers.one, keys), submit(callers.other, keys[::-1]))
            assert [sum(pair) for pair in zip(one, other[::-1], strict=True)] == [1, 1, 1]

    run(work)


def test_keys_of_several_submits_in_a_circle_cost_one_of_the_callers_its_transaction() -> None:
    """1. One takes a, the other b. 2. One waits for b, the other for a. 3. The server notices, and one gives up."""

    async def work(callers: Callers) -> None:
        both_hold_one = asyncio.Barrier(2)

        async def caller(connection: Any, first: str, second: str) -> bool:
            async with connection.transaction():
                await callers.enqueue(connection, first)
                await both_hold_one.wait()
                return (await callers.enqueue(connection, second)).created

        answers = await asyncio.gather(
            caller(callers.one, "a", "b"), caller(callers.other, "b", "a"), return_exceptions=True
        )
        assert sorted(type(answer).__name__ for answer in answers) == ["StoreUnavailable", "bool"]
        assert (await callers.app.tasks.acount())["queued"] == 2

    run(work)


def test_serializable_callers_with_different_keys_do_not_disturb_each_other() -> None:
    async def work(callers: Callers) -> None:
        for n in range(ROUNDS):
            one = callers.one.transaction(isolation="serializable")
            other = callers.other.transaction(isolation="serializable")
            await one.start()
            await other.start()
            await callers.enqueue(callers.one, f"{n} one")
            await callers.enqueue(callers.other, f"{n} other")
            await one.commit()
            await other.commit()
        assert (await callers.app.tasks.acount())["queued"] == 2 * ROUNDS

    run(work)


def test_an_open_transaction_holds_up_no_submit_claim_or_settle() -> None:
    async def use() -> None:
        async with opened() as store:
            await store.submit([new_task(priority=-1)])
            connection = await asyncpg.connect(postgres_server.server().url)
            try:
                joined = (await store.joining()).into(connection)
                async with connection.transaction(), asyncio.timeout(2):
                    await joined.asubmit([new_task(idempotency_key="ours"), new_task()])
                    await store.submit([new_task(idempotency_key="theirs"), new_task()])
                    claims = [await claim_one(store) for _ in range(3)]
                    await store.extend([claim.lease for claim in claims])
                    settled = await store.settle([Settlement(claim.lease, Completed()) for claim in claims])
                    assert len(settled) == 3
                assert len([await claim_one(store) for _ in range(2)]) == 2
            finally:
                await connection.close()

    asyncio.run(use())
