"""C4.4 for every kind of connection: the task exists if and only if the caller's transaction commits."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Handle, Holdfast
from holdfast.errors import IdempotencyConflict, InvalidTask, TaskNotFound
from tests.joined import kinds
from tests.joined.kinds import AWAITED, PLAIN, Place, RolledBack

HOSTILE = ["\x00", "\\u0000", '"; drop table tasks; --', "%s %(x)s $1 ?", -0.0, 1e16, 2**70, "𝄞é", [[]], {"": None}]


class Shop:
    """An app, its place, and a table beside it in the same database."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.app = Holdfast(place.url, **place.options)
        self.app.queues.list()  # makes the schema, in which the table goes with it
        self.table = f"{place.options['schema']}.orders" if place.options else "orders"
        self.sent: list[list[Any]] = []

        @self.app.task(name="send", queue="mail")
        async def send(*args: Any) -> int:
            self.sent.append(list(args))
            return len(args)

        self.send = send

    @property
    def make_table(self) -> str:
        return f"create table if not exists {self.table} (n integer)"

    @property
    def insert(self) -> str:
        return f"insert into {self.table} values (1)"


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(kinds.place_of(request.node.callspec.params["kind"], tmp_path))
    with made.app:
        yield made


def exists(handle: Handle[Any]) -> bool:
    try:
        handle.task()
    except TaskNotFound:
        return False
    return True


@pytest.mark.parametrize("kind", PLAIN)
def test_a_task_comes_with_the_transaction(shop: Shop, kind: str) -> None:
    def work(connection: Any, run: Callable[[str], Any]) -> Handle[Any]:
        run(shop.make_table)
        run(shop.insert)
        return shop.send.using(connection=connection, priority=3).enqueue(*HOSTILE)

    handle = PLAIN[kind](shop.place, work)
    assert handle.created
    assert (handle.task().queue, handle.task().priority) == ("mail", 3)
    assert [event.kind for event in handle.events()] == ["task.enqueued"]
    assert shop.app.tasks.count()["queued"] == 1
    shop.app.worker().run(until_idle=True)
    assert repr(shop.sent) == repr([HOSTILE])
    assert handle.result(timeout=10) == len(HOSTILE)


@pytest.mark.parametrize("kind", PLAIN)
def test_a_task_goes_with_the_transaction(shop: Shop, kind: str) -> None:
    handles: list[Handle[Any]] = []

    def work(connection: Any, run: Callable[[str], Any]) -> None:
        run(shop.make_table)
        handles.extend(shop.app.using(connection=connection).enqueue_many([shop.send.s(1), shop.send.s(2)]))
        handles.append(shop.app.using(connection=connection).enqueue("send", 3))
        run(shop.insert)
        raise RolledBack

    with pytest.raises(RolledBack):
        PLAIN[kind](shop.place, work)
    assert not any(exists(handle) for handle in handles)
    assert shop.app.tasks.count()["queued"] == 0


@pytest.mark.parametrize("kind", PLAIN)
def test_a_refused_submit_leaves_the_transaction_usable(shop: Shop, kind: str) -> None:
    def work(connection: Any, run: Callable[[str], Any]) -> list[Handle[Any]]:
        run(shop.make_table)
        keyed = shop.send.using(connection=connection, idempotency_key="k")
        first, again = keyed.enqueue(1), keyed.enqueue(2)
        with pytest.raises(IdempotencyConflict):
            shop.app.using(connection=connection, idempotency_key="k").enqueue("other")
        with pytest.raises(InvalidTask):
            keyed.enqueue({1})
        run(shop.insert)
        return [first, again]

    first, again = PLAIN[kind](shop.place, work)
    assert (first.id, first.created, again.created) == (again.id, True, False)
    assert first.task().payload["args"] == [1]
    assert shop.app.tasks.count()["queued"] == 1


# Django itself refuses its connections in async code.
@pytest.mark.parametrize("kind", [kind for kind in PLAIN if not kind.startswith("Django")])
def test_a_plain_connection_also_works_in_a_running_loop(shop: Shop, kind: str) -> None:
    async def use() -> list[Handle[Any]]:
        def work(connection: Any, run: Callable[[str], Any]) -> Handle[Any]:
            return shop.send.using(connection=connection).enqueue(1)

        return [PLAIN[kind](shop.place, work)]

    (handle,) = asyncio.run(use())
    assert exists(handle)


@pytest.mark.parametrize("kind", AWAITED)
def test_an_awaited_task_comes_with_the_transaction(shop: Shop, kind: str) -> None:
    async def use() -> Handle[Any]:
        async def work(connection: Any, run: Callable[[str], Awaitable[Any]]) -> Handle[Any]:
            await run(shop.make_table)
            await run(shop.insert)
            return await shop.send.using(connection=connection).aenqueue(*HOSTILE)

        handle: Handle[Any] = await AWAITED[kind](shop.place, work)
        await shop.app.worker().arun(until_idle=True)
        return handle

    handle = asyncio.run(use())
    assert repr(shop.sent) == repr([HOSTILE])
    assert handle.result(timeout=10) == len(HOSTILE)


@pytest.mark.parametrize("kind", AWAITED)
def test_an_awaited_task_goes_with_the_transaction(shop: Shop, kind: str) -> None:
    handles: list[Handle[Any]] = []

    async def use() -> None:
        async def work(connection: Any, run: Callable[[str], Awaitable[Any]]) -> None:
            calls = [shop.send.s(1), shop.send.s(2)]
            handles.extend(await shop.app.aenqueue_many(calls, connection=connection))
            handles.append(await shop.app.using(connection=connection).aenqueue("send", 3))
            raise RolledBack

        await AWAITED[kind](shop.place, work)

    with pytest.raises(RolledBack):
        asyncio.run(use())
    assert not any(exists(handle) for handle in handles)
    assert shop.app.tasks.count()["queued"] == 0


@pytest.mark.parametrize("kind", AWAITED)
def test_a_refused_awaited_submit_leaves_the_transaction_usable(shop: Shop, kind: str) -> None:
    async def use() -> tuple[Handle[Any], Handle[Any]]:
        async def work(connection: Any, run: Callable[[str], Awaitable[Any]]) -> tuple[Handle[Any], Handle[Any]]:
            keyed = shop.send.using(connection=connection, idempotency_key="k")
            first, again = await keyed.aenqueue(1), await keyed.aenqueue(2)
            with pytest.raises(IdempotencyConflict):
                await shop.app.using(connection=connection, idempotency_key="k").aenqueue("other")
            with pytest.raises(RuntimeError, match="aenqueue"):
                keyed.enqueue(1)
            await run(shop.make_table)
            return first, again

        both: tuple[Handle[Any], Handle[Any]] = await AWAITED[kind](shop.place, work)
        return both

    first, again = asyncio.run(use())
    assert (first.id, first.created, again.created) == (again.id, True, False)
    assert shop.app.tasks.count()["queued"] == 1
