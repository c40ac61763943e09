"""Runs: what a program sees of a workflow that it has submitted, from the first look to the result."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import Context, Graph, Holdfast, Retry, Run, Task, Unrecoverable, chain, chord, group
from holdfast.errors import IdempotencyConflict, InvalidTask, RunNotFound, TaskCanceled, TaskFailed


class Shop:
    """An app, the tasks that the tests put together, and a gate that `held` waits for."""

    def __init__(self, app: Holdfast) -> None:
        self.app = app
        self.entered = threading.Event()
        self.gate = threading.Event()

        @app.task(name="fetch")
        def fetch(text: str) -> str:
            return text

        @app.task(name="length")
        async def length(text: Any, scale: int = 1) -> int:
            return len(text) * scale

        @app.task(name="total")
        def total(numbers: list[int]) -> int:
            return sum(numbers)

        @app.task(name="pair")
        async def pair(first: Any, second: Any) -> list[Any]:
            return [first, second]

        @app.task(name="fail")
        def fail(text: Any = None) -> int:
            raise Unrecoverable("no such page")

        @app.task(name="held")
        def held(text: Any = None) -> str:
            self.entered.set()
            assert self.gate.wait(30)
            return "held"

        self.fetch, self.length, self.total, self.pair = fetch, length, total, pair
        self.fail, self.held = fail, held

    def drain(self) -> None:
        self.app.worker(poll_interval=0.02).run(until_idle=True)

    def states(self, run: Run[Any]) -> dict[str, str]:
        return {f"{task.name}": task.status.value for task in run.tasks()}


@pytest.fixture
def shop() -> Iterator[Shop]:
    with Holdfast("memory://") as app:
        made = Shop(app)
        yield made
        made.gate.set()


# Results


def test_a_chain_gives_its_last_result(shop: Shop) -> None:
    run = chain(shop.fetch.s("abc"), shop.length.then(scale=2)).enqueue()
    assert (run.created, run.status()) == (True, "running")
    shop.drain()
    assert (run.result(timeout=5), run.status()) == (6, "completed")


def test_a_group_gives_the_list_of_its_results_in_order(shop: Shop) -> None:
    several = group(shop.length.s("x" * size) for size in (3, 1, 2)).enqueue()
    alone = group([shop.length.s("xx")]).enqueue()
    nested = group([group([shop.length.s("x"), shop.length.s("xx")]), group([shop.length.s("xxx")])]).enqueue()
    shop.drain()
    assert several.result(timeout=5) == [3, 1, 2]
    assert alone.result(timeout=5) == [2]
    assert nested.result(timeout=5) == [[1, 2], [3]]


def test_a_finalizer_gets_the_list(shop: Shop) -> None:
    members = [chain(shop.fetch.s("x" * size), shop.length.then()) for size in range(10)]
    run = chord(members, shop.total.then()).enqueue()
    shop.drain()
    assert run.result(timeout=5) == 45


def test_a_node_gets_its_parents_results_and_a_group_as_a_list(shop: Shop) -> None:
    graph = Graph()
    page = graph.add(shop.fetch.s("abc"))
    size = graph.add(shop.length.then(), after=[page])
    both = graph.add(group([shop.length.then(), shop.length.then(scale=3)]), after=[page])
    graph.add(shop.pair.then(), after=[both, size])
    run = graph.enqueue()
    shop.drain()
    assert run.result(timeout=5) == [[3, 9], 3]


def test_an_empty_group_gives_an_empty_list(shop: Shop) -> None:
    run = chord([], shop.total.then()).enqueue()
    waits = chain(shop.held.s(), group([]), shop.total.then()).enqueue()
    last: Run[list[Any]] = chain(shop.fetch.s("x"), group([])).enqueue()
    assert waits.tasks()[1].status == "waiting"
    shop.gate.set()
    shop.drain()
    assert (run.result(timeout=5), waits.result(timeout=5), last.result(timeout=5)) == (0, 0, [])


def test_by_its_id_a_run_gives_what_its_last_tasks_gave(shop: Shop) -> None:
    several = group([shop.length.s("x"), shop.length.s("xx")]).enqueue()
    alone = group([shop.length.s("xx")]).enqueue()
    shop.drain()
    assert shop.app.run_handle(several.id).result(timeout=5) == [1, 2]
    assert shop.app.run_handle(alone.id).result(timeout=5) == 2


def test_tasks_that_share_a_run_id_are_a_run(shop: Shop) -> None:
    for size in (1, 2):
        shop.length.using(run_id="mine").enqueue("x" * size)
    run = shop.app.run_handle("mine")
    assert run.info().counts["queued"] == 2
    shop.drain()
    assert run.result(timeout=5) == [1, 2]


def test_a_result_is_waited_for(shop: Shop) -> None:
    async def main() -> int:
        run = await chain(shop.held.s(), shop.length.then()).aenqueue()
        worker = asyncio.create_task(shop.app.worker(poll_interval=0.02).arun(until_idle=True))
        result = asyncio.create_task(run.aresult(timeout=30))
        await asyncio.to_thread(shop.entered.wait, 30)
        assert not result.done()
        assert await run.astatus() == "running"
        shop.gate.set()
        found = await result
        await worker
        await shop.app.aclose()
        return found

    assert asyncio.run(main()) == 4


def test_waiting_for_a_run_ends_with_a_timeout_or_not_found(shop: Shop) -> None:
    run = chain(shop.fetch.s("x"), shop.length.then()).enqueue()
    with pytest.raises(TimeoutError, match=f"holdfast runs show {run.id}"):
        run.result(timeout=0.01)
    nowhere = shop.app.run_handle("nowhere")
    for look in (nowhere.result, nowhere.info, nowhere.status, nowhere.cancel):
        with pytest.raises(RunNotFound, match="there is no run nowhere"):
            look()
    assert nowhere.tasks() == []


# Failure


def test_a_failed_run_names_the_task_that_failed(shop: Shop) -> None:
    run = chain(shop.fetch.s("x"), shop.fail.then(), shop.length.then()).enqueue()
    shop.drain()
    culprit = run.tasks()[1]
    with pytest.raises(TaskFailed, match=rf"run {run.id} failed: task {culprit.id} \(fail\).*no such page") as raised:
        run.result(timeout=5)
    assert raised.value.error is not None
    assert raised.value.error["message"] == "no such page"
    assert shop.states(run) == {"fetch": "completed", "fail": "failed", "length": "canceled"}
    assert run.status() == "failed"


def test_several_failures_are_counted(shop: Shop) -> None:
    run = group([shop.fail.s(), shop.fail.s(), shop.fail.s()]).enqueue()
    shop.drain()
    with pytest.raises(TaskFailed, match="and 2 other tasks failed"):
        run.result(timeout=5)


def test_a_retried_member_lets_the_run_go_on(shop: Shop) -> None:
    wrong = True

    @shop.app.task(name="mended", max_attempts=1)
    def mended() -> str:
        if wrong:
            raise Retry(after=0)
        return "abc"

    run = chain(mended.s(), shop.length.then()).enqueue()
    shop.drain()
    assert run.status() == "failed"
    wrong = False
    shop.app.tasks.retry(run.tasks()[0].id)
    assert run.status() == "running"
    shop.drain()
    assert run.result(timeout=5) == 3


def test_what_runs_anyway_outlives_a_failure(shop: Shop) -> None:
    run = chain(shop.fail.s(), shop.fetch.s("anyway"), on_parent_failure="run").enqueue()
    shop.drain()
    assert run.result(timeout=5) == "anyway"


def test_a_group_that_fails_fast_ends_together(shop: Shop) -> None:
    later = shop.fetch.using(delay=3600).s("x")
    run = group([shop.fail.s(), later, later], fail_fast=True).enqueue()
    other = group([shop.fail.s(), later]).enqueue()
    shop.drain()
    assert run.info().counts == {"failed": 1, "canceled": 2}
    assert other.status() == "running"


def test_workflows_of_one_run_fail_fast_each_for_itself(shop: Shop) -> None:
    later = shop.fetch.using(delay=3600).s("x")
    run = group([shop.fail.s(), later], fail_fast=True).using(run_id="import 7").enqueue()
    group([later, later], fail_fast=True).using(run_id="import 7").enqueue()
    shop.drain()
    assert run.info().counts == {"failed": 1, "canceled": 1, "queued": 2}


# Cancel


def test_a_canceled_run_ends_whole(shop: Shop) -> None:
    run = chain(group([shop.length.s("x")] * 3), shop.total.then(), shop.fetch.s("x")).enqueue()
    run.cancel()
    assert run.info().counts == {"canceled": 5}
    assert {task.canceled_because for task in run.tasks()} == {None}
    with pytest.raises(TaskCanceled, match=f"run {run.id} was canceled"):
        run.result(timeout=5)


def test_cancel_also_reaches_what_would_run_anyway(shop: Shop) -> None:
    run = chain(shop.fetch.s("x"), shop.fetch.s("anyway"), on_parent_failure="run").enqueue()
    run.cancel()
    shop.drain()
    assert run.info().counts == {"canceled": 2}


def test_cancel_asks_what_runs_and_tells_how_far_it_is(shop: Shop) -> None:
    run = chain(shop.held.s(), group([shop.length.then()] * 600)).enqueue()
    worker = threading.Thread(target=shop.drain)
    worker.start()
    assert shop.entered.wait(30)
    told: list[int] = []
    assert shop.app.runs.cancel(run.id, progress=told.append) == 601
    assert told == sorted(told)
    assert told[-1] == 601
    assert run.status() == "running"
    assert run.tasks()[0].cancel_requested_at is not None
    shop.gate.set()
    worker.join(30)
    assert run.info().counts == {"completed": 1, "canceled": 600}, "a handler that completes all the same has completed"
    assert run.status() == "canceled"


def test_a_run_that_has_ended_is_not_changed_by_cancel(shop: Shop) -> None:
    run = chain(shop.fetch.s("x")).enqueue()
    shop.drain()
    assert shop.app.runs.cancel(run.id) == 0
    assert run.status() == "completed"


# Look


def test_tasks_come_in_the_order_of_submission(shop: Shop) -> None:
    run = chord([shop.length.s("x") for _ in range(1200)], shop.total.then()).enqueue()
    tasks: list[Task] = run.tasks()
    assert [task.id for task in tasks] == sorted(task.id for task in tasks)
    assert (len(tasks), tasks[-1].name, len(tasks[-1].parents)) == (1201, "total", 1200)


def test_runs_are_listed_newest_first(shop: Shop) -> None:
    made = [chain(shop.fetch.s("x"), shop.length.then()).enqueue().id for _ in range(3)]
    listed = shop.app.runs.list(limit=2)
    assert [info.id for info in listed] == [made[2], made[1]]
    assert [info.id for info in shop.app.runs.list(after=made[1])] == [made[0]]
    assert listed[0].counts == {"queued": 1, "waiting": 1}
    assert shop.app.runs.get(made[0]).finished_at is None
    with pytest.raises(InvalidTask):
        shop.app.runs.list(limit=0)


# Keys and transactions


def test_a_known_key_gives_the_known_run_with_its_result(shop: Shop) -> None:
    workflow = chain(shop.fetch.s("abc"), shop.length.then())
    first = workflow.using(idempotency_key="k").enqueue()
    shop.drain()
    again = workflow.using(idempotency_key="k", run_id="other").enqueue()
    assert (again.created, again.id, again.result(timeout=5)) == (False, first.id, 3)
    with pytest.raises(IdempotencyConflict):
        chain(shop.total.s([1]), shop.length.then()).using(idempotency_key="k").enqueue()
    assert len(shop.app.tasks.list()) == 2


def test_the_plain_form_names_its_twin_in_an_event_loop(shop: Shop) -> None:
    async def main() -> None:
        run = await chain(shop.fetch.s("x")).aenqueue()
        for plain in (run.result, run.tasks, run.cancel, run.info, run.status, chain(shop.fetch.s("x")).enqueue):
            with pytest.raises(RuntimeError, match=r"use `await a\w+\(…\)` here"):
                plain()
        await run.acancel()
        assert [task.status for task in await run.atasks()] == ["canceled"]
        await shop.app.aclose()

    asyncio.run(main())


# Follow-ups


def test_a_workflow_as_a_follow_up_is_submitted_with_the_completion(shop: Shop) -> None:
    @shop.app.task(name="order", takes_context=True)
    def order(ctx: Context, fails: bool) -> list[str]:
        first = ctx.follow_up(chain(shop.fetch.s("abc"), shop.length.then()))
        second = ctx.follow_up(group([shop.fetch.s("x")]).using(run_id="mine"))
        third = ctx.follow_up(shop.fetch.s("alone"))
        if fails:
            raise Unrecoverable("not now")
        return [first, second, third]

    refused = order.enqueue(True)
    handle = order.enqueue(False)
    shop.drain()
    with pytest.raises(TaskFailed):
        refused.result(timeout=5)
    first, second, third = handle.result(timeout=5)
    assert shop.app.run_handle(first).result(timeout=5) == 3
    assert second == "mine"
    assert shop.app.run_handle("mine").result(timeout=5) == "x"
    assert shop.app.handle(third).result(timeout=5) == "alone"
    assert len(shop.app.tasks.list()) == 2 + 2 + 1 + 1, "nothing of the one that failed"


def test_a_follow_up_takes_no_connection(shop: Shop) -> None:
    with pytest.raises(InvalidTask, match="takes no connection"):
        chain(shop.fetch.s("x")).using(connection=object()).follow_up()


def test_drain_of_a_test_runs_workflows_to_their_end(shop: Shop) -> None:
    with shop.app.testing() as t:
        run = chord([shop.length.s("xx"), shop.length.s("x")], shop.total.then()).enqueue()
        t.assert_enqueued(shop.total)
        t.drain()
        assert run.result(timeout=5) == 3
    assert shop.app.runs.list() == []


# In the caller's own transaction


def test_a_run_exists_if_and_only_if_the_callers_transaction_commits(tmp_path: Path) -> None:
    with Holdfast(f"sqlite:///{tmp_path / 'own.db'}") as app, own_connection(app, tmp_path / "own.db") as connection:
        workflow = chain(app.s("fetch", "abc"), app.then("length"))
        undone = workflow.using(connection=connection).enqueue()
        connection.execute("ROLLBACK")
        assert app.runs.list() == []
        with pytest.raises(RunNotFound):
            undone.status()
        connection.execute("BEGIN IMMEDIATE")
        run = workflow.using(connection=connection, idempotency_key="k").enqueue()
        with pytest.raises(InvalidTask, match="in a transaction that is still open"):
            workflow.using(connection=connection, idempotency_key="k").enqueue()
        connection.execute("COMMIT")
        assert run.info().counts == {"queued": 1, "waiting": 1}
        connection.execute("BEGIN IMMEDIATE")
        again = workflow.using(connection=connection, idempotency_key="k").enqueue()
        connection.execute("COMMIT")
        assert (again.id, again.created) == (run.id, False)


@contextmanager
def own_connection(app: Holdfast, path: Path) -> Iterator[sqlite3.Connection]:
    """To the app's database, with a transaction open."""
    app.queues.list()  # makes the file
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()
