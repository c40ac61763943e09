"""Submitting: what is checked before anything is written, and from where it works."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Exponential, Fixed, Holdfast
from holdfast.errors import (
    IdempotencyConflict,
    InvalidTask,
    PayloadTooLarge,
    StoreClosed,
    StoreUnavailable,
    TaskCanceled,
    TaskFailed,
    TaskNotFound,
)
from holdfast.model.backoff import DelayList
from holdfast.stores.sqlite import engine
from tests.runtime.support import memory_state, wait_until


@pytest.fixture
def app() -> Iterator[Holdfast]:
    with Holdfast("memory://") as opened:
        yield opened


def nothing_was_written(app: Holdfast) -> bool:
    return app.tasks.list() == []


# Arguments


@pytest.mark.parametrize(
    ("args", "kwargs", "words"),
    [
        ((), {}, "missing a required argument: 'user_id'"),
        ((1, 2), {}, "too many positional arguments"),
        ((1,), {"user_id": 1}, "multiple values"),
        ((1,), {"colour": "red"}, "unexpected keyword argument 'colour'"),
        ((1,), {"delay": 60}, "unexpected keyword argument 'delay'"),
    ],
)
def test_a_call_the_handler_could_not_take_is_refused(
    app: Holdfast, args: tuple[Any, ...], kwargs: dict[str, Any], words: str
) -> None:
    @app.task(name="send")
    async def send(user_id: int, *, template: str = "welcome") -> None: ...

    with pytest.raises(InvalidTask, match=words) as refused:
        send.enqueue(*args, **kwargs)
    assert "'send'" in str(refused.value)
    assert "user_id" in str(refused.value)
    with pytest.raises(InvalidTask):
        app.enqueue("send", *args, **kwargs)
    assert nothing_was_written(app)


def test_the_context_is_no_argument_of_a_submit(app: Holdfast) -> None:
    @app.task(name="send", takes_context=True)
    def send(ctx: Context, user_id: int) -> None: ...

    def no_parameter() -> None: ...

    send.enqueue(7)
    with pytest.raises(InvalidTask, match="too many positional"):
        send.enqueue(1, 2)  # type: ignore[call-arg]
    with pytest.raises(InvalidTask, match="no parameter for it"):
        app.task(name="none", takes_context=True)(no_parameter)  # type: ignore[arg-type]


def test_the_payload_is_the_call(app: Holdfast) -> None:
    @app.task(name="send")
    async def send(user_id: int, *, template: str = "welcome") -> None: ...

    assert send.enqueue(7, template="x").task().payload == {"args": [7], "kwargs": {"template": "x"}}


@pytest.mark.parametrize(
    "value", [(1,), {1}, b"x", float("nan"), float("inf"), object(), "\udc80", {1: 2}, datetime.now(UTC), 1 << 5000]
)
def test_arguments_that_json_does_not_return_are_refused(app: Holdfast, value: Any) -> None:
    @app.task(name="take")
    async def take(value: Any) -> None: ...

    with pytest.raises(InvalidTask):
        take.enqueue(value)
    with pytest.raises(InvalidTask):
        app.enqueue_many([take.s(1), take.s([value])])
    assert nothing_was_written(app)


def test_an_argument_that_is_too_large_is_refused() -> None:
    with Holdfast("memory://", max_payload_bytes=100) as app:

        @app.task(name="take")
        async def take(value: str) -> None: ...

        with pytest.raises(PayloadTooLarge, match="more than 100"):
            take.enqueue("x" * 100)
        take.enqueue("x" * 50)
        assert app.tasks.count()["queued"] == 1


def test_too_many_at_once_are_refused(app: Holdfast) -> None:
    with pytest.raises(InvalidTask, match="at most 100,000"):
        app.enqueue_many([app.s("x")] * 100_001)
    assert app.enqueue_many([]) == []
    assert nothing_was_written(app)


def test_many_are_submitted_in_order(app: Holdfast) -> None:
    handles = app.enqueue_many(app.s("x", number) for number in range(50))
    assert [task.id for task in reversed(app.tasks.list())] == [handle.id for handle in handles]
    assert [handle.task().payload["args"] for handle in handles[:3]] == [[0], [1], [2]]
    assert all(handle.created for handle in handles)


def test_many_are_submitted_all_or_none(app: Holdfast) -> None:
    app.using(idempotency_key="k").enqueue("other")
    with pytest.raises(IdempotencyConflict):
        app.enqueue_many([app.s("x"), app.using(idempotency_key="k").s("x")])
    assert [task.name for task in app.tasks.list()] == ["other"]


# Options


def test_options_travel_with_the_task(app: Holdfast) -> None:
    @app.task(name="send", queue="mail", priority=2, max_attempts=9, timeout=30, lease=timedelta(minutes=2))
    async def send() -> None: ...

    declared = send.enqueue().task()
    assert (declared.queue, declared.priority, declared.max_attempts) == ("mail", 2, 9)
    assert (declared.timeout, declared.lease) == (30, 120)
    at = datetime(2040, 1, 1, tzinfo=UTC)
    task = (
        send.using(queue="q", priority=-3, max_attempts=0, timeout=None, lease=5, backoff=Fixed(3))
        .using(run_at=at, idempotency_key="i", concurrency_key="c", run_id="r", meta={"m": 1})
        .enqueue()
        .task()
    )
    assert (task.queue, task.priority, task.max_attempts, task.timeout, task.lease) == ("q", -3, 0, None, 5)
    assert (task.backoff, task.run_at, task.idempotency_key) == (Fixed(3), at, "i")
    assert (task.concurrency_key, task.run_id, task.meta) == ("c", "r", {"m": 1})
    assert send.enqueue().task().queue == "mail"


def test_a_delay_counts_from_the_stores_now(app: Holdfast) -> None:
    task = app.using(delay=timedelta(hours=1)).enqueue("x").task()
    assert task.run_at - task.created_at == timedelta(hours=1)


@pytest.mark.parametrize(
    "options",
    [
        {"queue": ""},
        {"queue": 7},
        {"queue": "a\nb"},
        {"queue": "x" * 513},
        {"priority": 40_000},
        {"priority": 1.5},
        {"priority": True},
        {"delay": -1},
        {"delay": "soon"},
        {"delay": float("nan")},
        {"run_at": datetime(2040, 1, 1)},  # noqa: DTZ001  naive on purpose
        {"run_at": 5},
        {"delay": 1, "run_at": datetime(2040, 1, 1, tzinfo=UTC)},
        {"max_attempts": -1},
        {"max_attempts": "3"},
        {"timeout": 0},
        {"lease": -1},
        {"backoff": 5},
        {"backoff": Fixed(-1)},
        {"idempotency_key": ""},
        {"concurrency_key": 5},
        {"run_id": b"r"},
        {"meta": []},
        {"meta": {"x": float("nan")}},
        {"meta": {"x": "y" * 20_000}},
    ],
)
def test_bad_options_are_refused_before_anything_is_written(app: Holdfast, options: Any) -> None:
    with pytest.raises(InvalidTask):
        app.using(**options).enqueue("x")
    assert nothing_was_written(app)


def test_an_option_nobody_knows_is_refused_by_name(app: Holdfast) -> None:
    with pytest.raises(TypeError, match="colour"):
        app.task(colour="red")(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"colour.*queue"):
        app.using(colour="red").enqueue("x")  # type: ignore[call-arg]


def test_a_place_that_does_not_suit_the_function_is_refused(app: Holdfast) -> None:
    async def coroutine() -> None: ...

    def plain() -> None: ...

    with pytest.raises(InvalidTask, match="would block the event loop"):
        app.task(run_in="loop")(plain)
    with pytest.raises(InvalidTask, match="coroutine function"):
        app.task(run_in="thread")(coroutine)
    with pytest.raises(InvalidTask, match="'loop', 'thread' or 'process'"):
        app.task(run_in="moon")(plain)  # type: ignore[call-overload]


def test_two_handlers_of_one_name_are_refused(app: Holdfast) -> None:
    app.task(name="send")(lambda: 1)
    with pytest.raises(InvalidTask, match="two handlers are declared as 'send'"):
        app.task(name="send")(lambda number: number)


def test_a_backoff_function_is_evaluated_at_submit(app: Holdfast) -> None:
    asked: list[int] = []

    def growing(failures: int) -> float:
        asked.append(failures)
        return 10.0 * failures

    handle = app.using(max_attempts=4, backoff=growing).enqueue("x")
    assert handle.task().backoff == DelayList((10.0, 20.0, 30.0))
    assert asked == [1, 2, 3]


# Idempotency and names


def test_a_known_key_answers_with_the_task_that_has_it(app: Holdfast) -> None:
    first = app.using(idempotency_key="k").enqueue("x", 1)
    second = app.using(idempotency_key="k", priority=3).enqueue("x", 2)
    assert (first.created, second.created, second.id) == (True, False, first.id)
    assert first.task().payload["args"] == [1]
    with pytest.raises(IdempotencyConflict, match="'k'"):
        app.using(idempotency_key="k").enqueue("y")
    assert app.tasks.count()["queued"] == 1


def test_by_name_a_registered_handlers_policy_is_used(app: Holdfast) -> None:
    @app.task(name="send", queue="mail", max_attempts=2)
    async def send(user_id: int) -> None: ...

    known, unknown = app.enqueue("send", 7).task(), app.enqueue("other", 7, colour="red").task()
    assert (known.queue, known.max_attempts) == ("mail", 2)
    assert (unknown.queue, unknown.max_attempts, unknown.backoff) == ("default", 5, Exponential())
    assert unknown.payload == {"args": [7], "kwargs": {"colour": "red"}}
    with pytest.raises(InvalidTask):
        app.enqueue("")


# From where


def test_submitting_from_many_threads_at_once(app: Holdfast) -> None:
    start = threading.Barrier(8)

    def submit() -> None:
        start.wait()
        for _ in range(20):
            app.enqueue("x")

    threads = [threading.Thread(target=submit) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert app.tasks.count()["queued"] == 160


def test_submitting_from_async_code(app: Holdfast) -> None:
    @app.task(name="send")
    async def send(user_id: int) -> None: ...

    async def main() -> list[str]:
        handles = [await send.aenqueue(1), await app.aenqueue("x"), await app.using(queue="q").aenqueue("y")]
        handles += await app.aenqueue_many([send.s(2)])
        assert (await handles[0].atask()).status == "queued"
        assert [event.kind for event in await handles[0].aevents()] == ["task.enqueued"]
        return [task.name for task in await app.tasks.alist()]

    assert asyncio.run(main()) == ["send", "y", "x", "send"]


@pytest.mark.parametrize(
    ("plain", "call"),
    [
        ("enqueue", lambda app: app.enqueue("x")),
        ("enqueue_many", lambda app: app.enqueue_many([])),
        ("task", lambda app: app.handle("x").task()),
        ("result", lambda app: app.handle("x").result()),
        ("cancel", lambda app: app.handle("x").cancel()),
        ("retry", lambda app: app.handle("x").retry()),
        ("events", lambda app: app.handle("x").events()),
        ("list", lambda app: app.tasks.list()),
        ("count", lambda app: app.tasks.count()),
        ("release", lambda app: app.tasks.release("x")),
        ("purge", lambda app: app.dlq.purge()),
        ("pause", lambda app: app.queues.pause("x")),
        ("close", lambda app: app.close()),
    ],
)
def test_the_plain_form_in_a_running_loop_names_its_twin(app: Holdfast, plain: str, call: Any) -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match=rf"{plain}\(\).*await a{plain}"):
            call(app)

    asyncio.run(main())


def test_a_forked_child_submits_through_connections_of_its_own(tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/tasks.db") as app:
        app.enqueue("from_parent")
        assert in_child(lambda: app.enqueue("from_child")) == 0
        app.enqueue("from_parent")
        assert sorted(task.name for task in app.tasks.list()) == ["from_child", "from_parent", "from_parent"]


def test_a_memory_store_refuses_a_forked_child(app: Holdfast) -> None:
    app.enqueue("from_parent")

    def submit() -> None:
        with pytest.raises(StoreUnavailable, match="SQLite or PostgreSQL"):
            app.enqueue("from_child")

    assert in_child(submit) == 0
    assert [task.name for task in app.tasks.list()] == ["from_parent"]


def in_child(act: Any) -> int:
    """The exit code of a forked child that does this."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            act()
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status)


