"""TaskManager keeps the rules of the Tasks design (contract section 17)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Protocol

import pytest

from holdfast import Task, TaskManager
from holdfast.errors import (
    HoldfastError,
    IdempotencyConflict,
    InvalidTask,
    InvalidWorkerID,
    LeaseLost,
    MaxAttemptsReached,
    StoreClosed,
    TaskAlreadyClaimed,
    TaskCompleted,
    TaskFailed,
    TaskNotClaimed,
    TaskNotFound,
    WrongWorker,
)


class Story(Protocol):
    def __call__(self, manager: TaskManager, /) -> Coroutine[Any, Any, None]: ...


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"memory://{tmp_path.name}" if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"


def tell(url: str, story: Story) -> None:
    async def main() -> None:
        async with await TaskManager.open(url) as manager:
            await story(manager)

    asyncio.run(main())


async def refused(kind: type[HoldfastError], call: Coroutine[Any, Any, Any]) -> None:
    with pytest.raises(kind) as caught:
        await call
    assert type(caught.value) is kind


def seen(task: Task) -> tuple[str, int, str | None]:
    return task.status.value, task.attempt, task.claimed_by


def test_submit_gives_the_same_id_for_the_same_key(url: str) -> None:
    async def story(manager: TaskManager) -> None:
        first = await manager.submit({"order_id": "123"}, idempotency_key="order-123", max_attempts=3)
        again = await manager.submit({"order_id": "other"}, idempotency_key="order-123")
        other = await manager.submit({"order_id": "123"})
        assert first == again != other
        task = await manager.get_by_idempotency_key("order-123")
        assert (task.id, task.name, task.payload, task.max_attempts) == (first, "task", {"order_id": "123"}, 3)
        await refused(IdempotencyConflict, manager.submit(1, name="another", idempotency_key="order-123"))
        await refused(TaskNotFound, manager.get_by_idempotency_key("nobody"))

    tell(url, story)


def test_what_may_be_submitted(url: str) -> None:
    async def story(manager: TaskManager) -> None:
        await refused(InvalidTask, manager.submit(None))
        await refused(InvalidTask, manager.submit((1, 2)))
        await refused(InvalidTask, manager.submit(1, name=""))
        await refused(InvalidTask, manager.submit(1, max_attempts=-1))
        assert await manager.list() == []
        payloads: list[Any] = [0, "", [], {}, False]
        for payload in payloads:
            assert (await manager.get(await manager.submit(payload))).payload == payload
        assert (await manager.get(await manager.submit(1, id="my-own"))).id == "my-own"

    tell(url, story)


def test_a_claim_is_exclusive_and_the_same_again_for_its_worker(url: str) -> None:
    async def story(manager: TaskManager) -> None:
        task_id = await manager.submit({"n": 1})
        claimed = await manager.claim(task_id, "w-1")
        assert seen(claimed) == ("running", 1, "w-1")
        assert await manager.claim(task_id, "w-1") == claimed
        await refused(TaskAlreadyClaimed, manager.claim(task_id, "w-2"))
        await refused(InvalidWorkerID, manager.claim(task_id, ""))
        await refused(TaskNotFound, manager.claim("nobody", "w-1"))

    tell(url, story)


def test_another_managers_claim_is_not_repeated(url: str) -> None:
    async def story(manager: TaskManager) -> None:
        task_id = await manager.submit({"n": 1})
        async with await TaskManager.open(url) as other:
            await other.claim(task_id, "w-1")
            await refused(TaskAlreadyClaimed, manager.claim(task_id, "w-1"))
            await refused(LeaseLost, manager.complete(task_id, worker_id="w-1"))
            await other.complete(task_id, worker_id="w-1")

    tell(url, story)


def test_complete_is_for_the_worker_that_claimed(url: str) -> None:
    async def story(manager: TaskManager) -> None:
        task_id = await manager.submit({"n": 1})
        await refused(TaskNotClaimed, manager.complete(task_id, worker_id="w-1"))
        await manager.claim(task_id, "w-1")
        await refused(WrongWorker, manager.complete(task_id, worker_id="w-2"))
        await refused(InvalidTask, manager.complete(task_id, {1}, worker_id="w-1"))
        done = await manager.complete(task_id, {"ok": True}, worker_id="w-1")
        assert (done.status, done.result) == ("completed", {"ok": True})
        await refused(TaskCompleted, manager.complete(task_id, worker_id="w-1"))
        await refused(TaskCompleted, manager.fail(task_id, "late", worker_id="w-1"))
        await refused(TaskCompleted, manager.claim(task_id, "w-1"))
        await refused(TaskCompleted, manager.retry(task_id))
        await refused(TaskNotFound, manager.complete("nobody", worker_id="w-1"))

    tell(url, story)


def test_fail_goes_back_at_once_until_the_attempts_are_spent(url: str) -> None:
    async def story(manager: TaskManager) -> None:
        task_id = await manager.submit({"n": 1}, max_attempts=2)
        await refused(TaskNotClaimed, manager.fail(task_id, "x", worker_id="w-1"))
        await manager.claim(task_id, "w-1")
        await refused(WrongWorker, manager.fail(task_id, "x", worker_id="w-2"))
        assert seen(await manager.fail(task_id, ValueError("no luck"), worker_id="w-1")) == ("queued", 1, None)
        assert seen(await manager.claim(task_id, "w-2")) == ("running", 2, "w-2")
        failed = await manager.fail(task_id, "still none", worker_id="w-2")
        assert seen(failed) == ("failed", 2, None)
        assert failed.last_error is not None
        assert (failed.last_error["message"], failed.last_error["terminal"]) == ("still none", True)
        await refused(TaskFailed, manager.claim(task_id, "w-1"))
        await refused(MaxAttemptsReached, manager.retry(task_id))

    tell(url, story)


def test_the_budget_is_compared_with_attempts_not_with_failures(url: str) -> None:
    """A running task that is retried has used an attempt, although nothing failed."""

    async def story(manager: TaskManager) -> None:
        task_id = await manager.submit({"n": 1}, max_attempts=2)
        await manager.claim(task_id, "w-1")
        assert seen(await manager.retry(task_id)) == ("queued", 1, None)
        await manager.claim(task_id, "w-1")
        await refused(MaxAttemptsReached, manager.retry(task_id))
        assert seen(await manager.fail(task_id, "x", worker_id="w-1")) == ("failed", 2, None)

    tell(url, story)


def test_retry_by_anyone_ends_the_lease_of_a_running_task(url: str) -> None:
    async def story(manager: TaskManager) -> None:
        task_id = await manager.submit({"n": 1})
        async with await TaskManager.open(url) as other:
            await other.claim(task_id, "w-1")
            assert seen(await manager.retry(task_id)) == ("queued", 1, None)
            await refused(TaskNotClaimed, other.complete(task_id, worker_id="w-1"))
            assert seen(await manager.claim(task_id, "w-2")) == ("running", 2, "w-2")
            await refused(WrongWorker, other.complete(task_id, worker_id="w-1"))
            assert (await manager.complete(task_id, worker_id="w-2")).status == "completed"

    tell(url, story)


def test_no_limit_means_no_limit(url: str) -> None:
    async def story(manager: TaskManager) -> None:
        task_id = await manager.submit({"n": 1}, max_attempts=0)
        for attempt in range(1, 13):
            assert (await manager.claim(task_id, "w")).attempt == attempt
            assert (await manager.fail(task_id, "x", worker_id="w")).status == "queued"

    tell(url, story)


def test_tasks_are_listed_by_status_and_deleted_once_they_ended(url: str) -> None:
    async def story(manager: TaskManager) -> None:
        waiting, done = await manager.submit(1), await manager.submit(2, idempotency_key="k")
        await manager.claim(done, "w")
        await refused(InvalidTask, manager.delete(done))
        await manager.complete(done, worker_id="w")
        assert [task.id for task in await manager.list("completed")] == [done]
        assert [task.id for task in await manager.list("queued")] == [waiting]
        assert len(await manager.list()) == 2
        await refused(InvalidTask, manager.delete(waiting))
        await manager.delete(done)
        await refused(TaskNotFound, manager.get(done))
        await refused(TaskNotFound, manager.delete(done))
        assert await manager.submit(2, idempotency_key="k") != done

    tell(url, story)


def test_more_tasks_than_a_page_are_listed(url: str) -> None:
    async def story(manager: TaskManager) -> None:
        await asyncio.gather(*(manager.submit(number) for number in range(1100)))
        assert len({task.id for task in await manager.list("queued")}) == 1100

    tell(url, story)


def test_a_claim_does_not_expire_under_a_living_manager(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASK_LOCK_MS", "400")

    async def story(manager: TaskManager) -> None:
        task_id = await manager.submit({"n": 1})
        claimed = await manager.claim(task_id, "w")
        assert claimed.lease_expires_at is not None
        first_expiry = claimed.lease_expires_at
        while (await manager._store.now() - first_expiry).total_seconds() < 0.5:  # noqa: ASYNC110  a clock, no event
            await asyncio.sleep(0.02)
        assert await manager._store.reap(limit=10, actor="reaper") == []
        done = await manager.complete(task_id, worker_id="w")
        assert (done.status, done.attempt, done.failures) == ("completed", 1, 0)

    tell(url, story)


def test_a_closed_manager_refuses_everything_and_lets_its_claims_run_out(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TASK_LOCK_MS", "200")

    async def main() -> None:
        manager, other = await TaskManager.open(url), await TaskManager.open(url)
        task_id = await manager.submit({"n": 1})
        await manager.claim(task_id, "w-1")
        await manager.close()
        await manager.close()
        for call in (manager.get(task_id), manager.list(), manager.submit(1), manager.claim(task_id, "w-1")):
            await refused(StoreClosed, call)
        await refused(StoreClosed, manager.fail(task_id, "x", worker_id="w-1"))
        for _ in range(500):
            try:
                assert (await other.claim(task_id, "w-2")).attempt == 2
                break
            except TaskAlreadyClaimed:
                await asyncio.sleep(0.02)
        else:
            raise AssertionError("the claim never ran out")
        await other.close()

    asyncio.run(main())
