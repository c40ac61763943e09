"""Sleeping: hours that hold no slot, cost no failure, and survive everything; on the virtual clock."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Fixed, Holdfast
from holdfast.errors import InvalidTask
from tests.runtime.support import Crew, ended, kinds, wait_until, work_off


def test_a_sleeping_task_holds_no_slot(app: Holdfast) -> None:
    @app.task(name="sleeper", takes_context=True)
    async def sleeper(ctx: Context) -> int:
        await ctx.sleep(3600)
        return ctx.attempt

    @app.task(name="other")
    async def other() -> str:
        return "meanwhile"

    with app.testing() as t, Crew(app, concurrency=1):
        handle = sleeper.enqueue()
        wait_until(lambda: "task.snoozed" in kinds(handle))
        assert other.enqueue().result(20) == "meanwhile"
        assert (handle.task().status, handle.task().claimed_by) == ("queued", None)
        t.advance(minutes=59)
        assert other.enqueue().result(20) == "meanwhile"
        assert handle.task().attempt == 1
        t.advance(minutes=1)
        assert handle.result(20) == 2


@pytest.mark.parametrize("form", ["thread", "coroutine", "asleep"])
def test_the_handler_starts_anew_after_each_sleep_and_its_steps_are_remembered(app: Holdfast, form: str) -> None:
    calls: list[str] = []

    def work(name: str) -> str:
        calls.append(name)
        return name

    if form == "thread":

        @app.task(name="sleeper", takes_context=True, max_attempts=1)
        def sleeper(ctx: Context) -> list[Any]:
            first = ctx.step("before", work, "before")
            ctx.sleep(3600)
            second = ctx.step("between", work, "between")
            ctx.sleep(timedelta(days=2), name="until paid")
            ctx.sleep(60)
            return [first, second, ctx.attempt]
    else:

        @app.task(name="sleeper", takes_context=True, max_attempts=1)
        async def sleeper(ctx: Context) -> list[Any]:
            sleep = ctx.asleep if form == "asleep" else ctx.sleep
            first = await ctx.astep("before", work, "before")
            await sleep(3600)
            second = await ctx.astep("between", work, "between")
            await sleep(timedelta(days=2), name="until paid")
            await sleep(60)
            return [first, second, ctx.attempt]

    with app.testing() as t:
        began = t.now()
        handle = sleeper.enqueue()
        assert t.drain() == 4
        assert handle.result(5) == ["before", "between", 4]
        assert t.now() - began == timedelta(days=2, hours=1, minutes=1)
        assert (calls, handle.task().failures) == (["before", "between"], 0)
        assert kinds(handle).count("task.snoozed") == 3
        assert "task.failed" not in kinds(handle)


def test_except_exception_does_not_swallow_a_sleep(app: Holdfast) -> None:
    @app.task(name="careless", takes_context=True)
    async def careless(ctx: Context) -> int:
        try:
            await ctx.sleep(10)
        except Exception:
            return -1
        return ctx.attempt

    with app.testing() as t:
        handle = careless.enqueue()
        t.drain()
        assert handle.result(5) == 2


def test_a_task_that_is_back_too_early_sleeps_for_the_rest(app: Holdfast) -> None:
    """1. asleep for an hour; 2. after 20 minutes it is canceled and requeued; 3. it sleeps 40 more, as first recorded.

    The code has changed its mind about the length meanwhile, which changes nothing.
    """

    @app.task(name="sleeper", takes_context=True)
    def sleeper(ctx: Context) -> int:
        ctx.sleep(3600 if ctx.attempt == 1 else 5)
        return ctx.attempt

    with app.testing() as t:
        began, handle = t.now(), sleeper.enqueue()
        app.worker(poll_interval=0.01).run(until_idle=True)
        t.advance(minutes=20)
        handle.cancel()
        handle.retry()
        assert t.drain() == 2
        assert handle.result(5) == 3
        assert t.now() - began == timedelta(hours=1)


def test_a_worker_that_dies_asleep_costs_no_time(app: Holdfast) -> None:
    """1. the sleep is recorded; 2. the attempt fails before it can be snoozed; 3. the next one sleeps for the rest."""

    @app.task(name="sleeper", takes_context=True, backoff=Fixed(600))
    def sleeper(ctx: Context) -> int:
        try:
            ctx.sleep(3600)
        except BaseException:
            if ctx.attempt == 1:
                raise ValueError from None
            raise
        return ctx.attempt

    with app.testing() as t:
        began, handle = t.now(), sleeper.enqueue()
        t.drain()
        assert handle.result(5) == 3
        assert t.now() - began == timedelta(hours=1)


@pytest.mark.parametrize("length", [0, 0.0004, 0.0015, timedelta(microseconds=1)])
def test_the_shortest_sleep_ends(app: Holdfast, length: Any) -> None:
    @app.task(name="sleeper", takes_context=True)
    async def sleeper(ctx: Context) -> int:
        await ctx.sleep(length)
        return ctx.attempt

    with app.testing() as t:
        handle = sleeper.enqueue()
        t.drain()
        assert handle.result(5) == 2


def test_a_sleep_works_on_every_store(any_app: Holdfast) -> None:
    @any_app.task(name="sleeper", takes_context=True)
    async def sleeper(ctx: Context) -> int:
        await ctx.sleep(0.05)
        return ctx.attempt

    with Crew(any_app):
        task = ended(sleeper.enqueue())
    assert (task.result, task.failures) == (2, 0)


def test_what_is_no_sleep_is_refused(app: Holdfast) -> None:
    @app.task(name="odd", takes_context=True, backoff=Fixed(0))
    def odd(ctx: Context) -> int:
        for wrong in (-1, float("nan"), "1", None, timedelta(seconds=-1)):
            with pytest.raises(InvalidTask, match="length of a sleep"):
                ctx.sleep(wrong)  # type: ignore[arg-type]
        with pytest.raises(InvalidTask, match="Holdfast's own"):
            ctx.sleep(1, name="holdfast.sleep.7")
        if ctx.attempt == 1:
            ctx.step("word", str, "word")
            ctx.step("number", int, -5)
            with pytest.raises(InvalidTask, match="twice"):
                ctx.sleep(1, name="word")
            raise ValueError
        for name in ("word", "number"):
            with pytest.raises(InvalidTask, match="is no sleep"):
                ctx.sleep(1, name=name)
        return ctx.attempt

    handle = odd.enqueue()
    work_off(app)
    assert handle.result(5) == 2


def test_a_sleep_inside_of_a_transaction_is_refused(tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path}/tasks.db") as app:

        @app.task(name="both", takes_context=True)
        async def both(ctx: Context) -> str:
            with pytest.raises(InvalidTask, match="transaction"):
                async with ctx.transaction():
                    await ctx.asleep(1)
            return "refused"

        handle = both.enqueue()
        work_off(app)
        assert handle.result(5) == "refused"