# Handles


def test_a_handle_waits_for_the_result(app: Holdfast) -> None:
    @app.task(name="add")
    async def add(a: int, b: int) -> int:
        return a + b

    worker = app.worker(poll_interval=0.05)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        assert add.enqueue(1, 2).result(timeout=10) == 3
        assert asyncio.run(aresult(app, 5)) == 5
    finally:
        worker.stop()
        thread.join()


async def aresult(app: Holdfast, number: int) -> Any:
    return await (await app.aenqueue("add", number, 0)).aresult(timeout=10)


def test_a_handle_says_how_it_ended_otherwise(app: Holdfast) -> None:
    @app.task(name="bad", max_attempts=1)
    async def bad() -> None:
        raise ValueError("no luck")

    failed, canceled, waiting = bad.enqueue(), app.using(delay=60).enqueue("x"), app.using(delay=60).enqueue("x")
    canceled.cancel()
    app.worker().run(until_idle=True)
    with pytest.raises(TaskFailed, match="no luck") as caught:
        failed.result(timeout=5)
    assert caught.value.error is not None
    assert caught.value.error["code"] == "ValueError"
    with pytest.raises(TaskCanceled, match="canceled"):
        canceled.result(timeout=5)
    with pytest.raises(TimeoutError):
        waiting.result(timeout=0.05)
    with pytest.raises(TaskNotFound):
        app.handle("nobody").result(timeout=5)


