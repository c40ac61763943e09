"""Workers that are woken from outside: their poll interval is an hour, so that what works is the wake-up.

The store's own wake-ups are silenced, as they are between machines where only the queue reaches everybody.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast, ids
from holdfast.events.facts import WakeupAway, WakeupBack, WakeupsRefused
from holdfast.model.outbox import Effect
from holdfast.stores.protocol import Store
from holdfast.transports.wakeup_sinks import wakeup_sink
from holdfast.wakeups import sqs as sqs_wakeups
from holdfast.wakeups.reports import Reports
from holdfast.wakeups.sqs import SqsWakeup
from tests import moto_server, nats_server
from tests.dispatcher.support import dispatcher
from tests.runtime.support import Crew, ended, wait_until

HOUR = 3600.0


@pytest.fixture
def queue() -> Iterator[moto_server.Queue]:
    made = moto_server.Queue(moto_server.server())
    yield made
    made.close()


def deaf(app: Holdfast) -> Holdfast:
    """The claimer of this app's workers does not hear the store; its relay, which has another handle, does."""
    inner = app.connections.factory

    class Deaf:
        def __init__(self, store: Store) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        @property
        def wakeups(self) -> list[Any]:
            on_worker_loop = threading.current_thread().name != "holdfast-keeper"
            return [] if on_worker_loop else list(self._store.wakeups)

    def opened() -> Any:
        return Deaf(inner())

    app.connections.exchange(opened)
    return app


@pytest.fixture(params=["memory", "sqlite"])
def make_app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Holdfast]]:
    made: list[Holdfast] = []

    def make(wakeup: str) -> Holdfast:
        url = f"memory://{ids.nonce()}" if request.param == "memory" else f"sqlite:///{tmp_path}/tasks.db"
        made.append(deaf(Holdfast(url, wakeup=wakeup)))
        return made[-1]

    yield make
    for app in made:
        app.close()


def idle_crew(app: Holdfast, **options: Any) -> Crew:
    return Crew(app, poll_interval=HOUR, concurrency=4, **options)


def wait_until_listening(crew: Crew, app: Holdfast) -> None:
    """Until the worker has asked once in vain: from now on only a wake-up makes it ask again."""
    wait_until(lambda: any(worker.id == crew.worker.worker_id for worker in app.workers.list()))


def test_a_worker_runs_what_sqs_announces_and_deletes_the_message(
    make_app: Callable[[str], Holdfast], queue: moto_server.Queue
) -> None:
    app = make_app(queue.url)

    @app.task(name="t")
    async def t(n: int) -> int:
        return n

    with idle_crew(app) as crew:
        wait_until_listening(crew, app)
        handles = [t.enqueue(n) for n in range(5)]
        assert [ended(handle).result for handle in handles] == [0, 1, 2, 3, 4]
        wait_until(lambda: queue.counts() == (0, 0), "all messages to be deleted")
    (sink,) = app.sinks.list()
    assert (sink.name, sink.effect) == (f"wakeup:{queue.url}", Effect.WAKE)


def test_a_worker_without_access_to_the_database_is_woken_by_sqs(queue: moto_server.Queue) -> None:
    """The dispatcher announces, the worker hears; between them is only HTTP, and nobody polls."""
    with dispatcher() as running:
        running.behind(lambda store: store.declare_sink(wakeup_sink(queue.url)))
        with Holdfast(running.url, wakeup=queue.url) as opened:
            app = deaf(opened)

            @app.task(name="t")
            async def t(n: int) -> int:
                return n

            with idle_crew(app) as crew:
                wait_until_listening(crew, app)
                assert [ended(t.enqueue(n)).result for n in range(3)] == [0, 1, 2]
                wait_until(lambda: queue.counts() == (0, 0), "all messages to be deleted")


