"""What programs declare: subscribers and webhooks, told by the relay of any worker, on every store."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Event, Holdfast, webhooks
from holdfast.errors import InvalidTask, NotSupported
from holdfast.events.facts import SinkLeft
from holdfast.sinks.declaring import declare
from holdfast.sinks.protocol import Answer
from holdfast.sinks.subscriber import InProcess
from holdfast.stores.protocol import Capabilities
from tests import postgres_server
from tests.relay.receiver import Receiver
from tests.relay.test_webhook import row
from tests.runtime.support import Crew, ended, wait_until, work_off

LIFE = ["task.enqueued", "task.running", "task.completed"]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Holdfast]:
    match request.param:
        case "memory":
            opened = Holdfast("memory://")
        case "sqlite":
            opened = Holdfast(f"sqlite:///{tmp_path}/tasks.db")
        case _:
            opened = Holdfast(postgres_server.server().url, schema=postgres_server.fresh_schema())
    with opened:
        yield opened


def test_a_subscriber_is_told_in_order_per_task(app: Holdfast) -> None:
    heard: list[tuple[str, str]] = []

    @app.task(name="t")
    async def t() -> None: ...

    @app.subscribe()
    def everything(event: Event) -> None:
        heard.append((event.task_id, event.kind))

    handles = [t.enqueue() for _ in range(5)]
    work_off(app)
    for handle in handles:
        assert [kind for task_id, kind in heard if task_id == handle.id] == LIFE
    assert app.outbox.list() == []
    (sink,) = app.sinks.list()
    assert sink.name == f"subscriber:{everything.__module__}.{everything.__qualname__}"


def test_kinds_and_queues_choose_what_is_told(app: Holdfast) -> None:
    heard: list[str] = []

    @app.task(name="t")
    async def t() -> None: ...

    @app.subscribe("task.completed", "task.enqueued", queues=["mail"], name="chosen")
    async def chosen(event: Event) -> None:
        await asyncio.sleep(0)
        heard.append(event.kind)

    t.enqueue()
    t.using(queue="mail").enqueue()
    work_off(app)
    assert heard == ["task.enqueued", "task.completed"]


def test_an_exception_is_a_failed_try_and_later_events_of_the_task_wait(app: Holdfast) -> None:
    heard: list[str] = []
    failing = [True]

    @app.task(name="t")
    async def t() -> None: ...

    @app.subscribe(name="moody")
    def moody(event: Event) -> None:
        heard.append(event.kind)
        if failing[0]:
            raise ValueError("not today")

    t.enqueue()
    work_off(app)
    assert set(heard) == {"task.enqueued"}
    first, *_ = app.outbox.list()
    assert first.last_error == "ValueError: not today"
    assert first.tries >= 1
    failing[0] = False
    with Crew(app):
        wait_until(lambda: not app.outbox.list(), "the rest to be told")
    assert heard[-3:] == LIFE


def test_a_webhook_gets_what_a_program_submits_that_runs_no_worker(app: Holdfast) -> None:
    with Receiver() as receiver:
        app.webhook(receiver.url(), secret="s3cret", kinds=["task.enqueued"], name="hook", private=True)
        handle = app.enqueue("somewhere.else", 1)
        (waiting,) = app.outbox.list(sink="hook")
        assert waiting.task_id == handle.id
        with Crew(app):
            wait_until(lambda: receiver.requests, "the call")
        received = webhooks.verify(receiver.requests[0].body, receiver.requests[0].headers, "s3cret")
        assert (received.event.kind, received.event.task_id) == ("task.enqueued", handle.id)
        (sink,) = app.sinks.list()
        assert sink.signed
        assert "s3cret" not in repr(app.sinks.list())


def test_a_subscriber_of_another_program_is_left_to_it(app: Holdfast) -> None:
    @app.subscribe("task.enqueued", name="theirs")
    def theirs(event: Event) -> None: ...

    app.enqueue("t")
    other = Holdfast(app.url)
    other.connections.exchange(app.connections.factory)
    with Crew(other) as crew:
        assert crew.wait_for(SinkLeft).sink == "subscriber:theirs"
    assert [waiting.sink for waiting in app.outbox.list()] == ["subscriber:theirs"]
    assert app.sinks.delete("subscriber:theirs")
    assert not app.sinks.delete("subscriber:theirs")
    assert app.outbox.list() == []


def test_sinks_can_be_declared_before_the_first_submit(app: Holdfast) -> None:
    app.webhook("https://example.org/hook")
    app.sinks.declare()
    assert [sink.name for sink in app.sinks.list()] == ["https://example.org/hook"]


def test_dead_rows_are_listed_requeued_and_forgotten(app: Holdfast) -> None:
    with Receiver() as receiver:
        app.webhook(receiver.url("/410"), name="hook", private=True, kinds=["task.enqueued"])
        for _ in range(3):
            app.enqueue("t")
        with Crew(app):
            wait_until(lambda: len(app.outbox.list(state="dead")) == 3, "three dead rows")
        first, second, third = app.outbox.list(sink="hook", state="dead")
        assert app.outbox.requeue(first.id)
        assert not app.outbox.requeue(first.id), "it is not dead any more"
        assert app.outbox.delete(second.id)
        assert [waiting.id for waiting in app.outbox.list(state="dead")] == [third.id]
        assert app.outbox.requeue_all() == 1
        assert app.outbox.purge() == 0
        assert [waiting.id for waiting in app.outbox.list(state="pending", limit=1)] == [first.id]
        assert [waiting.id for waiting in app.outbox.list(after=first.id)] == [third.id]


def test_wrong_questions_are_refused() -> None:
    with Holdfast("memory://") as app:
        with pytest.raises(InvalidTask, match="pending, dead"):
            app.outbox.list(state="gone")
        with pytest.raises(InvalidTask):
            app.outbox.list(limit=0)
        with pytest.raises(InvalidTask):
            app.outbox.requeue(0)


def test_two_sinks_of_one_name_are_refused() -> None:
    with Holdfast("memory://") as app:
        app.webhook("https://example.org/hook", kinds=["task.failed"])
        app.webhook("https://example.org/hook", kinds=["task.failed"])
        with pytest.raises(InvalidTask, match="name="):
            app.webhook("https://example.org/hook", kinds=["task.completed"])
        app.webhook("https://example.org/hook", kinds=["task.completed"], name="other")

        @app.subscribe(name="s")
        def one(event: Event) -> None: ...

        with pytest.raises(InvalidTask, match="name="):

            @app.subscribe(name="s")
            def two(event: Event) -> None: ...


def test_subscribe_without_parentheses_says_how_it_is_meant() -> None:
    def function(event: Event) -> None: ...

    with Holdfast("memory://") as app, pytest.raises(InvalidTask, match="kinds of events"):
        app.subscribe(function)  # type: ignore[arg-type]


def test_under_test_subscribers_are_told_and_webhooks_are_not() -> None:
    app = Holdfast("sqlite:///never-opened.db")
    heard: list[str] = []
    with Receiver() as receiver:
        app.webhook(receiver.url(), name="hook", private=True)

        @app.task(name="t")
        async def t() -> None: ...

        @app.subscribe("task.completed")
        def completed(event: Event) -> None:
            heard.append(event.task_id)

        with app.testing() as testing:
            handle = t.enqueue()
            testing.drain()
            assert heard == [handle.id]
            assert [waiting.event.kind for waiting in app.outbox.list(sink="hook") if waiting.event] == LIFE
        assert receiver.requests == []


def told(function: object, seconds: float = 10.0) -> Answer:
    async def use() -> Answer:
        channel = InProcess(function, call_seconds=seconds)  # type: ignore[arg-type]
        (answer,) = await channel.tell([row()])
        await channel.close()
        return answer

    return asyncio.run(use())


def test_a_subscriber_that_does_not_return_fails_its_try() -> None:
    release = threading.Event()

    def stuck(event: Event) -> None:
        release.wait(60)

    async def slow(event: Event) -> None:
        await asyncio.sleep(60)

    for function in (stuck, slow):
        answer = told(function, seconds=0.05)
        assert answer.error is not None
        assert answer.blame
    release.set()


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(), GeneratorExit()])
def test_a_subscriber_cannot_end_its_worker(error: BaseException) -> None:
    def plain(event: Event) -> None:
        raise error

    async def awaited(event: Event) -> None:
        raise error

    for function in (plain, awaited):
        answer = told(function)
        assert answer.error is not None
        assert answer.blame


def test_subscribers_run_neither_on_the_workers_loop_nor_on_that_of_its_keeper() -> None:
    names: set[str] = set()

    def plain(event: Event) -> None:
        names.add(threading.current_thread().name)

    async def awaited(event: Event) -> None:
        names.add(threading.current_thread().name)

    assert told(plain) == told(awaited) == Answer()
    assert names == {"holdfast-subscriber", "holdfast-portal"}


def test_a_store_without_an_outbox_says_so() -> None:
    failed: list[str] = []

    class Bare:
        capabilities = Capabilities(durable=True, shared=True)
        label = "a bare store"

    app = Holdfast("memory://")
    app.webhook("https://example.org/")
    left = asyncio.run(declare(Bare(), app.registry.sinks, lambda _, error: failed.append(str(error))))  # type: ignore[arg-type]
    assert len(left) == 1
    assert "a bare store has no outbox" in failed[0]
    app.close()


def test_through_a_dispatcher_wake_ups_are_its_own_business_and_subscribers_are_refused() -> None:
    declared: list[str] = []
    failed: list[Exception] = []

    class Remote:
        capabilities = Capabilities(durable=True, shared=True, outbox=True, maintained=True)
        label = "a dispatcher"

        async def declare_sink(self, new: object) -> None:
            declared.append(new.name)  # type: ignore[attr-defined]

    app = Holdfast("memory://", wakeup="sqs://q")
    app.webhook("https://example.org/")

    @app.subscribe()
    def function(event: Event) -> None: ...

    asyncio.run(declare(Remote(), app.registry.sinks, lambda _, error: failed.append(error)))  # type: ignore[arg-type]
    assert declared == ["https://example.org/"]
    assert [type(error) for error in failed] == [NotSupported]
    app.close()


def test_a_worker_that_has_ended_its_work_tells_before_it_leaves() -> None:
    """A subscriber that takes a while is waited for: `until_idle` is for scripts and tests."""
    heard: list[str] = []
    with Holdfast("memory://") as app:

        @app.task(name="t")
        async def t() -> None: ...

        @app.subscribe("task.completed")
        def slow(event: Event) -> None:
            time.sleep(0.05)
            heard.append(event.task_id)

        handle = t.enqueue()
        work_off(app)
        assert ended(handle).status == "completed"
        assert heard == [handle.id]
