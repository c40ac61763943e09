"""Steps: recorded once, fenced, remembered by later attempts, wherever the handler runs (contract C10.7)."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Fixed, Holdfast
from holdfast.errors import InvalidTask, LeaseLost, PayloadTooLarge
from holdfast.events.facts import StoreAway
from holdfast.model.workflow import Step
from holdfast.stores.memory.store import MemoryStore
from tests.runtime import process_tasks
from tests.runtime.support import Crew, code_of, ended, memory_state, wait_until, work_off


def recorded(app: Holdfast, task_id: str) -> dict[str, str]:
    async def read() -> list[Step]:
        return await app.client.store.steps(task_id)

    return {step.name: step.result for step in app.client.plainly(read, plain="steps")}


def refusal_of(app: Holdfast, handler: Callable[[Context], Any]) -> tuple[str | None, str]:
    """Code and words of what ended a handler, in a thread."""

    @app.task(name="refused", takes_context=True, max_attempts=1)
    def refused(ctx: Context) -> None:
        handler(ctx)

    handle = refused.enqueue()
    work_off(app)
    error = handle.task().last_error
    assert error is not None
    return error.get("code"), error["message"]


def test_a_later_attempt_gets_what_was_recorded_and_calls_nothing(any_app: Holdfast) -> None:
    calls: Counter[str] = Counter()

    def work(name: str, attempt: int) -> dict[str, Any]:
        calls[name] += 1
        return {"name": name, "attempt": attempt}

    @any_app.task(name="plain", takes_context=True, backoff=Fixed(0))
    def plain(ctx: Context) -> list[Any]:
        found = [ctx.step("one", work, "one", attempt=ctx.attempt), ctx.step("nothing", calls.update, ["nothing"])]
        if ctx.attempt < 3:
            raise ValueError
        return [*found, ctx.step("two", work, "two", ctx.attempt)]

    @any_app.task(name="coroutine", takes_context=True, backoff=Fixed(0))
    async def coroutine(ctx: Context) -> list[Any]:
        async def awork(name: str, attempt: int) -> dict[str, Any]:
            return work(name, attempt)

        found = [
            await ctx.astep("one", awork, "aone", attempt=ctx.attempt),
            await ctx.astep("plain", work, "aplain", 0),
        ]
        if ctx.attempt < 3:
            raise ValueError
        return [*found, await ctx.astep("two", awork, "atwo", ctx.attempt)]

    first, second = plain.enqueue(), coroutine.enqueue()
    work_off(any_app)
    assert first.result(5) == [{"name": "one", "attempt": 1}, None, {"name": "two", "attempt": 3}]
    expected = [("aone", 1), ("aplain", 0), ("atwo", 3)]
    assert second.result(5) == [{"name": name, "attempt": attempt} for name, attempt in expected]
    assert calls == dict.fromkeys(["one", "nothing", "two", "aone", "aplain", "atwo"], 1)
    assert list(recorded(any_app, first.id)) == ["one", "nothing", "two"]


def test_a_child_process_resumes_at_its_second_step(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    with process_tasks.app.testing() as t:
        handle, refused = process_tasks.in_steps.enqueue(str(ledger), fail_at=1), process_tasks.step_twice.enqueue()
        coroutine = process_tasks.ain_steps.enqueue()
        t.drain()
        assert handle.result(5) == [{"number": 1, "attempt": 1}, {"number": 2, "attempt": 3}, 3]
        assert (handle.task().failures, ledger.read_text()) == (1, "1\n2\n")
        assert coroutine.result(5) == [*(number * 10 + 1 for number in range(20)), 2]
        assert code_of(refused.task()) == "InvalidTask"


def test_a_late_child_process_is_told_that_its_lease_is_lost(tmp_path: Path) -> None:
    """1. the child waits; 2. its lease is ended by force, a second child starts; 3. both record the same step."""
    app = process_tasks.app
    with app.testing():
        app.connections.factory = Holdfast("memory://").connections.factory
        with Crew(app, concurrency=2, lease=60):
            handle = process_tasks.step_late.enqueue(str(tmp_path / "pid"), str(tmp_path / "gate"))
            wait_until(lambda: (tmp_path / "pid").exists())
            app.tasks.release(handle.id)
            wait_until(lambda: handle.task().attempt == 2)
            (tmp_path / "gate").touch()
            assert ended(handle).result == 2
        assert recorded(app, handle.id) == {"late": "2"}


def test_a_thread_that_a_handler_left_behind_records_nothing_for_the_next_one(tmp_path: Path) -> None:
    """1. a handler returns, its thread goes on; 2. the child runs the next task; 3. the thread records a step."""
    app, gate = process_tasks.app, str(tmp_path / "gate")
    with app.testing():
        first, second = process_tasks.leave_a_thread.enqueue(gate), process_tasks.meet_the_thread.enqueue(gate)
        work_off(app, concurrency=1)
        assert second.result(5) == [first.result(5), "refused"]
        assert list(recorded(app, second.id)) == ["own"]
        assert recorded(app, first.id) == {}


def test_the_first_run_sees_what_a_later_one_will(app: Holdfast) -> None:
    @app.task(name="same", takes_context=True)
    async def same(ctx: Context) -> bool:
        made = {"list": [1]}
        got = await ctx.astep("one", lambda: made)
        return got == made and got is not made and got["list"] is not made["list"]

    handle = same.enqueue()
    work_off(app)
    assert handle.result(5) is True


def test_a_step_that_was_renamed_runs_and_the_old_record_stays(app: Holdfast) -> None:
    @app.task(name="deployed", takes_context=True, backoff=Fixed(0))
    def deployed(ctx: Context) -> list[int]:
        names = ["a", "old", "z"] if ctx.attempt == 1 else ["z", "new"]
        found = [ctx.step(name, lambda: ctx.attempt) for name in names]
        if ctx.attempt == 1:
            raise ValueError
        return found

    handle = deployed.enqueue()
    work_off(app)
    assert handle.result(5) == [1, 2]
    assert recorded(app, handle.id) == {"a": "1", "old": "1", "z": "1", "new": "2"}


def test_the_steps_of_a_requeued_dead_letter_are_remembered(any_app: Holdfast) -> None:
    @any_app.task(name="dies", takes_context=True, max_attempts=1)
    def dies(ctx: Context) -> int:
        first = ctx.step("one", lambda: ctx.attempt)
        if ctx.attempt == 1:
            raise ValueError
        return first

    handle = dies.enqueue()
    work_off(any_app)
    handle.retry()
    work_off(any_app)
    assert handle.result(5) == 1


# Refused


def test_the_same_name_twice_is_refused(app: Holdfast) -> None:
    def twice(ctx: Context) -> None:
        ctx.step("one", int)
        ctx.step("one", int)

    code, words = refusal_of(app, twice)
    assert code == "InvalidTask"
    assert "'one' is there twice" in words


def test_a_step_that_raised_may_be_called_again(app: Holdfast) -> None:
    @app.task(name="stubborn", takes_context=True)
    def stubborn(ctx: Context) -> str:
        with pytest.raises(ZeroDivisionError):
            ctx.step("one", lambda: 1 // 0)
        return ctx.step("one", lambda: "second try")

    handle = stubborn.enqueue()
    work_off(app)
    assert (handle.result(5), handle.task().attempt) == ("second try", 1)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 513, 7, "holdfast.sleep.1", "holdfast."])
def test_names_that_cannot_be_kept_are_refused_before_anything_is_called(app: Holdfast, name: Any) -> None:
    called: list[int] = []
    code, _ = refusal_of(app, lambda ctx: ctx.step(name, lambda: called.append(1)))
    assert (code, called) == ("InvalidTask", [])


def test_a_result_that_is_not_json_or_too_large_is_refused(app: Holdfast) -> None:
    @app.task(name="odd", takes_context=True)
    def odd(ctx: Context) -> None:
        with pytest.raises(InvalidTask, match="the result of step 'one' holds a"):
            ctx.step("one", lambda: {1, 2})
        with pytest.raises(PayloadTooLarge, match="the result of step 'two'"):
            ctx.step("two", lambda: "x" * (1 << 20))

    handle = odd.enqueue()
    work_off(app)
    assert handle.task().status == "completed"
    assert recorded(app, handle.id) == {}


def test_the_wrong_twin_is_named_and_calls_nothing(app: Holdfast) -> None:
    called: list[int] = []

    @app.task(name="wrong", takes_context=True, max_attempts=1)
    async def wrong(ctx: Context) -> None:
        with pytest.raises(RuntimeError, match="astep"):
            ctx.step("one", lambda: called.append(1))

    async def coroutine() -> None:
        called.append(2)

    handle = wrong.enqueue()
    _, words = refusal_of(app, lambda ctx: ctx.step("one", coroutine))
    assert handle.task().status == "completed"
    assert "astep" in words
    assert called == []


def test_a_step_inside_of_a_transaction_is_refused(tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/tasks.db") as app:

        @app.task(name="both", takes_context=True)
        def both(ctx: Context) -> None:
            with pytest.raises(InvalidTask, match="transaction"), ctx.transaction():
                ctx.step("one", int)
            with ctx.transaction() as tx:
                tx.complete()

        handle = both.enqueue()
        work_off(app)
        assert handle.task().status == "completed"


# The fence, and a store that is away


def test_a_step_of_a_late_worker_is_refused_and_leaves_nothing(any_app: Holdfast) -> None:
    """1. the first attempt waits; 2. its lease is ended by force and the second records; 3. the first comes late."""
    done, refused = threading.Event(), threading.Event()

    @any_app.task(name="late", takes_context=True)
    def late(ctx: Context) -> int:
        if ctx.attempt == 1:
            ctx.step("both", int)
            done.wait(20)
            with pytest.raises(LeaseLost):
                ctx.step("late", lambda: "of the first")
            refused.set()
            return -1
        return ctx.step("late", lambda: ctx.attempt)

    with Crew(any_app, concurrency=2):
        handle = late.enqueue()
        wait_until(lambda: "both" in recorded(any_app, handle.id))
        any_app.tasks.release(handle.id)
        assert ended(handle).result == 2
        done.set()
        assert refused.wait(20)
    assert recorded(any_app, handle.id) == {"both": "0", "late": "2"}


def test_an_outage_is_waited_out_by_a_step_that_has_happened(app: Holdfast) -> None:
    calls: list[int] = []

    @app.task(name="patient", takes_context=True)
    def patient(ctx: Context) -> int:
        def work() -> int:
            calls.append(ctx.attempt)
            memory_state(app).go_away()
            return 7

        return ctx.step("one", work)

    with Crew(app) as crew:
        handle = patient.enqueue()
        crew.wait_for(StoreAway)
        memory_state(app).come_back()
        assert handle.result(20) == 7
    assert (calls, handle.task().attempt) == ([1], 1)


def test_what_is_recorded_is_read_once_and_not_by_a_first_attempt(
    app: Holdfast, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads: list[str] = []
    steps = MemoryStore.steps

    async def counted(store: MemoryStore, task_id: str) -> list[Step]:
        reads.append(task_id)
        await asyncio.sleep(0)
        return await steps(store, task_id)

    monkeypatch.setattr(MemoryStore, "steps", counted)

    @app.task(name="many", takes_context=True, backoff=Fixed(0))
    async def many(ctx: Context) -> list[int]:
        found = await asyncio.gather(*(ctx.astep(f"s{number}", lambda: ctx.attempt) for number in range(5)))
        if ctx.attempt == 1:
            assert not reads
            raise ValueError
        return found

    handle = many.enqueue()
    work_off(app)
    assert handle.result(5) == [1] * 5
    assert reads == [handle.id]