def test_a_message_is_extended_while_the_handler_runs_and_deleted_after(
    queue: moto_server.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The visibility is a second or two; the handler goes on until the message was extended twice."""
    calls: list[str] = []
    real = SqsWakeup._in_batches

    def noting(self: SqsWakeup, entries: Any, call: str, connection: Any) -> None:
        calls.extend([call] * len(entries))
        real(self, entries, call, connection)

    looks: list[int] = []
    answered = SqsWakeup.answered

    def counting(self: SqsWakeup, asked: int, task_ids: Sequence[str], *, short: bool) -> None:
        answered(self, asked, task_ids, short=short)
        looks.append(asked)

    monkeypatch.setattr(SqsWakeup, "_in_batches", noting)
    monkeypatch.setattr(SqsWakeup, "answered", counting)
    monkeypatch.setattr(sqs_wakeups, "VISIBILITY_SECONDS", 3)
    go_on = threading.Event()
    with Holdfast("memory://", wakeup=queue.url) as app:

        @app.task(name="t")
        def t() -> None:
            go_on.wait(60)

        with idle_crew(deaf(app)):
            # One at its start, one when the queue is connected: had either found the task, nobody would announce it.
            wait_until(lambda: len(looks) == 2, "the worker to have looked in vain")
            handle = t.enqueue()
            wait_until(lambda: calls.count("change_message_visibility_batch") >= 2, "two extensions")
            assert queue.counts() == (0, 1)
            assert "delete_message_batch" not in calls
            go_on.set()
            assert ended(handle).status == "completed"
            wait_until(lambda: queue.counts() == (0, 0), "the message to be deleted")


def test_duplicate_late_forged_and_malformed_messages_do_no_harm(
    make_app: Callable[[str], Holdfast], queue: moto_server.Queue
) -> None:
    app = make_app(queue.url)
    runs: list[int] = []

    @app.task(name="t")
    async def t(n: int) -> None:
        runs.append(n)

    with idle_crew(app) as crew:
        wait_until_listening(crew, app)
        handle = t.enqueue(1)
        assert ended(handle).status == "completed"
        body = f'{{"task_id": "{handle.id}", "queue": "default"}}'
        for text in (body, body, '{"task_id": "no-such-task", "queue": "default"}'):  # late, twice, forged
            queue.send(text)
        foreign = ["{", "null", "[]", '{"task_id": 7, "queue": "default"}', '{"queue": "x"}', "x" * 10_000]
        deep = '{"x": ' + "[" * 4000
        for text in [*foreign, deep, '{"task_id": "", "queue": ""}', f'{{"task_id": "{"a" * 600}", "queue": "q"}}']:
            queue.send(text)
        wait_until(lambda: queue.counts() == (0, 0), "all of them to be deleted")
        refused = crew.of(WakeupsRefused)
        assert len(refused) == 1, "a flood is told once"
        assert ended(t.enqueue(2)).status == "completed"
        wait_until(lambda: queue.counts() == (0, 0))
    assert runs == [1, 2]


def test_a_message_for_other_queues_is_left_to_their_workers(
    make_app: Callable[[str], Holdfast], queue: moto_server.Queue
) -> None:
    app = make_app(queue.url)

    @app.task(name="t", queue="mine")
    async def t() -> None: ...

    with idle_crew(app, queues=["mine"]) as crew:
        wait_until_listening(crew, app)
        queue.send('{"task_id": "theirs", "queue": "theirs"}')
        assert ended(t.enqueue()).status == "completed"
        wait_until(lambda: queue.counts() == (0, 1), "only the foreign one to be left")


def test_a_dead_sqs_is_told_polled_around_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.wakeups.reports.LONGEST_PAUSE_SECONDS", 0.2)
    server = moto_server.Server()
    try:
        queue = moto_server.Queue(server)
        with Holdfast("memory://", wakeup=queue.url) as app:

            @app.task(name="t")
            async def t() -> None: ...

            server.stop()
            with Crew(app, poll_interval=0.05) as crew:
                crew.wait_for(WakeupAway)
                assert ended(t.enqueue()).status == "completed"
                server.start()
                moto_server.Queue(server, queue.name).close()
                crew.wait_for(WakeupBack)
            assert len(crew.of(WakeupAway)) == 1
        queue.close()
    finally:
        server.stop()


def test_a_worker_stops_while_a_long_poll_is_under_way(queue: moto_server.Queue) -> None:
    """And what that poll still brings goes back to the others."""
    with Holdfast("memory://", wakeup=queue.url) as app, idle_crew(app) as crew:
        wait_until(lambda: app.workers.list())
        crew.worker.stop()
        crew.join()
    queue.send("anything")
    wait_until(lambda: queue.counts() == (1, 0), "the message to be visible", seconds=40)


def test_nothing_is_received_while_the_worker_wants_no_work(queue: moto_server.Queue) -> None:
    queue.send('{"task_id": "x", "queue": "default"}')
    reports = Reports(away=lambda _: None, back=lambda: None, refused=lambda _: None)
    listener = SqsWakeup(wakeup_sink(queue.url), None, reports)
    rung = threading.Event()
    stop = listener.listen(rung.set)
    listener.start()
    assert queue.counts() == (1, 0)
    listener.idle()
    assert rung.wait(20)
    wait_until(lambda: queue.counts() == (0, 1))
    listener.busy()
    stop()
    listener.close()
    wait_until(lambda: queue.counts() == (1, 0), "what was undecided to go back")


def test_a_worker_runs_what_nats_announces(make_app: Callable[[str], Holdfast]) -> None:
    with nats_server.Server() as server:
        app = make_app(server.url())

        @app.task(name="t", queue="odd queue.*")
        async def t(n: int) -> int:
            return n

        with idle_crew(app, queues=["odd queue.*"]) as crew:
            wait_until_listening(crew, app)
            assert [ended(t.enqueue(n)).result for n in range(3)] == [0, 1, 2]


def test_a_dead_nats_is_told_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.wakeups.reports.LONGEST_PAUSE_SECONDS", 0.2)
    with nats_server.Server() as server, Holdfast("memory://", wakeup=server.url()) as app:

        @app.task(name="t")
        async def t() -> None: ...

        with Crew(app, poll_interval=0.05) as crew:
            assert ended(t.enqueue()).status == "completed"
            server.stop()
            crew.wait_for(WakeupAway)
            assert ended(t.enqueue()).status == "completed"
            server.start()
            crew.wait_for(WakeupBack)


def test_under_test_nobody_outside_is_listened_to_or_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqs_wakeups, "connect", lambda *_, **__: pytest.fail("a test must not reach out"))
    app = Holdfast("memory://", wakeup=f"sqs+http://127.0.0.1:{moto_server.free_port()}/1/q")

    @app.task(name="t")
    async def t() -> None: ...

    with app.testing() as t_:
        t.enqueue()
        assert t_.drain() == 1
        (row,) = app.outbox.list()
        assert row.effect is Effect.WAKE
    app.close()
