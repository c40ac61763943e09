"""What a task gets from its parents, and what can happen while the worker reads it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from holdfast import Context, Failure, Holdfast
from holdfast.events.facts import StoreAway
from holdfast.model.workflow import ParentEnd
from holdfast.stores.memory.store import MemoryStore
from tests.runtime import process_tasks
from tests.runtime.support import Crew, code_of, ended, memory_state, wait_until, work_off
from tests.runtime.workflow_support import RUN, node, submit


def declare(app: Holdfast) -> None:
    @app.task(name="give")
    async def give(value: Any) -> Any:
        return value

    @app.task(name="fail")
    async def fail(words: str) -> None:
        raise ValueError(words)

    @app.task(name="loop")
    async def loop(*args: Any, **kwargs: Any) -> list[Any]:
        return [*args, kwargs]

    @app.task(name="thread", takes_context=True)
    def thread(ctx: Context, *args: Any, **kwargs: Any) -> list[Any]:
        return [*args, kwargs]

    @app.task(name="seen")
    async def seen(value: Any) -> list[Any]:
        found = value if isinstance(value, list) else [value]
        return [[item.name, item.status, item.error] if isinstance(item, Failure) else item for item in found]


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_results_come_before_the_arguments_in_the_order_of_the_parents(any_app: Holdfast, place: str) -> None:
    declare(any_app)
    parents = [node("give", value, priority=index) for index, value in enumerate(["a", None, {"b": [1]}, -0.0])]
    child = node(place, "own", inputs=[None, 2, [None]], after=parents)
    *_, handle = submit(any_app, *parents, child)
    work_off(any_app)
    assert handle.result(5) == ["a", [None, {"b": [1]}], [-0.0], "own", {}]


def test_an_empty_group_gives_an_empty_list(any_app: Holdfast) -> None:
    declare(any_app)
    (handle,) = submit(any_app, node("loop", inputs=[0]))
    work_off(any_app)
    assert handle.result(5) == [[], {}]


def test_large_results_reach_a_coroutine(app: Holdfast) -> None:
    declare(app)
    parents = [node("give", "x" * 300_000) for _ in range(3)]
    *_, handle = submit(app, *parents, node("loop", inputs=[3], after=parents))
    work_off(app)
    assert handle.result(5) == [["x" * 300_000] * 3, {}]


def test_a_task_that_runs_anyway_gets_the_failure_also_within_a_list(any_app: Holdfast) -> None:
    declare(any_app)
    bad, good = node("fail", "no luck"), node("give", 1)
    single = node("seen", inputs=[None], after=[bad], on_parent_failure="run")
    listed = node("seen", inputs=[2], after=[good, bad], on_parent_failure="run")
    *_, first, second = submit(any_app, bad, good, single, listed)
    work_off(any_app)
    (name, status, error) = first.result(5)[0]
    assert (name, status, error["message"], error["code"]) == ("fail", "failed", "no luck", "ValueError")
    assert second.result(5) == [1, [name, status, error]]


def test_a_child_process_builds_the_same_values() -> None:
    app = process_tasks.app
    with app.testing():
        app.connections.factory = Holdfast("memory://").connections.factory
        prefix = "tests.runtime.process_tasks"
        parents = [node(f"{prefix}.divide", 9, 3), node(f"{prefix}.divide", 1, 0)]
        child = node(f"{prefix}.receive", "own", inputs=[None, 1], after=parents, on_parent_failure="run")
        *_, failed, handle = submit(app, *parents, child)
        work_off(app)
        assert handle.result(5) == [3, ["Failure", failed.id, "failed", "ZeroDivisionError"], "own"]


@pytest.mark.parametrize("inputs", [[True], ["x"], [-1], [[{}]], "x", {}, None])
def test_malformed_inputs_are_a_bad_payload(app: Holdfast, inputs: Any) -> None:
    declare(app)
    payload = msgspec.json.encode({"args": [], "kwargs": {}, "inputs": inputs}).decode()
    (handle,) = submit(app, msgspec.structs.replace(node("loop"), payload=payload))
    work_off(app)
    assert (handle.task().status, code_of(handle.task()), handle.task().attempt) == ("failed", "bad_payload", 1)


@pytest.mark.parametrize("inputs", [[3], [10**12]])
def test_inputs_that_want_more_parents_than_there_are_make_a_dead_letter(any_app: Holdfast, inputs: list[Any]) -> None:
    declare(any_app)
    parents = [node("give", 1), node("give", 2)]
    *_, handle = submit(any_app, *parents, node("loop", inputs=inputs, after=parents, max_attempts=5))
    work_off(any_app)
    assert (handle.task().status, code_of(handle.task()), handle.task().attempt) == ("failed", "parent_gone", 1)


def test_parents_that_are_left_over_were_only_waited_for(any_app: Holdfast) -> None:
    declare(any_app)
    parents = [node("give", 1), node("give", 2)]
    *_, handle = submit(any_app, *parents, node("loop", "own", inputs=[None], after=parents))
    work_off(any_app)
    assert handle.result(5) == [1, "own", {}]


# While the parents are read


class Gate:
    """Holds every read of parents until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    async def wait(self) -> None:
        self.reached.set()
        while not self.opened.is_set():  # noqa: ASYNC110  opened by another thread
            await asyncio.sleep(0.005)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    made, parents = Gate(), MemoryStore.parents

    async def held(store: MemoryStore, task_id: str, *, after: int, limit: int) -> list[ParentEnd]:
        await made.wait()
        return await parents(store, task_id, after=after, limit=limit)

    monkeypatch.setattr(MemoryStore, "parents", held)
    yield made
    made.opened.set()


