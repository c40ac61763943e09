"""Leases are kept while a handler runs; a lost one ends the handler at once and settles nothing (C6.4, C6.6)."""

from __future__ import annotations

import asyncio
import threading
import time

from holdfast import Context, Holdfast
from holdfast.events.facts import LeaseWasLost, Reaped, TaskSettled
from tests.runtime.support import Crew, ended, kinds, wait_until


def test_heartbeats_keep_a_lease_far_longer_than_itself(any_app: Holdfast) -> None:
    @any_app.task(name="long")
    async def long() -> int:
        await asyncio.sleep(2)
        return 1

    @any_app.task(name="long_thread")
    def long_thread() -> int:
        time.sleep(2)
        return 1

    with Crew(any_app, lease=0.6) as holder, Crew(any_app, lease=0.6, queues=["elsewhere"]) as other:
        records = [ended(handle) for handle in (long.enqueue(), long_thread.enqueue())]
    assert [(record.status.value, record.attempt, record.failures) for record in records] == [("completed", 1, 0)] * 2
    assert not holder.of(Reaped)
    assert not other.of(Reaped)


def test_what_was_claimed_ahead_is_given_back_when_the_slots_turn_out_to_be_taken_for_long(any_app: Holdfast) -> None:
    gate = threading.Event()

    @any_app.task(name="quick")
    async def quick() -> None: ...

    @any_app.task(name="plug", priority=-1)
    def plug() -> None:
        gate.wait(20)

    # Many quick tasks teach the worker to claim ahead; then its one slot is plugged while it holds more than it runs.
    with Crew(any_app, concurrency=1, grace=0):
        any_app.enqueue_many([quick.s() for _ in range(5000)] + [plug.s() for _ in range(50)])
        wait_until(lambda: any_app.tasks.count()["completed"] == 5000)
        wait_until(lambda: any_app.tasks.count()["running"] == 1, "the buffer given back")
        assert any_app.tasks.count()["queued"] == 49
        gate.set()
    assert {task.failures for task in any_app.tasks.list(limit=10_000)} == {0}


def test_a_lease_that_an_operator_ended_stops_the_coroutine_and_settles_nothing(any_app: Holdfast) -> None:
    stopped = threading.Event()

    @any_app.task(name="held", takes_context=True)
    async def held(ctx: Context) -> int:
        if ctx.attempt == 1:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                stopped.set()
                raise
        return ctx.attempt

    with Crew(any_app, lease=0.6) as crew:
        handle = held.enqueue()
        wait_until(lambda: handle.task().status == "running")
        any_app.tasks.release(handle.id)
        assert stopped.wait(20)
        record = ended(handle)
    assert (record.status, record.result, record.attempt, record.failures) == ("completed", 2, 2, 0)
    assert [fact.claim.lease.attempt for fact in crew.of(LeaseWasLost)] == [1]
    assert [fact.claim.lease.attempt for fact in crew.of(TaskSettled)] == [2]
    assert "task.failed" not in kinds(handle)


def test_a_lost_lease_is_told_to_a_thread_and_its_late_result_is_dropped(any_app: Holdfast) -> None:
    returned = threading.Event()

    @any_app.task(name="held", takes_context=True)
    def held(ctx: Context) -> str:
        if ctx.attempt > 1:
            return "second"
        while not ctx.cancel_requested:
            time.sleep(0.005)
        returned.set()
        return "first"

    with Crew(any_app, lease=0.6, concurrency=2) as crew:
        handle = held.enqueue()
        wait_until(lambda: handle.task().status == "running")
        any_app.tasks.release(handle.id)
        assert returned.wait(20)
        assert ended(handle).result == "second"
        wait_until(lambda: crew.of(LeaseWasLost))
    assert handle.task().result == "second"
    assert crew.raised is None


def test_a_completion_that_comes_after_the_lease_was_ended_changes_nothing(any_app: Holdfast) -> None:
    """1. attempt 1 runs; 2. an operator releases it; 3. attempt 1 returns before a heartbeat told it; 4. attempt 2."""
    begun, released = threading.Event(), threading.Event()

    @any_app.task(name="late", takes_context=True)
    def late(ctx: Context) -> int:
        if ctx.attempt == 1:
            begun.set()
            released.wait(20)
        return ctx.attempt

    any_app.queues.pause("default")
    handle = late.enqueue()
    any_app.queues.resume("default")
    with Crew(any_app, lease=60, concurrency=1) as crew:
        assert begun.wait(20)
        any_app.tasks.release(handle.id)
        released.set()
        record = ended(handle)
    assert (record.result, record.attempt, record.failures) == (2, 2, 0)
    assert [fact.claim.lease.attempt for fact in crew.of(LeaseWasLost)] == [1]
    assert kinds(handle).count("task.completed") == 1
