"""Workers carry a workflow on: what one settle could not do, and finalizers of large chords, once."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack
from typing import Any

import pytest

from holdfast import Fixed, Holdfast, TaskManager
from holdfast.events.facts import PartFailed
from holdfast.maintenance import advancer
from holdfast.model.task import NewTask
from holdfast.policy.workflow import INLINE_ALL, INLINE_EACH
from tests.runtime.support import Crew, kinds, wait_until, work_off
from tests.runtime.workflow_support import chord, node, submit

MANY = 2 * INLINE_ALL + 1


def declare(app: Holdfast) -> list[Any]:
    """What each finalizer was called with."""
    finals: list[Any] = []

    @app.task(name="give")
    async def give(value: Any) -> Any:
        return value

    @app.task(name="fail")
    async def fail() -> None:
        raise ValueError

    @app.task(name="total")
    def total(values: list[int]) -> int:
        finals.append(values)
        return sum(values)

    return finals


def fan(root: str, *args: Any, size: int = MANY, **known: Any) -> list[NewTask]:
    first = node(root, *args)
    return [first, *(node("give", number, after=[first], **known) for number in range(size))]


def test_a_worker_is_not_idle_while_a_workflow_can_be_advanced(any_app: Holdfast) -> None:
    declare(any_app)
    submit(any_app, *fan("give", 0))
    work_off(any_app, concurrency=50)
    assert any_app.tasks.count()["completed"] == MANY + 1


def test_a_failure_cancels_all_that_depend_on_it(any_app: Holdfast) -> None:
    declare(any_app)
    root, *children = submit(any_app, *fan("fail"))
    work_off(any_app)
    assert any_app.tasks.count() == any_app.tasks.count() | {"failed": 1, "canceled": MANY, "waiting": 0, "queued": 0}
    assert children[-1].task().canceled_because == root.id


def test_a_worker_advances_without_being_asked(app: Holdfast) -> None:
    declare(app)
    with Crew(app, concurrency=50) as crew:
        submit(app, *fan("give", 0, size=INLINE_EACH + 50))
        wait_until(lambda: app.tasks.count()["completed"] == INLINE_EACH + 51)
    assert not crew.of(PartFailed)


def test_a_settle_of_a_run_is_followed_by_a_look(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    """The regular look is an hour away; what a settle has left is found because the settle said so."""
    monkeypatch.setattr(advancer, "INTERVAL_SECONDS", 3600.0)
    declare(app)
    with Crew(app, concurrency=50):
        assert app.enqueue("give", 1).result(20) == 1
        submit(app, *fan("give", 0, size=INLINE_EACH + 50))
        wait_until(lambda: app.tasks.count()["completed"] == INLINE_EACH + 52)


def test_drain_advances(app: Holdfast) -> None:
    declare(app)
    with app.testing() as t:
        submit(app, *fan("give", 0, size=INLINE_EACH + 50, delay_seconds=0.0))
        assert t.drain() == INLINE_EACH + 51


def test_a_call_with_inputs_is_found_by_its_own_arguments(app: Holdfast) -> None:
    @app.task(name="scale")
    async def scale(number: int, factor: int = 2, *, unit: str = "m") -> int:
        return number * factor

    declare(app)
    with app.testing() as t:
        first = node("give", 5)
        submit(app, first, node("scale", 3, inputs=[None], after=[first]), node("nowhere", 1, inputs=[2]))
        t.assert_enqueued(scale, factor=3, unit="m")
        t.refute_enqueued(scale, number=3)
        t.assert_enqueued("nowhere", **{"1": 1})


def test_a_manager_advances_what_its_settles_leave() -> None:
    async def main() -> None:
        async with await TaskManager.open("memory://") as manager:
            tasks = fan("root", size=INLINE_EACH + 50)
            await manager._store.submit(tasks)
            await manager.claim(tasks[0].id, "w")
            await manager.complete(tasks[0].id, worker_id="w")
            async with asyncio.timeout(20):
                while await manager.list("waiting"):  # noqa: ASYNC110  another thread advances
                    await asyncio.sleep(0.005)

    asyncio.run(main())


@pytest.mark.parametrize("workers", [1, 3])
def test_a_chord_of_thousands_ends_in_one_call_of_its_finalizer(any_app: Holdfast, workers: int) -> None:
    finals = declare(any_app)
    *_, final = submit(any_app, *chord("give", "total", 3000))
    with ExitStack() as crews:
        for _ in range(workers):
            crews.enter_context(Crew(any_app, concurrency=100))
        assert final.result(60) == sum(range(3000))
    assert finals == [list(range(3000))]
    assert kinds(final).count("task.ready") == 1


def test_members_that_are_retried_reaped_or_requeued_call_the_finalizer_once(any_app: Holdfast) -> None:
    """Of five members one is retried, one loses its lease, one is requeued as a dead letter; none is counted twice."""
    finals, failed = declare(any_app), set[int]()
    gone = threading.Event()

    @any_app.task(name="member")
    def member(number: int) -> int:
        if number < 2 and number not in failed:
            failed.add(number)
            raise ValueError
        if number == 2 and number not in failed:
            failed.add(number)
            gone.wait(20)
        return number

    members = [node("member", number, max_attempts=2 if number == 1 else 1, backoff=Fixed(0)) for number in range(5)]
    handles = submit(any_app, *members, node("total", inputs=[5], after=members))
    final = handles[-1]
    with Crew(any_app, concurrency=10):
        wait_until(lambda: handles[0].task().status == "failed")
        wait_until(lambda: 2 in failed)
        assert final.task().status == "canceled"
        handles[0].retry()
        any_app.tasks.release(handles[2].id)
        assert final.result(20) == 10
        gone.set()
    assert finals == [[0, 1, 2, 3, 4]]
    assert kinds(final).count("task.ready") == 1
