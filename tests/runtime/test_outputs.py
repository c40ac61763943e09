"""What handlers write into datasets and read of them, wherever they run (contract section 13)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Context, Fixed, Holdfast, Snooze, chain, group
from holdfast.errors import DatasetNotFound, InvalidTask, PayloadTooLarge
from holdfast.events.facts import StoreAway
from holdfast.outputs import PAGE
from holdfast.policy.outputs import BYTES_MOST, ROWS_MOST
from tests.runtime import process_tasks
from tests.runtime.support import Crew, code_of, ended, memory_state, wait_until, work_off


def rows(app: Holdfast, version: int | None = None, dataset: str = "orders") -> dict[str, Any]:
    return dict(app.datasets.get(dataset, version).rows())


def numbers(app: Holdfast, dataset: str = "orders") -> list[int]:
    return [one.version for one in reversed(app.datasets.versions(dataset))]


def written(app: Holdfast, **values: Any) -> None:
    """A task that appends these rows."""

    @app.task(name=f"write-{len(app.registry)}", takes_context=True)
    async def write(ctx: Context) -> None:
        ctx.output("orders", values)

    write.enqueue()
    work_off(app)


# Writing


def test_outputs_come_with_the_completion(any_app: Holdfast) -> None:
    @any_app.task(name="coroutine", takes_context=True)
    async def coroutine(ctx: Context) -> str:
        ctx.output("orders", [("k1", {"total": 3}), ("k2", None)], mode="append")
        ctx.output("lines", {"only": [1, 2]}, mode="replace")
        return "written"

    @any_app.task(name="thread", takes_context=True)
    def thread(ctx: Context) -> str:
        ctx.output("orders", (pair for pair in [("k2", "later"), ("k3", -0.0)]))
        return "written"

    first = coroutine.enqueue()
    work_off(any_app)
    second = thread.enqueue()
    work_off(any_app)
    assert (first.result(5), second.result(5)) == ("written", "written")
    assert rows(any_app, 1) == {"k1": {"total": 3}, "k2": None}
    assert repr(rows(any_app, 2)) == "{'k1': {'total': 3}, 'k2': None, 'k3': -0.0}"
    assert rows(any_app, dataset="lines") == {"only": [1, 2]}
    assert [one.task_id for one in any_app.datasets.versions("orders")] == [second.id, first.id]


def test_a_failed_attempt_writes_nothing_and_the_next_begins_empty(any_app: Holdfast) -> None:
    @any_app.task(name="flaky", takes_context=True, backoff=Fixed(0))
    def flaky(ctx: Context) -> None:
        ctx.output("orders", {f"attempt-{ctx.attempt}": ctx.attempt})
        if ctx.attempt == 1:
            raise ValueError
        if ctx.attempt == 2:
            raise Snooze(0)

    handle = flaky.enqueue()
    work_off(any_app)
    assert ended(handle).status == "completed"
    assert (numbers(any_app), rows(any_app)) == ([1], {"attempt-3": 3})


def test_several_calls_for_a_dataset_make_one_version(any_app: Holdfast) -> None:
    @any_app.task(name="often", takes_context=True)
    def often(ctx: Context) -> None:
        for number in range(20):
            ctx.output("orders", {f"k{number:02}": number, "same": number})

    often.enqueue()
    work_off(any_app)
    assert numbers(any_app) == [1]
    assert rows(any_app) == {f"k{number:02}": number for number in range(20)} | {"same": 0}


REFUSED: dict[str, tuple[Callable[[Context], Any], str]] = {
    "both modes": (lambda ctx: ctx.output("fine", {}, mode="replace"), "InvalidTask"),
    "another mode": (lambda ctx: ctx.output("a", {}, mode="merge"), "InvalidTask"),  # type: ignore[arg-type]
    "no name": (lambda ctx: ctx.output("", {"k": 1}), "InvalidTask"),
    "no key": (lambda ctx: ctx.output("a", {"": 1}), "InvalidTask"),
    "a key that is no text": (lambda ctx: ctx.output("a", [(1, 1)]), "InvalidTask"),  # type: ignore[list-item]
    "no pair": (lambda ctx: ctx.output("a", ["kv"]), "InvalidTask"),  # type: ignore[list-item]
    "a value that is no JSON": (lambda ctx: ctx.output("a", {"k": {1, 2}}), "InvalidTask"),
    "too many rows": (lambda ctx: ctx.output("a", {str(n): n for n in range(ROWS_MOST + 1)}), "PayloadTooLarge"),
}


@pytest.mark.parametrize("flaw", REFUSED)
def test_what_could_not_be_committed_is_refused_where_it_is_written(app: Holdfast, flaw: str) -> None:
    write, code = REFUSED[flaw]

    @app.task(name="wrong", takes_context=True, max_attempts=1)
    def wrong(ctx: Context) -> None:
        ctx.output("fine", {"k": 1})
        write(ctx)

    handle = wrong.enqueue()
    work_off(app)
    assert code_of(handle.task()) == code
    assert app.datasets.list() == []


def test_the_bound_is_for_the_whole_attempt(app: Holdfast) -> None:
    @app.task(name="large", takes_context=True)
    def large(ctx: Context) -> list[str]:
        refusals = []
        for number in range(1 + BYTES_MOST // 1_000_000):
            try:
                ctx.output(f"part-{number}", {"k": "x" * 1_000_000})
            except PayloadTooLarge as refused:
                refusals.append(str(refused))
        return refusals

    handle = large.enqueue()
    work_off(app)
    assert len(handle.result(5)) == 1
    assert len(app.datasets.list()) == BYTES_MOST // 1_000_000, "what was accepted is there"


# Reading


def test_the_pinned_version_is_read_on_every_attempt(any_app: Holdfast) -> None:
    seen: list[Any] = []

    @any_app.task(name="read", takes_context=True, backoff=Fixed(0))
    def read(ctx: Context) -> Any:
        seen.append(ctx.input("orders"))
        if ctx.attempt == 1:
            raise ValueError
        return [list(pair) for pair in ctx.input("orders")]

    @any_app.task(name="aread", takes_context=True)
    async def aread(ctx: Context) -> int:
        both = await asyncio.gather(ctx.ainput("orders"), ctx.ainput("orders"))
        return sum(value for pairs in both for _, value in pairs)

    written(any_app, b=2, a=1)
    handle = read.using(inputs={"orders": 1}, delay=0).enqueue()
    other = aread.using(inputs={"orders": 1}).enqueue()
    assert handle.task().inputs == {"orders": 1}
    written(any_app, c=3)
    work_off(any_app)
    assert (handle.result(5), other.result(5)) == ([["a", 1], ["b", 2]], 6)
    assert seen == [[("a", 1), ("b", 2)]] * 2


def test_a_large_input_is_read_page_by_page(any_app: Holdfast) -> None:
    many = {f"k{number:05}": number for number in range(2 * PAGE + 1)}
    written(any_app, **many)
    written(any_app, **dict(list(many.items())[:PAGE]))

    @any_app.task(name="count", takes_context=True)
    def count(ctx: Context) -> bool:
        return dict(ctx.input("orders")) == many

    @any_app.task(name="acount", takes_context=True)
    async def acount(ctx: Context) -> bool:
        return dict(await ctx.ainput("orders")) == many

    handles = [task.using(inputs={"orders": version}).enqueue() for task in (count, acount) for version in (1, 2)]
    work_off(any_app)
    assert [handle.result(5) for handle in handles] == [True] * 4
    assert rows(any_app) == many


def test_what_a_parent_writes_is_its_childs_input(any_app: Holdfast) -> None:
    @any_app.task(name="produce", takes_context=True)
    def produce(ctx: Context, key: str) -> str:
        ctx.output("orders", {key: 1})
        return key

    @any_app.task(name="consume", takes_context=True)
    async def consume(ctx: Context, _: Any) -> list[str]:
        return [key for key, _ in await ctx.ainput("orders")]

    written(any_app, old=1)
    reading = consume.using(inputs={"orders": "parent"}).then()
    run = chain(produce.s("a"), reading).enqueue()
    work_off(any_app)
    assert run.result(5) == ["a", "old"]
    wide = chain(group(produce.s(key) for key in "xyz"), reading).enqueue()
    work_off(any_app)
    assert wide.result(5) == ["a", "old", "x", "y", "z"], "the latest of its parents' versions has the rows of all"


def refusal_of(app: Holdfast, handler: Callable[[Context], Any], **options: Any) -> tuple[str | None, str]:
    @app.task(name="refused", takes_context=True, max_attempts=1)
    def refused(ctx: Context) -> None:
        handler(ctx)

    handle = refused.using(**options).enqueue()
    work_off(app)
    error = handle.task().last_error
    assert error is not None
    return error.get("code"), error["message"]


def test_an_input_that_was_not_pinned_is_refused(app: Holdfast) -> None:
    written(app, a=1)
    code, words = refusal_of(app, lambda ctx: ctx.input("other"), inputs={"orders": 1})
    assert code == "InvalidTask"
    assert "inputs={'other': VERSION}" in words


def test_a_parent_that_wrote_nothing_is_told_so(app: Holdfast) -> None:
    @app.task(name="idle")
    def idle() -> None:
        pass

    @app.task(name="wanting", takes_context=True, max_attempts=1)
    def wanting(ctx: Context, _: None) -> None:
        ctx.input("orders")

    run = chain(idle.s(), wanting.using(inputs={"orders": "parent"}).then()).enqueue()
    work_off(app)
    last = run.tasks()[-1]
    assert code_of(last) == "DatasetNotFound"
    assert last.last_error is not None
    assert "no parent" in last.last_error["message"]


def test_reading_plainly_in_a_coroutine_names_the_other_form(app: Holdfast) -> None:
    @app.task(name="blocking", takes_context=True, max_attempts=1)
    async def blocking(ctx: Context) -> None:
        ctx.input("orders")

    written(app, a=1)
    handle = blocking.using(inputs={"orders": 1}).enqueue()
    work_off(app)
    error = handle.task().last_error
    assert error is not None
    assert "await ctx.ainput" in error["message"]


def test_a_read_waits_for_a_store_that_is_away(app: Holdfast) -> None:
    @app.task(name="patient", takes_context=True)
    def patient(ctx: Context) -> list[str]:
        state.go_away()
        return [key for key, _ in ctx.input("orders")]

    written(app, a=1)
    state = memory_state(app)
    handle = patient.using(inputs={"orders": 1}).enqueue()
    with Crew(app) as crew:
        crew.wait_for(StoreAway)
        with state.lock:
            state.come_back()
        assert ended(handle).result == ["a"]


# Child processes


def test_child_processes_write_and_read() -> None:
    app = process_tasks.app
    with app.testing():
        first = process_tasks.write_orders.enqueue(2 * PAGE + 1)
        work_off(app)
        plain = process_tasks.read_orders.using(inputs={"orders": 1}).enqueue()
        coroutine = process_tasks.aread_orders.using(inputs={"orders": 1}).enqueue()
        lost = process_tasks.read_orders.enqueue()
        work_off(app)
        assert (first.task().attempt, numbers(app)) == (2, [1]), "the first attempt has failed, and written nothing"
        total = sum(range(2 * PAGE + 1))
        assert (plain.result(5), coroutine.result(5)) == ([total, "k00000"], total)
        assert code_of(lost.task()) == "InvalidTask"


def test_a_child_process_is_told_that_its_input_is_gone() -> None:
    app = process_tasks.app
    with app.testing():
        run = chain(process_tasks.divide.s(4, 2), process_tasks.expect_nothing.using(inputs={"orders": "parent"}).s())
        handle = run.enqueue()
        work_off(app)
        assert handle.tasks()[-1].result == "DatasetNotFound"


# Submitting


def test_pins_are_checked_where_they_are_given(app: Holdfast) -> None:
    wrongs: list[Any] = [{"orders": 0}, {"orders": "latest"}, {"orders": True}, {"": 1}, {1: 1, "a": 1}, ["orders"]]
    for wrong in wrongs:
        with pytest.raises(InvalidTask):
            app.using(inputs=wrong).s("read")
    with pytest.raises(DatasetNotFound):
        app.using(inputs={"orders": 1}).enqueue("read")
    assert app.tasks.list() == []


def test_a_pin_to_a_parent_needs_one(app: Holdfast) -> None:
    alone = app.using(inputs={"orders": "parent"}).s("read")
    with pytest.raises(InvalidTask, match="has no parent"):
        app.enqueue_many([alone])
    with pytest.raises(InvalidTask, match="has no parent"):
        chain(alone, app.s("other")).enqueue()
    with pytest.raises(InvalidTask, match="has no parent"):
        app.schedules.put("nightly", alone, every=60)
    assert app.tasks.list() == []
    code, words = refusal_of(app, lambda ctx: ctx.follow_up(alone))
    assert (code, "has no parent" in words) == ("InvalidTask", True)


def test_a_pin_goes_along_with_follow_ups_and_schedules(app: Holdfast) -> None:
    written(app, a=1)
    pinned = app.using(inputs={"orders": 1}).s("read")

    @app.task(name="leads", takes_context=True)
    def leads(ctx: Context) -> str:
        return ctx.follow_up(pinned)

    handle = leads.enqueue()
    work_off(app)
    assert app.tasks.get(handle.result(5)).inputs == {"orders": 1}
    app.schedules.put("nightly", pinned, every=60)
    assert app.schedules.run("nightly").task().inputs == {"orders": 1}


def test_a_lease_that_is_lost_takes_the_outputs_with_it(any_app: Holdfast) -> None:
    """1. A handler has written; 2. its lease is ended by force; 3. it returns; 4. the second attempt is the one."""
    gates: dict[int, bool] = {}

    @any_app.task(name="late", takes_context=True, max_attempts=0)
    def late(ctx: Context) -> int:
        ctx.output("orders", {f"attempt-{ctx.attempt}": 1})
        gates[ctx.attempt] = True
        wait_until(lambda: 2 in gates)
        return ctx.attempt

    with Crew(any_app, concurrency=2):
        handle = late.enqueue()
        wait_until(lambda: 1 in gates)
        any_app.tasks.release(handle.id)
        assert ended(handle).result == 2
    assert (numbers(any_app), rows(any_app)) == ([1], {"attempt-2": 1})
