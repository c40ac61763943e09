"""At its timeout an attempt is over: coroutines and processes end for real, a thread is reported and accounted for."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from holdfast import Context, Fixed, Holdfast, HoldfastError, current_task
from holdfast.events.facts import HandlerBlocked, HandlerStuck, TaskSettled
from holdfast.runtime import runner, watchdog
from tests.runtime.support import Crew, code_of, ended, kinds, wait_until, work_off


def test_a_coroutine_is_canceled_at_its_timeout(any_app: Holdfast) -> None:
    canceled = threading.Event()

    @any_app.task(name="slow", timeout=0.1, max_attempts=1)
    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            canceled.set()
            raise

    handle = slow.enqueue()
    work_off(any_app)
    record = handle.task()
    assert (record.status, code_of(record)) == ("failed", "timeout")
    assert canceled.is_set()


def test_a_timeout_is_retried(any_app: Holdfast) -> None:
    @any_app.task(name="once_slow", timeout=0.1, backoff=Fixed(0))
    async def once_slow() -> int:
        if current_task().attempt == 1:
            await asyncio.sleep(3600)
        return current_task().attempt

    handle = once_slow.enqueue()
    work_off(any_app)
    assert handle.result(timeout=5) == 2
    assert kinds(handle)[2:4] == ["task.failed", "task.requeued"]


def test_a_coroutine_that_finishes_while_being_timed_out_has_timed_out(app: Holdfast) -> None:
    @app.task(name="stubborn", timeout=0.1, max_attempts=1)
    async def stubborn() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "too late"
        return "never"

    handle = stubborn.enqueue()
    work_off(app)
    assert code_of(handle.task()) == "timeout"


def test_a_coroutine_that_will_not_end_is_stuck_until_it_does(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "STOP_GRACE_SECONDS", 0.1)
    let_go = threading.Event()

    @app.task(name="deaf", timeout=0.1, max_attempts=1)
    async def deaf() -> None:
        while not let_go.is_set():
            try:
                await asyncio.sleep(0.02)
            except asyncio.CancelledError:
                continue

    @app.task(name="other")
    async def other() -> int:
        return 1

    here: list[int] = []
    met = asyncio.Event()

    @app.task(name="both")
    async def both() -> None:
        here.append(1)
        if len(here) == 2:
            met.set()
        await met.wait()

    with Crew(app, concurrency=2) as crew:
        handle = deaf.enqueue()
        assert code_of(ended(handle)) == "timeout"
        stuck = crew.wait_for(HandlerStuck)
        assert (stuck.claim.task_id, stuck.stuck, stuck.slots) == (handle.id, 1, 2)
        assert other.enqueue().result(timeout=10) == 1
        let_go.set()
        # Both slots are free again: two tasks, of which each waits for the other, can end.
        pair = [both.enqueue(), both.enqueue()]
        assert [ended(one).status for one in pair] == ["completed", "completed"]
    assert crew.raised is None


def test_a_thread_at_its_timeout_is_settled_and_keeps_its_slot(any_app: Holdfast) -> None:
    let_go = threading.Event()

    @any_app.task(name="deaf", timeout=0.2, max_attempts=1)
    def deaf() -> None:
        let_go.wait(60)

    @any_app.task(name="other")
    async def other() -> int:
        return 1

    with Crew(any_app, concurrency=2) as crew:
        handle = deaf.enqueue()
        assert code_of(ended(handle)) == "timeout"
        assert crew.wait_for(HandlerStuck).claim.task_id == handle.id
        assert other.enqueue().result(timeout=10) == 1
        let_go.set()
    assert crew.raised is None
    assert handle.task().status == "failed"


def test_a_thread_sees_in_its_context_that_it_is_over(app: Holdfast) -> None:
    saw = threading.Event()

    @app.task(name="polite", timeout=0.2, max_attempts=1, takes_context=True)
    def polite(ctx: Context) -> None:
        while not ctx.cancel_requested:
            time.sleep(0.005)
        saw.set()

    with Crew(app, concurrency=2):
        handle = polite.enqueue()
        assert code_of(ended(handle)) == "timeout"
        assert saw.wait(10)


def test_a_worker_whose_slots_are_all_stuck_gives_up(any_app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "STOP_GRACE_SECONDS", 0.1)
    let_go = threading.Event()

    @any_app.task(name="deaf", timeout=0.1, max_attempts=1)
    def deaf() -> None:
        let_go.wait(60)

    @any_app.task(name="other")
    async def other() -> int:
        return 1

    with Crew(any_app, concurrency=2) as crew:
        first, second = deaf.enqueue(), deaf.enqueue()
        wait_until(lambda: first.task().status.terminal and second.task().status.terminal)
        left = other.enqueue()
        crew.join()
    let_go.set()
    assert isinstance(crew.raised, HoldfastError)
    assert "stuck" in str(crew.raised)
    record = left.task()
    assert (record.status, record.failures) in {("queued", 0), ("completed", 0)}


def test_a_worker_does_not_give_up_over_a_thread_that_ends_when_it_is_told(any_app: Holdfast) -> None:
    @any_app.task(name="polite", timeout=0.1, max_attempts=1, takes_context=True)
    def polite(ctx: Context) -> None:
        while not ctx.cancel_requested:
            time.sleep(0.005)

    handles = [polite.enqueue(), polite.enqueue()]
    work_off(any_app, concurrency=1)
    assert [code_of(handle.task()) for handle in handles] == ["timeout", "timeout"]


def test_a_coroutine_that_blocks_the_loop_keeps_its_lease_and_is_named(any_app: Holdfast) -> None:
    @any_app.task(name="blocks")
    async def blocks() -> str:
        time.sleep(1.8)  # noqa: ASYNC251  this is what the test is about
        return "done"

    with Crew(any_app, lease=0.5) as crew, Crew(any_app, lease=0.5, queues=["elsewhere"]):
        handle = blocks.enqueue()
        record = ended(handle)
        told = crew.wait_for(HandlerBlocked)
    assert (record.status, record.result, record.attempt, record.failures) == ("completed", "done", 1, 0)
    assert told.claim is not None
    assert told.claim.task_id == handle.id
    line = blocks._function.__code__.co_firstlineno + 2
    assert f"{Path(__file__).name}:{line}" in told.place
    assert "blocks" in told.place


def test_a_coroutine_that_blocks_past_its_timeout_is_settled_by_the_keeper(
    any_app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "BLOCKED_SECONDS", 0.3)
    settled, unblocked = threading.Event(), threading.Event()

    @any_app.task(name="blocks", timeout=0.2, max_attempts=1)
    async def blocks() -> None:
        settled.wait(20)
        unblocked.set()

    with Crew(any_app, lease=0.6, concurrency=2) as crew:
        handle = blocks.enqueue()
        wait_until(lambda: handle.task().status == "failed")
        assert not unblocked.is_set()
        settled.set()
        assert crew.wait_for(HandlerStuck).claim.task_id == handle.id
    record = handle.task()
    assert (code_of(record), record.attempt, unblocked.is_set()) == ("timeout", 1, True)
    assert crew.raised is None
    assert kinds(handle).count("task.failed") == 1
    assert len([fact for fact in crew.of(TaskSettled) if fact.claim.task_id == handle.id]) == 1
