"""Every kind of handler runs, once per task, with its own context."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from typing import Any, cast

from holdfast import Context, Holdfast, current_task
from holdfast.stores.protocol import Store
from tests.runtime.support import Crew, ended, work_off

REQUEST: contextvars.ContextVar[str] = contextvars.ContextVar("request", default="nobody")


class Counting:
    """A store that counts how often each verb is called."""

    def __init__(self, store: Store, calls: Counter[str]) -> None:
        self._store = store
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        self._calls[name] += 1
        return getattr(self._store, name)


def test_every_task_runs_once(any_app: Holdfast) -> None:
    seen: list[int] = []

    @any_app.task(name="note")
    async def note(number: int) -> int:
        seen.append(number)
        return number

    handles = any_app.enqueue_many([note.s(number) for number in range(300)])
    work_off(any_app, concurrency=20)
    assert sorted(seen) == list(range(300))
    tasks = [handle.task() for handle in handles]
    assert [task.result for task in tasks] == list(range(300))
    assert {(task.status.value, task.attempt, task.failures) for task in tasks} == {("completed", 1, 0)}


def test_claims_and_settles_travel_in_batches(app: Holdfast) -> None:
    calls: Counter[str] = Counter()
    opened = app.connections.factory
    app.connections.factory = lambda: cast(Store, Counting(opened(), calls))

    @app.task(name="nothing")
    async def nothing() -> None: ...

    app.enqueue_many([nothing.s() for _ in range(2000)])
    work_off(app, concurrency=100)
    assert app.tasks.count()["completed"] == 2000
    assert calls["claim"] < 200
    assert calls["settle"] < 200


def test_a_worker_takes_only_the_queues_it_was_given(app: Holdfast) -> None:
    @app.task(name="letter", queue="mail")
    async def letter() -> None: ...

    here, elsewhere = letter.enqueue(), letter.using(queue="other").enqueue()
    work_off(app, queues=["mail"])
    assert here.task().status == "completed"
    assert elsewhere.task().status == "queued"


def test_a_plain_function_runs_in_a_thread_and_a_coroutine_on_the_loop(app: Holdfast) -> None:
    where: dict[str, int] = {}

    @app.task(name="plain")
    def plain() -> None:
        where["plain"] = threading.get_ident()

    @app.task(name="coroutine")
    async def coroutine() -> None:
        asyncio.get_running_loop()
        where["coroutine"] = threading.get_ident()

    plain.enqueue()
    coroutine.enqueue()
    work_off(app)
    assert where["coroutine"] == threading.get_ident()
    assert where["plain"] != threading.get_ident()


def test_the_context_comes_first_where_it_was_asked_for(app: Holdfast) -> None:
    @app.task(name="described", takes_context=True, max_attempts=7)
    async def described(ctx: Context, word: str, *, loud: bool = False) -> list[Any]:
        same = ctx is current_task()
        return [word, loud, ctx.id, ctx.name, ctx.attempt, ctx.failures, ctx.max_attempts, ctx.run_id, same]

    handle = described.using(run_id="r1").enqueue("hello", loud=True)
    work_off(app)
    assert handle.result(timeout=5) == ["hello", True, handle.id, "described", 1, 0, 7, "r1", True]


def test_current_task_names_the_attempt_in_coroutines_and_threads(app: Holdfast) -> None:
    @app.task(name="in_loop", timeout=60)
    async def in_loop() -> list[Any]:
        await asyncio.sleep(0)
        ctx = current_task()
        return [ctx.id, ctx.worker_id, len(ctx.lease_token), ctx.deadline is not None]

    @app.task(name="in_thread")
    def in_thread() -> list[Any]:
        ctx = current_task()
        return [ctx.id, ctx.worker_id, len(ctx.lease_token), ctx.deadline is not None]

    first, second = in_loop.enqueue(), in_thread.enqueue()
    work_off(app, worker_id="w-1")
    assert first.result(timeout=5) == [first.id, "w-1", 36, True]
    assert second.result(timeout=5) == [second.id, "w-1", 36, False]


def test_context_variables_do_not_leak_from_task_to_task(app: Holdfast) -> None:
    @app.task(name="loop_leak")
    async def loop_leak(value: str) -> str:
        before = REQUEST.get()
        REQUEST.set(value)
        await asyncio.sleep(0)
        assert REQUEST.get() == value
        return before

    @app.task(name="thread_leak")
    def thread_leak(value: str) -> str:
        before = REQUEST.get()
        REQUEST.set(value)
        return before

    handles = [task.enqueue(f"r{number}") for task in (loop_leak, thread_leak) for number in range(10)]
    work_off(app, concurrency=2)
    assert {handle.result(timeout=5) for handle in handles} == {"nobody"}


def test_a_declared_function_is_still_a_function(app: Holdfast) -> None:
    @app.task
    def double(number: int) -> int:
        """Twice the number."""
        return 2 * number

    @app.task
    async def triple(number: int) -> int:
        return 3 * number

    assert double(4) == 8
    assert asyncio.run(triple(4)) == 12
    assert double.__doc__ == "Twice the number."


def test_a_worker_runs_in_any_thread_and_two_share_one_process(any_app: Holdfast) -> None:
    @any_app.task(name="who")
    def who() -> str:
        return current_task().worker_id

    with Crew(any_app, worker_id="a", concurrency=1), Crew(any_app, worker_id="b", concurrency=1):
        handles = any_app.enqueue_many([who.s() for _ in range(60)])
        tasks = [ended(handle) for handle in handles]
    assert {task.attempt for task in tasks} == {1}
    assert {task.result for task in tasks} <= {"a", "b"}


def test_a_handler_submits_more_work(any_app: Holdfast) -> None:
    @any_app.task(name="leaf")
    async def leaf(number: int) -> int:
        return number

    @any_app.task(name="from_loop")
    async def from_loop() -> str:
        return (await leaf.aenqueue(1)).id

    @any_app.task(name="from_thread")
    def from_thread() -> str:
        return leaf.enqueue(2).id

    first, second = from_loop.enqueue(), from_thread.enqueue()
    work_off(any_app)
    assert any_app.handle(first.result(timeout=5)).result(timeout=5) == 1
    assert any_app.handle(second.result(timeout=5)).result(timeout=5) == 2


def test_work_that_arrives_later_is_picked_up_without_waiting_for_the_poll(app: Holdfast) -> None:
    @app.task(name="quick")
    async def quick() -> int:
        return 1

    with Crew(app, poll_interval=3600):
        assert quick.enqueue().result(timeout=10) == 1
        assert quick.using(delay=0.2).enqueue().result(timeout=10) == 1


def test_until_idle_leaves_scheduled_work_alone(app: Holdfast) -> None:
    @app.task(name="later")
    async def later() -> None: ...

    handle = later.using(delay=3600).enqueue()
    work_off(app)
    assert handle.task().status == "queued"
    assert handle.task().attempt == 0


def test_a_paused_queue_is_left_alone_until_it_is_resumed(any_app: Holdfast) -> None:
    @any_app.task(name="held")
    async def held() -> int:
        return 1

    any_app.queues.pause("default")
    handle = held.enqueue()
    work_off(any_app)
    assert handle.task().status == "queued"
    any_app.queues.resume("default")
    work_off(any_app)
    assert handle.result(timeout=5) == 1
