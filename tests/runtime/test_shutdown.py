"""Stopping: what runs may finish within the grace time, the rest is given back uncounted, and no lease is left."""

from __future__ import annotations

import asyncio
import threading
import time

from holdfast import Context, Holdfast
from holdfast.events.facts import WorkerStarted, WorkerStopped, WorkerStopping
from tests.runtime.support import Crew, kinds, memory_state, running_nowhere, wait_until, work_off


def test_what_runs_may_finish(any_app: Holdfast) -> None:
    begun, gate = threading.Event(), threading.Event()

    @any_app.task(name="slow")
    def slow() -> str:
        begun.set()
        gate.wait(20)
        return "finished"

    with Crew(any_app, grace=20) as crew:
        handle = slow.enqueue()
        assert begun.wait(20)  # the record is `running` before the worker has the claim's reply in its hands
        crew.worker.stop()
        assert crew.wait_for(WorkerStopping).running == 1
        gate.set()
        crew.join()
        assert crew.of(WorkerStopped)[0].released == 0
    assert handle.task().result == "finished"
    assert running_nowhere(any_app)
    assert any_app.workers.list() == []


def test_what_is_not_finished_at_the_end_of_the_grace_time_is_given_back(any_app: Holdfast) -> None:
    let_go = threading.Event()

    @any_app.task(name="coroutine")
    async def coroutine() -> None:
        await asyncio.sleep(3600)

    @any_app.task(name="thread")
    def thread() -> str:
        let_go.wait(60)
        return "too late"

    with Crew(any_app, grace=0.2, concurrency=2) as crew:
        handles = [coroutine.enqueue(), thread.enqueue()]
        wait_until(lambda: any_app.tasks.count()["running"] == 2)
        crew.worker.stop()
        crew.join()
    let_go.set()
    assert crew.raised is None
    assert crew.of(WorkerStopped)[0].released == 2
    for handle in handles:
        record = handle.task()
        assert (record.status, record.attempt, record.failures, record.last_error) == ("queued", 1, 0, None)
        assert kinds(handle) == ["task.enqueued", "task.running", "task.released"]
    assert running_nowhere(any_app)


def test_a_worker_whose_only_slot_holds_a_thread_leaves_without_an_error(app: Holdfast) -> None:
    let_go = threading.Event()

    @app.task(name="thread")
    def thread() -> None:
        let_go.wait(60)

    with Crew(app, grace=0, concurrency=1) as crew:
        handle = thread.enqueue()
        wait_until(lambda: handle.task().status == "running")
        crew.worker.stop()
        crew.join()
    let_go.set()
    assert crew.raised is None
    assert handle.task().failures == 0


def test_a_second_stop_aborts(any_app: Holdfast) -> None:
    @any_app.task(name="coroutine")
    async def coroutine() -> None:
        await asyncio.sleep(3600)

    with Crew(any_app, grace=3600) as crew:
        handle = coroutine.enqueue()
        wait_until(lambda: handle.task().status == "running")
        crew.worker.stop()
        crew.wait_for(WorkerStopping)
        crew.worker.stop()
        crew.join()
    record = handle.task()
    assert (record.status, record.failures) == ("queued", 0)
    assert running_nowhere(any_app)


def test_what_was_claimed_ahead_is_given_back(any_app: Holdfast) -> None:
    gate = threading.Event()

    @any_app.task(name="quick")
    async def quick() -> None: ...

    @any_app.task(name="plug", priority=-1)
    def plug() -> None:
        gate.wait(20)

    with Crew(any_app, concurrency=1, grace=20) as crew:
        any_app.enqueue_many([quick.s() for _ in range(500)] + [plug.s() for _ in range(50)])
        wait_until(lambda: any_app.tasks.count()["completed"] == 500)
        wait_until(lambda: any_app.tasks.count()["running"] >= 1)
        crew.worker.stop()
        crew.wait_for(WorkerStopping)
        gate.set()
        crew.join()
    assert running_nowhere(any_app)
    assert {task.failures for task in any_app.tasks.list(limit=1000)} == {0}
    assert any_app.tasks.count()["queued"] == 49