def test_a_closed_app_opens_again_when_it_is_used(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/tasks.db")
    app.enqueue("x")
    app.close()
    app.enqueue("x")
    assert app.tasks.count()["queued"] == 2
    app.close()
    app.close()

    async def main() -> int:
        async with app:
            await app.aenqueue("x")
            return (await app.tasks.acount())["queued"]

    assert asyncio.run(main()) == 3


def test_a_close_ends_what_other_threads_wait_for(app: Holdfast) -> None:
    """1. a thread waits for a result; 2. the app is closed: the thread is told, not left waiting for ever."""
    handle = app.enqueue("nobody_runs_it")
    heard: list[BaseException] = []

    def wait() -> None:
        try:
            handle.result()
        except StoreClosed as error:
            heard.append(error)

    waiter = threading.Thread(target=wait, daemon=True)
    waiter.start()
    state = memory_state(app)
    wait_until(lambda: state.hub._listeners, "the waiter to listen")
    app.close()
    waiter.join(20)
    assert "result()" in str(heard[0])


def test_an_app_lets_go_of_a_file_whose_event_loops_are_gone(tmp_path: Path) -> None:
    app = Holdfast(f"sqlite:///{tmp_path}/tasks.db")
    for _ in range(3):
        asyncio.run(app.aenqueue("x"))
    app.close()
    assert not [options for options, _ in engine._engines if str(tmp_path) in options.path]


def test_one_app_serves_a_web_process_and_a_worker(app: Holdfast) -> None:
    @app.task(name="add")
    async def add(a: int, b: int) -> int:
        return a + b

    async def main() -> list[int]:
        worker = app.worker(poll_interval=0.05)
        working = asyncio.create_task(worker.arun())
        handles = [await add.aenqueue(number, 1) for number in range(5)]
        results = [await handle.aresult(timeout=10) for handle in handles]
        worker.stop()
        await working
        return results

    assert asyncio.run(main()) == [1, 2, 3, 4, 5]


def test_what_is_not_a_call_is_refused_in_words(app: Holdfast) -> None:
    with pytest.raises(TypeError, match=r"task\.s\(…\)"):
        app.enqueue_many([5])  # type: ignore[list-item]
    assert app.tasks.list() == []


def test_the_events_of_no_task_are_not_those_of_all(app: Holdfast) -> None:
    app.enqueue("something")
    with pytest.raises(TaskNotFound):
        app.tasks.events(None)  # type: ignore[arg-type]


def test_a_refused_url_is_not_repeated() -> None:
    with pytest.raises(InvalidTask) as refused:
        Holdfast("mysql://me:secret@host/tasks")
    assert "secret" not in str(refused.value)
