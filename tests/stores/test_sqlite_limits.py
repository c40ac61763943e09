"""Limits in the file: who may start is found in bounded steps, and over processes no more start than may."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest

from holdfast.model.claim import Claimed
from holdfast.model.limits import Limits
from holdfast.model.outcome import Completed, Settlement
from holdfast.stores.sqlite.keys import LOOKED_AT, WALKED
from holdfast.stores.sqlite.store import SQLiteStore
from tests.stores.sqlite_support import child, claim_one, new_task, opened, query, request, with_store

HOUR = 3600.0


async def claimed(store: SQLiteStore, limit: int) -> Claimed:
    return await store.claim(request(limit=limit, lease_seconds=HOUR))


async def fill(store: SQLiteStore, key: str | None, tasks: int) -> None:
    await store.submit([new_task(name=str(key), concurrency_key=key) for _ in range(tasks)])


@pytest.mark.parametrize("most", [1, 2])
@with_store
async def test_a_full_key_does_not_hide_the_others(store: SQLiteStore, most: int) -> None:
    await store.limit("default", {"max_running_per_key": most})
    await fill(store, "full", 1000)
    await fill(store, "other", 5)
    await fill(store, None, 5)
    assert len((await claimed(store, most)).claims) == most
    granted = await claimed(store, 20)
    assert Counter(claim.name for claim in granted.claims) == {"other": most, "None": 5}
    assert not granted.more


@with_store
async def test_many_full_keys_are_walked_some_per_claim_and_the_walk_ends(store: SQLiteStore) -> None:
    keys = 3 * WALKED
    await store.limit("default", {"max_running_per_key": 1})
    for key in range(keys):
        await fill(store, f"k{key:04}", 2)
    while (await claimed(store, keys)).claims:
        pass
    await fill(store, "z", 1)
    answers = [await claimed(store, 1)]
    while answers[-1].more:
        answers.append(await claimed(store, 1))
    assert [claim.name for answer in answers for claim in answer.claims] == ["z"]
    assert len(answers) <= 1 + 2 * (keys // WALKED + 1)


@with_store
async def test_who_leaves_a_place_that_counts_wakes_claimers(store: SQLiteStore) -> None:
    await store.limit("mail", {"max_running": 1})
    await store.submit([new_task(queue="mail"), new_task(queue="mail"), new_task()])
    limited, unlimited = await claim_one(store, queues=("mail",)), await claim_one(store, queues=("default",))
    rung: list[None] = []
    stop = store._engine.hub.listen(lambda: rung.append(None))
    await store.settle([Settlement(unlimited.lease, Completed())])
    assert not rung
    await store.settle([Settlement(limited.lease, Completed())])
    assert rung
    stop()


@with_store
async def test_what_ran_before_a_limit_was_set_counts(store: SQLiteStore) -> None:
    await store.submit([new_task(concurrency_key="k") for _ in range(4)])
    before = (await claimed(store, 2)).claims
    await store.limit("default", {"max_running_per_key": 2})
    assert (await claimed(store, 5)).claims == []
    await store.settle([Settlement(claim.lease, Completed()) for claim in before])
    assert len((await claimed(store, 5)).claims) == 2
    assert query(store, "SELECT count(*) FROM holdfast_tasks WHERE placed") == [(2,)]


@with_store
async def test_a_long_look_takes_the_best_of_each_key_in_order(store: SQLiteStore) -> None:
    await store.limit("default", {"max_running_per_key": 2})
    await fill(store, "a", LOOKED_AT * 3)
    await fill(store, "b", LOOKED_AT * 3)
    names = [claim.name for claim in (await claimed(store, 10)).claims]
    assert names == ["a", "a", "b", "b"]


def test_over_processes_no_more_run_than_may_and_each_key_in_order(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"
    tasks = [new_task(run_id="run", concurrency_key=f"k{n % 4}" if n % 5 else None) for n in range(60)]

    async def prepare() -> None:
        async with opened(path) as store:
            await store.limit("default", {"max_running": 3, "max_running_per_key": 1})
            await store.submit(tasks)

    async def history() -> list[tuple[str, str]]:
        async with opened(path) as store:
            return [(event.kind, event.task_id) for event in await store.events(None, after=0, limit=1000)]

    asyncio.run(prepare())
    with ExitStack() as stack:
        workers = [stack.enter_context(child("drain", path)) for _ in range(4)]
        for worker in workers:
            assert worker.said() == "here"
        for worker in workers:
            worker.go_on()
        assert [worker.said() for worker in workers] == ["done"] * 4
    keys = {task.id: task.concurrency_key for task in tasks}
    running: set[str] = set()
    started: list[str] = []
    for kind, task_id in asyncio.run(history()):
        if kind == "task.running":
            running.add(task_id)
            started.append(task_id)
        elif kind == "task.completed":
            running.remove(task_id)
        assert len(running) <= 3
        busy = [keys[one] for one in running if keys[one] is not None]
        assert len(busy) == len(set(busy))
    assert len(started) == len(tasks)
    for key in {f"k{n}" for n in range(4)}:
        assert [one for one in started if keys[one] == key] == [task.id for task in tasks if keys[task.id] == key]


@with_store
async def test_limits_come_back_as_they_were_given(store: SQLiteStore) -> None:
    made = await store.limit("mail", {"rate": "7/3s", "burst": 2, "max_running": 5})
    assert await store.limit("mail", {}) == made
    cleared = await store.limit("mail", {"rate": None, "max_running": None})
    assert cleared == Limits(burst=2)
    assert {info.name: info.limits for info in await store.queues()} == {"mail": cleared}
    assert query(store, "SELECT limited FROM holdfast_queues") == [(0,)]