def test_a_worker_with_long_tasks_claims_nothing_ahead(any_app: Holdfast) -> None:
    gate = threading.Event()

    @any_app.task(name="long")
    def long() -> None:
        gate.wait(20)

    with Crew(any_app, concurrency=1, worker_id="a"), Crew(any_app, concurrency=1, worker_id="b"):
        any_app.enqueue_many([long.s() for _ in range(3)])
        wait_until(lambda: any_app.tasks.count()["running"] >= 2)
        holders = [task.claimed_by for task in any_app.tasks.list(status="running")]
        gate.set()
    assert sorted(str(holder) for holder in holders) == ["a", "b"]


def test_a_claim_that_is_out_when_the_worker_stops_is_given_back(any_app: Holdfast) -> None:
    """The answer to a claim arrives after the worker was told to stop: its leases must not be forgotten."""

    @any_app.task(name="quick")
    async def quick() -> None: ...

    for _ in range(15):
        with Crew(any_app, concurrency=50) as crew:
            crew.wait_for(WorkerStarted)
            any_app.enqueue_many([quick.s() for _ in range(200)])
            crew.worker.stop()
            crew.join()
        assert running_nowhere(any_app)
    work_off(any_app)
    tasks = any_app.tasks.list(limit=10_000)
    assert {(task.status.value, task.failures) for task in tasks} == {("completed", 0)}


def test_a_stop_before_the_start_is_not_forgotten(app: Holdfast) -> None:
    @app.task(name="quick")
    async def quick() -> None: ...

    worker = app.worker()
    worker.stop()
    worker.run()  # returns
    quick.enqueue()
    worker.run(until_idle=True)
    assert app.tasks.count()["completed"] == 1


def test_a_worker_can_be_stopped_while_its_store_is_away(app: Holdfast) -> None:
    state = memory_state(app)
    state.go_away()
    with Crew(app) as crew:
        wait_until(lambda: crew.told)
        crew.worker.stop()
        crew.join()
    state.come_back()
    assert crew.raised is None


def test_cancelling_arun_gives_everything_back(any_app: Holdfast) -> None:
    @any_app.task(name="coroutine")
    async def coroutine() -> None:
        await asyncio.sleep(3600)

    handle = coroutine.enqueue()

    async def main() -> None:
        running = asyncio.create_task(any_app.worker(poll_interval=0.05).arun())
        while (await handle.atask()).status != "running":  # noqa: ASYNC110  the store is asked, not an event
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait({running})
        assert running.cancelled()

    asyncio.run(main())
    record = handle.task()
    assert (record.status, record.failures) == ("queued", 0)
    assert running_nowhere(any_app)


def test_the_countdown_is_told_while_work_finishes(app: Holdfast) -> None:
    said: list[tuple[int, float]] = []

    @app.task(name="polite", takes_context=True)
    def polite(ctx: Context) -> None:
        while not ctx.cancel_requested and not said:
            time.sleep(0.005)

    with Crew(app, grace=20) as crew:
        crew.worker.countdown = lambda running, left: said.append((running, left))
        handle = polite.enqueue()
        wait_until(lambda: handle.task().status == "running")
        crew.worker.stop()
        crew.join()
    assert said[0][0] == 1
    assert 0 < said[0][1] <= 20
    assert handle.task().status == "completed"


def test_a_thread_that_outlives_its_worker_ends_with_its_handler(app: Holdfast) -> None:
    """On a loop that lives on, as a web server's does: the thread must not wait there for work that never comes."""
    let_go = threading.Event()
    threads: list[threading.Thread] = []

    @app.task(name="stubborn")
    def stubborn() -> None:
        threads.append(threading.current_thread())
        let_go.wait(60)

    async def main() -> None:
        worker = app.worker(grace=0, poll_interval=0.05)
        working = asyncio.create_task(worker.arun())
        await stubborn.aenqueue()
        await asyncio.to_thread(wait_until, lambda: threads)
        worker.stop()
        await working
        let_go.set()
        await asyncio.to_thread(threads[0].join, 20)

        assert not threads[0].is_alive()

    asyncio.run(main())


def test_a_worker_told_to_stop_before_it_starts_does_not_wait_for_a_store_that_is_away(app: Holdfast) -> None:
    memory_state(app).go_away()
    worker = app.worker()
    worker.stop()
    running = threading.Thread(target=worker.run, daemon=True)
    running.start()
    running.join(20)
    assert not running.is_alive()
