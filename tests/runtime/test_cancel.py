"""A cancel reaches a handler that is running, whatever kind it is (C8.2)."""

from __future__ import annotations

import asyncio
import threading
import time

from holdfast import Context, Holdfast, Snooze
from tests.runtime.support import Crew, ended, kinds, wait_until


def test_a_running_coroutine_is_canceled(any_app: Holdfast) -> None:
    stopped = threading.Event()

    @any_app.task(name="waits")
    async def waits() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.set()

    with Crew(any_app, lease=0.6):
        handle = waits.enqueue()
        wait_until(lambda: handle.task().status == "running")
        handle.cancel()
        assert handle.task().cancel_requested_at is not None
        record = ended(handle)
    assert stopped.is_set()
    assert (record.status, record.failures) == ("canceled", 0)
    assert kinds(handle) == ["task.enqueued", "task.running", "task.cancel_requested", "task.canceled"]


def test_a_coroutine_that_completes_in_spite_of_it_is_completed(app: Holdfast) -> None:
    @app.task(name="stubborn")
    async def stubborn() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "cleaned up"
        return "never"

    with Crew(app, lease=0.6):
        handle = stubborn.enqueue()
        wait_until(lambda: handle.task().status == "running")
        handle.cancel()
        record = ended(handle)
    assert (record.status, record.result) == ("completed", "cleaned up")


def test_a_thread_learns_it_from_its_context(any_app: Holdfast) -> None:
    @any_app.task(name="polls", takes_context=True)
    def polls(ctx: Context) -> None:
        while not ctx.cancel_requested:
            time.sleep(0.005)
        raise Snooze(1)

    with Crew(any_app, lease=0.6):
        handle = polls.enqueue()
        wait_until(lambda: handle.task().status == "running")
        any_app.tasks.cancel(handle.id)
        record = ended(handle)
    assert (record.status, record.attempt, record.failures) == ("canceled", 1, 0)


def test_a_canceled_task_can_be_retried(app: Holdfast) -> None:
    @app.task(name="later")
    async def later() -> int:
        return 1

    handle = later.using(delay=3600).enqueue()
    handle.cancel()
    assert handle.task().status == "canceled"
    handle.retry()
    with Crew(app):
        assert handle.result(timeout=10) == 1
