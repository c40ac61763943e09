"""`app.testing()`: the real path on a memory store and a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast import Context, Delays, Holdfast, Snooze


@pytest.fixture
def app() -> Iterator[Holdfast]:
    with Holdfast("memory://") as opened:
        yield opened


def test_a_delayed_task_runs_when_its_time_has_come(app: Holdfast) -> None:
    sent: list[int] = []

    @app.task(name="send")
    async def send(user_id: int, *, template: str = "welcome") -> None:
        sent.append(user_id)

    with app.testing() as t:
        handle = send.using(delay=3600).enqueue(7)
        task = t.assert_enqueued(send, user_id=7)
        assert task.id == handle.id
        assert t.drain() == 0
        t.advance(minutes=59)
        assert t.drain() == 0
        t.advance(timedelta(minutes=1))
        assert t.drain() == 1
        assert (sent, handle.task().status) == ([7], "completed")
        assert [task.status for task in t.tasks()] == ["completed"]


def test_drain_jumps_through_retries_and_snoozes_not_to_scheduled_work(app: Holdfast) -> None:
    @app.task(name="heals", backoff=Delays(60, 3600), takes_context=True)
    def heals(ctx: Context) -> int:
        if ctx.attempt == 2:
            raise Snooze(timedelta(days=1))
        if ctx.attempt < 4:
            raise ValueError
        return ctx.failures

    with app.testing() as t:
        began = t.now()
        handle, later = heals.enqueue(), heals.using(delay=timedelta(days=30)).enqueue()
        assert t.drain() == 4
        assert handle.result(timeout=5) == 2
        assert t.now() - began == timedelta(seconds=60, days=1) + timedelta(hours=1)
        assert later.task().attempt == 0


def test_drain_jumps_to_when_a_rate_lets_the_next_task_start_and_not_in_a_paused_queue(app: Holdfast) -> None:
    @app.task(name="send", queue="mail")
    async def send() -> None: ...

    with app.testing() as t:
        began = t.now()
        app.queues.limit("*", rate="1/h", burst=2)
        app.queues.limit("mail", rate="1/min")
        app.enqueue_many([send.s() for _ in range(5)])
        app.queues.pause("mail")
        assert t.drain() == 0
        app.queues.resume("mail")
        assert t.drain() == 5
        assert t.now() - began == timedelta(hours=3)


def test_drain_ends_with_a_dead_letter(app: Holdfast) -> None:
    @app.task(name="bad", max_attempts=3)
    async def bad() -> None:
        raise ValueError

    with app.testing() as t:
        handle = bad.enqueue()
        assert t.drain() == 3
        assert handle.task().status == "failed"


def test_drain_leaves_what_nobody_here_can_run(app: Holdfast) -> None:
    @app.task(name="paused", max_attempts=2, queue="held")
    async def paused() -> None:
        raise ValueError

    with app.testing() as t:
        app.enqueue("unknown")
        app.queues.pause("held")
        paused.enqueue()
        assert t.drain() == 1
        assert t.drain() == 0


def test_what_was_enqueued_is_found_by_its_arguments(app: Holdfast) -> None:
    @app.task(name="send")
    async def send(user_id: int, *, template: str = "welcome", to: list[str] | None = None) -> None: ...

    with app.testing() as t:
        with pytest.raises(AssertionError, match="nothing at all"):
            t.assert_enqueued(send)
        t.refute_enqueued(send)
        send.enqueue(7)
        send.enqueue(user_id=8, to=["a", "b"])
        app.enqueue("by_name", 1, colour="red")
        t.assert_enqueued(send)
        t.assert_enqueued(send, user_id=7, template="welcome")
        t.assert_enqueued(send, user_id=8, to=["a", "b"])
        t.assert_enqueued("send", user_id=8)
        t.assert_enqueued("by_name", colour="red")
        t.refute_enqueued(send, user_id=9)
        t.refute_enqueued(send, user_id=7, template="other")
        t.refute_enqueued("nobody")
        with pytest.raises(AssertionError, match=r"'user_id': 9.*(\n.*)*send with"):
            t.assert_enqueued(send, user_id=9)
        with pytest.raises(AssertionError, match="was enqueued"):
            t.refute_enqueued(send, user_id=7)


def test_submits_are_checked_as_in_production(app: Holdfast) -> None:
    @app.task(name="send")
    async def send(user_id: int) -> None: ...

    with app.testing() as t:
        with pytest.raises(ValueError, match="user_id"):
            send.enqueue()  # type: ignore[call-arg]
        assert t.tasks() == []


def test_in_async_tests_the_twins_are_used(app: Holdfast) -> None:
    @app.task(name="send")
    async def send(user_id: int) -> int:
        return user_id

    async def main() -> None:
        async with app.testing() as t:
            handle = await send.aenqueue(7)
            await t.aassert_enqueued(send, user_id=7)
            await t.arefute_enqueued(send, user_id=8)
            for plain in (t.drain, t.tasks):
                with pytest.raises(RuntimeError, match="await a"):
                    plain()
            assert await t.adrain() == 1
            assert await handle.aresult(timeout=5) == 7
            assert len(await t.atasks()) == 1

    asyncio.run(main())


def test_the_apps_own_store_is_back_afterwards(app: Holdfast) -> None:
    before = app.enqueue("outside")
    with app.testing() as t:
        app.enqueue("inside")
        assert [task.name for task in t.tasks()] == ["inside"]
        assert [task.name for task in app.tasks.list()] == ["inside"]
    assert [task.name for task in app.tasks.list()] == ["outside"]
    assert before.task().status == "queued"
    with pytest.raises(ZeroDivisionError), app.testing():
        raise ZeroDivisionError
    assert [task.name for task in app.tasks.list()] == ["outside"]


def test_a_block_inside_a_block_has_a_store_of_its_own(app: Holdfast) -> None:
    app.enqueue("outside")
    with app.testing() as outer:
        app.enqueue("outer")
        with app.testing() as inner:
            app.enqueue("inner")
            assert [task.name for task in inner.tasks()] == ["inner"]
        assert [task.name for task in outer.tasks()] == ["outer"]
        assert [task.name for task in app.tasks.list()] == ["outer"]
    assert [task.name for task in app.tasks.list()] == ["outside"]
