"""What a handler says about its own attempt: progress at once and fenced, events and follow-ups with the settle."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import Context, Fixed, Holdfast, HoldfastError, current_task
from holdfast.errors import InvalidTask, LeaseLost, TaskFailed
from tests.runtime.support import Crew, code_of, ended, kinds, wait_until, work_off


def test_there_is_no_context_outside_of_a_handler() -> None:
    with pytest.raises(HoldfastError, match="outside of a handler"):
        current_task()


def test_progress_is_recorded_at_once(any_app: Holdfast) -> None:
    gate = threading.Event()

    @any_app.task(name="steps", takes_context=True)
    def steps(ctx: Context) -> None:
        ctx.progress(30, 100, "resizing")
        gate.wait(20)

    @any_app.task(name="asteps", takes_context=True)
    async def asteps(ctx: Context) -> None:
        await ctx.aprogress(1, 2)
        await asyncio.to_thread(gate.wait, 20)

    with Crew(any_app):
        plain, coroutine = steps.enqueue(), asteps.enqueue()
        for handle in (plain, coroutine):
            wait_until(lambda handle=handle: "task.progress" in kinds(handle))  # type: ignore[misc]
        assert plain.task().status == "running"
        event = next(event for event in plain.events() if event.kind == "task.progress")
        assert {key: event.payload[key] for key in ("done", "total", "message", "attempt")} == {
            "done": 30,
            "total": 100,
            "message": "resizing",
            "attempt": 1,
        }
        gate.set()
        assert ended(plain).status == ended(coroutine).status == "completed"


def test_plain_progress_in_a_coroutine_names_its_twin(app: Holdfast) -> None:
    @app.task(name="wrong", takes_context=True, max_attempts=1)
    async def wrong(ctx: Context) -> None:
        ctx.progress(1)

    handle = wrong.enqueue()
    work_off(app)
    error = handle.task().last_error
    assert error is not None
    assert "aprogress" in error["message"]


def test_progress_after_the_lease_was_lost_is_refused(any_app: Holdfast) -> None:
    released, refused = threading.Event(), threading.Event()

    @any_app.task(name="late", takes_context=True)
    def late(ctx: Context) -> int:
        if ctx.attempt > 1:
            return ctx.attempt
        ctx.progress(1)
        released.wait(20)
        with pytest.raises(LeaseLost):
            ctx.progress(2)
        refused.set()
        return -1

    with Crew(any_app, concurrency=2):
        handle = late.enqueue()
        wait_until(lambda: "task.progress" in kinds(handle))
        any_app.tasks.release(handle.id)
        released.set()
        assert ended(handle).result == 2
        assert refused.wait(20)
    assert [event.payload["done"] for event in handle.events() if event.kind == "task.progress"] == [1]


def test_emitted_events_are_recorded_with_the_settle(any_app: Holdfast) -> None:
    @any_app.task(name="speaks", takes_context=True, max_attempts=2, backoff=Fixed(0))
    async def speaks(ctx: Context) -> None:
        ctx.emit("invoice.sent", {"no": ctx.attempt})
        if ctx.attempt == 1:
            raise ValueError

    handle = speaks.enqueue()
    work_off(any_app)
    assert kinds(handle) == [
        "task.enqueued",
        "task.running",
        "invoice.sent",
        "task.failed",
        "task.requeued",
        "task.running",
        "invoice.sent",
        "task.completed",
    ]
    assert [event.payload["no"] for event in handle.events() if event.kind == "invoice.sent"] == [1, 2]


@pytest.mark.parametrize(
    ("kind", "data"),
    [("task.completed", {}), ("run.over", {}), ("", {}), ("a\nb", {}), ("x", {"n": float("nan")}), ("x", [1])],
)
def test_events_that_cannot_be_recorded_are_refused_in_the_handler(app: Holdfast, kind: str, data: Any) -> None:
    refused: list[BaseException] = []

    @app.task(name="speaks", takes_context=True)
    async def speaks(ctx: Context) -> None:
        with pytest.raises(InvalidTask) as caught:
            ctx.emit(kind, data)
        refused.append(caught.value)

    handle = speaks.enqueue()
    work_off(app)
    assert handle.task().status == "completed"
    assert len(refused) == 1


def test_follow_ups_exist_with_the_completion_or_not_at_all(any_app: Holdfast) -> None:
    @any_app.task(name="next")
    async def next_step(number: int) -> int:
        return number

    @any_app.task(name="first", takes_context=True, max_attempts=2, backoff=Fixed(0))
    async def first(ctx: Context) -> str:
        made = ctx.follow_up(next_step.s(ctx.attempt))
        if ctx.attempt == 1:
            raise ValueError
        return made

    handle = first.enqueue()
    work_off(any_app)
    followers = any_app.tasks.list(name="next")
    assert [(task.id, task.result) for task in followers] == [(handle.result(timeout=5), 2)]


def test_what_is_no_call_is_no_follow_up(any_app: Holdfast) -> None:
    @any_app.task(name="first", takes_context=True, max_attempts=1)
    async def first(ctx: Context) -> str:
        return ctx.follow_up(first)  # type: ignore[arg-type]

    handle = first.enqueue()
    work_off(any_app)
    with pytest.raises(TaskFailed, match=r"a follow-up is task\.s\(…\), app\.s\(name, …\) or a workflow"):
        handle.result(timeout=5)


def test_a_follow_up_whose_key_is_anothers_fails_the_attempt(any_app: Holdfast) -> None:
    @any_app.task(name="other")
    async def other() -> None: ...

    @any_app.task(name="mine")
    async def mine() -> None: ...

    @any_app.task(name="first", takes_context=True, max_attempts=1)
    async def first(ctx: Context) -> None:
        ctx.follow_up(mine.using(idempotency_key="k").s())

    other.using(idempotency_key="k", delay=3600).enqueue()
    handle = first.enqueue()
    work_off(any_app)
    record = handle.task()
    assert (record.status, code_of(record)) == ("failed", "idempotency_conflict")
    assert any_app.tasks.list(name="mine") == []


def test_meta_travels_with_the_task(app: Holdfast) -> None:
    @app.task(name="traced", takes_context=True)
    async def traced(ctx: Context) -> dict[str, Any]:
        return ctx.meta

    handle = traced.using(meta={"trace": "00-1"}).enqueue()
    work_off(app)
    assert handle.result(timeout=5) == {"trace": "00-1"}
    assert handle.task().meta == {"trace": "00-1"}
