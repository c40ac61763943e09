"""Handles that wait: together, in one read per look, woken by what happens, never for a task that is not there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from holdfast import Handle, Holdfast, group, waiting
from holdfast.errors import StoreUnavailable, TaskNotFound
from holdfast.model.task import Task
from holdfast.stores.protocol import Store
from tests.runtime.support import Crew, memory_state

MANY = 1000
NEVER_SECONDS = 600.0


class Looks:
    """How many tasks each look at the store asked for. The store itself answers."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        self.first = asyncio.Event()
        self.failed = asyncio.Event()
        self._ended = store.ended
        monkeypatch.setattr(store, "ended", self._look)

    async def _look(self, task_ids: Sequence[str], *, limit: int) -> dict[str, Task | None]:
        self.asked.append(len(task_ids))
        try:
            answer = await self._ended(task_ids, limit=limit)
        except StoreUnavailable:
            self.failed.set()
            raise
        self.first.set()
        return answer


def test_a_thousand_handles_wait_in_one_read(any_app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """Polling is switched off, so that every look but the first has its reason in an end."""
    monkeypatch.setattr(waiting, "FIRST_PAUSE_SECONDS", NEVER_SECONDS)

    @any_app.task(name="twice")
    async def twice(number: int) -> int:
        return 2 * number

    async def use() -> None:
        looks = Looks(any_app.client.store, monkeypatch)
        handles: list[Handle[Any]] = await any_app.aenqueue_many([twice.s(number) for number in range(MANY)])
        results = asyncio.gather(*(handle.aresult(timeout=60) for handle in handles))
        await looks.first.wait()
        assert looks.asked == [MANY]
        await any_app.worker(poll_interval=0.05).arun(until_idle=True)
        assert await results == [2 * number for number in range(MANY)]
        assert len(looks.asked) < MANY // 2  # each for itself would have looked twice
        await any_app.aclose()

    asyncio.run(use())


def test_handles_of_many_threads_share_their_looks(any_app: Holdfast) -> None:
    @any_app.task(name="twice")
    async def twice(number: int) -> int:
        return 2 * number

    async def use() -> None:
        handles = await asyncio.to_thread(any_app.enqueue_many, [twice.s(number) for number in range(20)])
        with Crew(any_app):
            waits = [asyncio.to_thread(handle.result, 30) for handle in handles]
            assert await asyncio.gather(*waits) == [2 * number for number in range(20)]

    asyncio.run(use())
    assert any_app.client._waiters == {}


def test_two_that_wait_for_the_same_task_both_get_it(any_app: Holdfast) -> None:
    async def use() -> None:
        handle = await any_app.aenqueue("nobody.knows.it")
        waits = [asyncio.create_task(handle.aresult(timeout=30)) for _ in range(2)]
        late = asyncio.create_task(handle.aresult(timeout=0.01))
        with pytest.raises(TimeoutError):
            await late
        await handle.acancel()
        assert [type(error).__name__ for error in await asyncio.gather(*waits, return_exceptions=True)] == [
            "TaskCanceled",
            "TaskCanceled",
        ]
        await any_app.aclose()

    asyncio.run(use())
    assert any_app.client._waiters == {}


def test_a_task_that_does_not_exist_or_is_deleted_is_not_waited_for(any_app: Holdfast) -> None:
    async def use() -> None:
        with pytest.raises(TaskNotFound):
            await any_app.handle("01890000-0000-7000-8000-000000000000").aresult(timeout=30)
        handle = await any_app.aenqueue("nobody.knows.it")
        await handle.acancel()
        await any_app.tasks.adelete(handle.id)
        with pytest.raises(TaskNotFound):
            await handle.aresult(timeout=30)
        await any_app.aclose()

    asyncio.run(use())


def test_who_waits_for_tasks_and_runs_waits_through_an_outage(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(name="twice")
    async def twice(number: int) -> int:
        return 2 * number

    async def use() -> None:
        looks = Looks(app.client.store, monkeypatch)
        handles = await app.aenqueue_many([twice.s(number) for number in range(3)])
        run = await group([twice.s(3), twice.s(4)]).aenqueue()
        waits = [asyncio.create_task(handle.aresult(timeout=60)) for handle in handles]
        all_of_it = asyncio.create_task(run.aresult(timeout=60))
        await looks.first.wait()
        memory_state(app).go_away()
        await looks.failed.wait()
        assert not any(wait.done() for wait in (*waits, all_of_it))
        memory_state(app).come_back()
        await app.worker(poll_interval=0.05).arun(until_idle=True)
        assert await asyncio.gather(*waits) == [0, 2, 4]
        assert await all_of_it == [6, 8]

    asyncio.run(use())


def test_an_outage_is_waited_through_until_the_timeout_and_no_look_is_left(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def use() -> None:
        looks = Looks(app.client.store, monkeypatch)
        handle = await app.aenqueue("nobody.knows.it")
        memory_state(app).go_away()
        with pytest.raises(TimeoutError, match="the store is away"):
            await handle.aresult(timeout=0.2)
        assert looks.failed.is_set()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait_for(asyncio.gather(*others), 30)  # the store is away still

    asyncio.run(use())


def test_what_waiting_does_not_heal_is_told_to_everybody_who_waits(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(task_ids: Sequence[str], *, limit: int) -> dict[str, Task | None]:
        raise StoreUnavailable("no such password", lasting=True)

    async def use() -> None:
        handles = [await app.aenqueue("nobody.knows.it") for _ in range(3)]
        monkeypatch.setattr(app.client.store, "ended", refused)
        errors = await asyncio.gather(*(one.aresult(timeout=60) for one in handles), return_exceptions=True)
        assert [type(error) for error in errors] == [StoreUnavailable] * 3

    asyncio.run(use())
