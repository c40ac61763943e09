"""What this store keeps in its own way: long texts apart, policies as text, counts and queues beside the records."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import ids
from holdfast.errors import HoldfastError, IdempotencyConflict, TaskNotFound
from holdfast.model.backoff import Delays, Exponential
from holdfast.model.claim import Lease
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Settlement
from holdfast.model.query import Retention, TaskFilter
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Change, Settled
from holdfast.stores.sqlite.rows import APART_CHARS
from holdfast.stores.sqlite.store import SQLiteStore
from holdfast.stores.sqlite.submit import CHUNKS
from tests.stores.sqlite_support import claim_one, new_task, opened, request

LONG = '"' + "ü" * APART_CHARS + '"'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as conn:
        return int(conn.execute(f"SELECT count(*) FROM holdfast_{table}").fetchone()[0])


async def completed(store: SQLiteStore, result: str) -> str:
    claim = await claim_one(store)
    (answer,) = await store.settle([Settlement(claim.lease, Completed(result))])
    assert answer == Settled(claim.task_id, 1, TaskStatus.COMPLETED)
    return claim.payload


def test_long_payloads_and_results_come_back_and_go_with_their_task(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            task = new_task(payload=LONG)
            await store.submit([task])
            assert await store.submit([task]) == await store.submit([task])
            assert await completed(store, LONG) == LONG
            (shown,) = await store.page(TaskFilter())
            assert shown.payload == shown.result == LONG[1:-1]
            assert rows(path, "payloads") == rows(path, "results") == 1
            await store.amend(Change.DELETE, [task.id], actor="operator")
            assert rows(path, "payloads") == rows(path, "results") == rows(path, "tasks") == 0

    asyncio.run(use())


def test_a_long_result_with_something_emitted_comes_back_too(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            follow_up = new_task(payload=LONG)
            await store.submit([new_task()])
            claim = await claim_one(store)
            await store.settle([Settlement(claim.lease, Completed(LONG), (), (follow_up,))])
            first, second = await store.get(claim.task_id), await store.get(follow_up.id)
            assert first is not None and first.result == LONG[1:-1]  # noqa: PT018
            assert second is not None and second.payload == LONG[1:-1]  # noqa: PT018

    asyncio.run(use())


def test_spans_come_back_to_the_last_bit(path: Path) -> None:
    odd = 0.1 + 0.2
    task = new_task(timeout=odd, lease=1 / 3, backoff=Exponential(base=odd, cap=1e6 / 7, jitter=1 / 9))

    async def use() -> None:
        async with opened(path) as store:
            await store.submit([task, new_task(backoff=Delays(1 / 3, 2 / 3))])
            shown = await store.get(task.id)
            assert shown is not None
            assert (shown.timeout, shown.lease, shown.backoff) == (odd, 1 / 3, task.backoff)
            claim = await claim_one(store)
            assert claim.timeout == odd

    asyncio.run(use())


@pytest.mark.parametrize("count", [1, CHUNKS[-2] + 1, CHUNKS[0] - 1, sum(CHUNKS)])
def test_a_batch_of_any_size_is_stored_in_order(path: Path, count: int) -> None:
    tasks = [new_task(payload=str(number)) for number in range(count)]

    async def use() -> None:
        async with opened(path, synchronous="normal") as store:
            await store.submit(tasks)
            claims = (await store.claim(request(limit=count))).claims
            assert [claim.payload for claim in claims] == [task.payload for task in tasks]

    asyncio.run(use())


def test_one_taken_key_among_many_new_tasks_is_found(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            await store.submit([new_task(idempotency_key="k", name="first")])
            batch = [new_task() for _ in range(CHUNKS[0] + 1)]
            with pytest.raises(IdempotencyConflict):
                await store.submit([*batch, new_task(idempotency_key="k", name="second")])
            answers = await store.submit([*batch, new_task(idempotency_key="k", name="first")])
            assert [answer.created for answer in answers] == [True] * len(batch) + [False]
            assert (await store.queues())[0].counts == {"queued": len(batch) + 1}

    asyncio.run(use())


def test_a_batch_of_all_kinds_of_ends_is_settled_each_for_itself(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            await store.submit([new_task(payload=str(number)) for number in range(5)])
            leases = [claim.lease for claim in (await store.claim(request(limit=5))).claims]
            plain, failed, twice, stale, unknown = leases
            unknown = Lease(ids.task_id(), 1, ids.token())
            answers = await store.settle(
                [
                    Settlement(plain, Completed()),
                    Settlement(failed, Failed(ErrorInfo("no"), unrecoverable=True)),
                    Settlement(twice, Failed(ErrorInfo("no"))),
                    Settlement(twice, Completed()),
                    Settlement(Lease(stale.task_id, 1, ids.token()), Completed()),
                    Settlement(unknown, Completed()),
                    Settlement(plain, Completed()),
                ]
            )
            said = [one.code if isinstance(one, HoldfastError) else one.status for one in answers]
            lost = "lease_lost"
            assert said == ["completed", "failed", "queued", lost, lost, "task_not_found", "completed"]
            assert all(well for _, well, _ in await store.check())

    asyncio.run(use())


@pytest.mark.parametrize("odd", ["\ud800", "x\x00y", "x' OR 1=1 --", "", "x" * 100_000])
def test_an_odd_id_is_no_task(path: Path, odd: str) -> None:
    async def use() -> None:
        async with opened(path) as store:
            await store.submit([new_task(id="x")])
            assert await store.get(odd) is None
            (amended, cancelled) = await store.amend(Change.CANCEL, [odd, "x"], actor="operator")
            assert isinstance(amended, TaskNotFound)
            assert not isinstance(cancelled, HoldfastError)
            assert await store.events(odd, after=0, limit=10) == []

    asyncio.run(use())


def test_tombstones_outlive_their_task_and_are_pruned_in_the_end(path: Path) -> None:
    task = new_task(run_id="r")

    async def use() -> None:
        async with opened(path) as store:
            await store.submit([task])
            for change in (Change.CANCEL, Change.DELETE):
                await store.amend(change, [task.id], actor="operator")
            (event,) = await store.events(task.id, after=0, limit=10)
            assert (event.kind, event.task_id, event.run_id) == ("task.deleted", task.id, "r")
            assert await store.prune(Retention(), limit=10) == 0
            assert await store.events(None, after=0, limit=10) == [event]
            assert await store.prune(Retention(completed=timedelta(0)), limit=10) == 0
            assert await store.events(None, after=0, limit=10) == []
            await store.submit([task])
            (again,) = await store.events(task.id, after=0, limit=10)
            assert again.id > event.id

    asyncio.run(use())


def test_claims_walk_priorities_and_queues_in_one_order(path: Path) -> None:
    async def use() -> list[str]:
        async with opened(path) as store:
            tasks: list[NewTask] = [
                new_task(queue=queue, priority=priority, payload=f'"{queue}{priority}{number}"')
                for number in range(2)
                for queue in ("a", "b", "c")
                for priority in (0, 5, -5)
            ]
            await store.submit(tasks)
            await store.pause("c", paused=True)
            found: list[str] = []
            for limit in (1, 3, 7, 50):
                found += [claim.payload for claim in (await store.claim(request(limit=limit))).claims]
            return found

    said = [text.strip('"') for text in asyncio.run(use())]
    assert said == [f"{queue}{priority}{number}" for priority in (5, 0, -5) for number in (0, 1) for queue in "ab"]


def test_what_is_no_text_names_no_task(path: Path) -> None:
    async def main() -> None:
        async with opened(path) as store:
            for odd in (5, None, b"x", uuid.uuid4()):
                assert await store.get(odd) is None  # type: ignore[arg-type]
                assert await store.find(odd) is None  # type: ignore[arg-type]

    asyncio.run(main())
