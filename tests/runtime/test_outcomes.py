"""How an attempt ends: each way that a handler can end has one defined outcome; none kills the worker or sticks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from holdfast import Delays, Exponential, Fixed, Holdfast, Retry, Snooze, Task, Unrecoverable, current_task
from holdfast.events.facts import NameUnknown
from holdfast.model.task import NewTask
from tests.runtime.support import Crew, code_of, ended, kinds, work_off


class RaisesWhenAsked(Exception):
    def __str__(self) -> str:
        raise SystemExit("no text for you")


class Huge(Exception):
    def __str__(self) -> str:
        return "x" * 50_000_000


def endless(depth: int) -> int:
    return endless(depth + 1)


RAISED: dict[str, tuple[Callable[[], object], str]] = {
    "a plain error": (lambda: ValueError("no"), "ValueError"),
    "an error without text": (lambda: ValueError(), "ValueError"),
    "SystemExit": (lambda: SystemExit(3), "SystemExit"),
    "KeyboardInterrupt": (lambda: KeyboardInterrupt(), "KeyboardInterrupt"),
    "GeneratorExit": (lambda: GeneratorExit(), "GeneratorExit"),
    "CancelledError": (lambda: asyncio.CancelledError(), "CancelledError"),
    "StopIteration": (lambda: StopIteration(), "RuntimeError"),
    "RecursionError": (lambda: endless(0), "RecursionError"),
    "a text that cannot be made": (RaisesWhenAsked, "RaisesWhenAsked"),
    "a text of 50 MB": (Huge, "Huge"),
    "NUL and surrogates": (lambda: ValueError("a\x00b\udc80c"), "ValueError"),
}


@pytest.mark.parametrize("what", RAISED)
@pytest.mark.parametrize("place", ["loop", "thread"])
def test_whatever_is_raised_is_a_recorded_failure(app: Holdfast, what: str, place: str) -> None:
    make, code = RAISED[what]

    def fail() -> None:
        error = make()
        assert isinstance(error, BaseException)
        raise error

    async def afail() -> None:
        fail()

    @app.task(name="well")
    async def well() -> str:
        return "well"

    task = app.task(name="bad", max_attempts=2, backoff=Fixed(0))(afail if place == "loop" else fail)
    bad, good = task.enqueue(), well.enqueue()
    work_off(app)
    record = bad.task()
    assert (record.status, record.attempt, record.failures) == ("failed", 2, 2)
    expected = "StopIteration" if what == "StopIteration" and place == "thread" else code
    assert code_of(record) == expected
    assert record.last_error is not None
    assert 0 < len(record.last_error["message"]) <= 2100
    assert good.result(timeout=5) == "well"


def test_nul_and_surrogates_are_shown_not_kept(any_app: Holdfast) -> None:
    @any_app.task(name="odd", max_attempts=1)
    async def odd() -> None:
        raise ValueError("a\x00b\udc80c")

    handle = odd.enqueue()
    work_off(any_app)
    error = handle.task().last_error
    assert error is not None
    assert error["message"] == "a\\x00b\\udc80c"


@pytest.mark.parametrize("value", [(1, 2), float("nan"), object(), {1: 2}, b"bytes", "\udc80", {"deep": [set()]}])
@pytest.mark.parametrize("place", ["loop", "thread"])
def test_a_result_that_is_not_json_is_a_dead_letter_at_once(app: Holdfast, value: Any, place: str) -> None:
    def give() -> Any:
        return value

    async def agive() -> Any:
        return value

    task = app.task(name="give")(agive if place == "loop" else give)
    handle = task.enqueue()
    work_off(app)
    record = handle.task()
    assert (record.status, record.attempt, code_of(record)) == ("failed", 1, "result_not_json")


def test_a_result_that_is_too_large_is_a_dead_letter_at_once(any_app: Holdfast) -> None:
    @any_app.task(name="large")
    async def large(size: int) -> str:
        return "x" * size

    fits, too_large = large.enqueue((1 << 20) - 2), large.enqueue((1 << 20) - 1)
    work_off(any_app)
    assert len(fits.result(timeout=5)) == (1 << 20) - 2
    record = too_large.task()
    assert (record.status, record.attempt, code_of(record)) == ("failed", 1, "result_too_large")


@pytest.mark.parametrize(
    "payload", ['["not", "a", "call"]', "5", '{"args": {"number": 1}, "kwargs": {}}', '{"args": [1], "kwargs": []}']
)
def test_a_payload_that_is_no_call_is_a_dead_letter_at_once(app: Holdfast, payload: str) -> None:
    @app.task(name="strict")
    async def strict(number: int) -> int:
        return number

    async def submit_oddly() -> str:
        store = app.connections.store()
        (made,) = await store.submit([NewTask(id="odd", name="strict", payload=payload)])
        return made.id

    task_id = asyncio.run(submit_oddly())
    work_off(app)
    record = app.tasks.get(task_id)
    assert (record.status, code_of(record)) == ("failed", "bad_payload")


def test_a_name_nobody_declared_is_snoozed_and_costs_nothing(any_app: Holdfast) -> None:
    @any_app.task(name="send_letter")
    async def send_letter() -> None: ...

    handle = any_app.enqueue("send_leter", 1)
    told = work_off(any_app)
    record = handle.task()
    assert (record.status, record.attempt, record.failures) == ("queued", 1, 0)
    assert record.claimed_at is not None
    assert 27 <= (record.run_at - record.claimed_at).total_seconds() <= 35
    (unknown,) = [fact for fact in told if isinstance(fact, NameUnknown)]
    assert "send_letter" in unknown.hint


def test_a_backlog_of_a_name_nobody_declared_neither_breaks_the_worker_nor_floods_its_log(any_app: Holdfast) -> None:
    @any_app.task(name="known", priority=-1)
    async def known() -> None: ...

    any_app.enqueue_many([any_app.s("nobody.knows", number) for number in range(3000)])
    any_app.enqueue_many([known.s() for _ in range(10)])
    told = work_off(any_app)
    counts = any_app.tasks.count()
    assert (counts["queued"], counts["completed"]) == (3000, 10)
    assert len([fact for fact in told if isinstance(fact, NameUnknown)]) == 1


def run_once(app: Holdfast, handler: Callable[[], Any], **options: Any) -> tuple[Task, list[str]]:
    handle = app.task(name="once", **options)(handler).enqueue()
    work_off(app)
    return handle.task(), kinds(handle)


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_snooze_comes_back_later_and_counts_nothing(any_app: Holdfast, place: str) -> None:
    def snooze() -> None:
        try:
            raise Snooze(500)
        except Exception as swallowed:
            raise AssertionError("except Exception must not see Snooze") from swallowed

    async def asnooze() -> None:
        snooze()

    record, events = run_once(any_app, asnooze if place == "loop" else snooze)
    assert (record.status, record.attempt, record.failures) == ("queued", 1, 0)
    assert record.claimed_at is not None
    assert 499 <= (record.run_at - record.claimed_at).total_seconds() <= 520
    assert events == ["task.enqueued", "task.running", "task.snoozed"]


@pytest.mark.parametrize("place", ["loop", "thread"])
def test_retry_counts_and_takes_its_own_delay(any_app: Holdfast, place: str) -> None:
    def again() -> None:
        try:
            raise Retry("not yet", after=500)
        except Exception as swallowed:
            raise AssertionError("except Exception must not see Retry") from swallowed

    async def aagain() -> None:
        again()

    record, events = run_once(any_app, aagain if place == "loop" else again, backoff=Fixed(1))
    assert (record.status, record.attempt, record.failures) == ("queued", 1, 1)
    assert record.last_error is not None
    assert (record.last_error["message"], record.last_error["backoff_ms"]) == ("not yet", 500_000)
    assert events == ["task.enqueued", "task.running", "task.failed", "task.requeued"]


def test_retry_without_a_delay_takes_the_tasks_own_backoff(app: Holdfast) -> None:
    def again() -> None:
        raise Retry

    record, _ = run_once(app, again, backoff=Fixed(77))
    assert record.last_error is not None
    assert record.last_error["backoff_ms"] == 77_000


def test_retry_still_obeys_the_budget(app: Holdfast) -> None:
    def again() -> None:
        raise Retry(after=0)

    record, _ = run_once(app, again, max_attempts=3)
    assert (record.status, record.failures) == ("failed", 3)


def test_unrecoverable_is_a_dead_letter_at_once(any_app: Holdfast) -> None:
    def hopeless() -> None:
        raise Unrecoverable("no such account")

    record, events = run_once(any_app, hopeless)
    assert (record.status, record.attempt, code_of(record)) == ("failed", 1, "unrecoverable")
    assert record.last_error is not None
    assert (record.last_error["message"], record.last_error["terminal"]) == ("no such account", True)
    assert events == ["task.enqueued", "task.running", "task.failed"]


@pytest.mark.parametrize(
    ("options", "attempts"),
    [
        ({"retry_on": ConnectionError}, 3),
        ({"retry_on": (KeyError, OSError)}, 3),
        ({"retry_on": KeyError}, 1),
        ({"give_up_on": ConnectionError}, 1),
        ({"give_up_on": [KeyError]}, 3),
        ({"retry_on": OSError, "give_up_on": ConnectionError}, 1),
    ],
)
def test_exception_types_decide_whether_to_retry(app: Holdfast, options: dict[str, Any], attempts: int) -> None:
    def fail() -> None:
        raise ConnectionError("gone")

    record, _ = run_once(app, fail, max_attempts=3, backoff=Fixed(0), **options)
    assert (record.status, record.attempt) == ("failed", attempts)


def test_a_task_that_fails_twice_and_then_heals_completes(any_app: Holdfast) -> None:
    @any_app.task(name="heals", backoff=Delays(0, 0.01))
    async def heals() -> int:
        if current_task().attempt < 3:
            raise ValueError("not yet")
        return current_task().failures

    with Crew(any_app):
        record = ended(heals.enqueue())
    assert (record.status, record.result, record.attempt, record.failures) == ("completed", 2, 3, 2)


def test_default_backoff_is_exponential_with_jitter(app: Holdfast) -> None:
    def fail() -> None:
        raise ValueError

    record, _ = run_once(app, fail)
    assert record.backoff == Exponential(1.5, 60, 0.3)
    assert record.last_error is not None
    assert 1050 <= record.last_error["backoff_ms"] <= 1950