@contextmanager
def reading(app: Holdfast, gate: Gate, *, known: dict[str, Any] | None = None, **options: Any) -> Iterator[Any]:
    """A worker that is reading the parents of a child, which would run ever so gladly: (crew, the child's handle)."""
    declare(app)
    parent = node("give", 1)
    with Crew(app, **options) as crew:
        _, handle = submit(app, parent, node("loop", inputs=[None], after=[parent], **(known or {})))
        assert gate.reached.wait(20)
        yield crew, handle


def test_others_start_while_parents_are_read(app: Holdfast, gate: Gate) -> None:
    with reading(app, gate, concurrency=2) as (_, handle):
        assert app.enqueue("give", 2).result(20) == 2
        assert handle.task().status == "running"
        gate.opened.set()
        assert handle.result(20) == [1, {}]


def test_the_lease_is_kept_while_parents_are_read(app: Holdfast, gate: Gate) -> None:
    with reading(app, gate, lease=0.3) as (_, handle):
        first = handle.task().lease_expires_at
        wait_until(lambda: handle.task().lease_expires_at > first)
        gate.opened.set()
        assert ended(handle).attempt == 1


def test_a_cancel_ends_the_reading(app: Holdfast, gate: Gate) -> None:
    with reading(app, gate, lease=0.3) as (_, handle):
        handle.cancel()
        assert ended(handle).status == "canceled"


def test_the_timeout_counts_while_parents_are_read(app: Holdfast, gate: Gate) -> None:
    with reading(app, gate, known={"timeout": 0.3}) as (_, handle):
        task = ended(handle)
        assert (task.status, code_of(task)) == ("failed", "timeout")


def test_a_lost_lease_ends_the_reading_and_nothing_is_settled(app: Holdfast, gate: Gate) -> None:
    """1. parents are read; 2. the lease is ended by force; 3. the next attempt reads and runs, the first never does."""
    with reading(app, gate, lease=0.3) as (_, handle):
        app.tasks.release(handle.id)
        wait_until(lambda: handle.task().attempt == 2)
        gate.opened.set()
        task = ended(handle)
    assert (task.status, task.attempt, task.failures) == ("completed", 2, 0)


def test_a_worker_that_leaves_gives_back_what_it_was_reading_for(app: Holdfast, gate: Gate) -> None:
    with reading(app, gate, grace=0) as (_, handle):
        pass
    task = handle.task()
    assert (task.status, task.failures, task.attempt) == ("queued", 0, 1)
    assert [event.kind for event in handle.events()][-1] == "task.released"


def test_an_outage_while_parents_are_read_is_waited_out(app: Holdfast, gate: Gate) -> None:
    with reading(app, gate) as (crew, handle):
        memory_state(app).go_away()
        gate.opened.set()
        crew.wait_for(StoreAway)
        memory_state(app).come_back()
        assert handle.result(20) == [1, {}]
    assert handle.task().attempt == 1


def test_the_run_of_a_task_is_in_its_context(app: Holdfast) -> None:
    @app.task(name="which", takes_context=True)
    async def which(ctx: Context) -> str | None:
        return ctx.run_id

    (handle,) = submit(app, node("which"))
    work_off(app)
    assert handle.result(5) == RUN
