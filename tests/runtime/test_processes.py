"""Handlers in child processes: found by name, heard over the wire, really killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.events.facts import LeaseWasLost
from tests.runtime import process_tasks
from tests.runtime.support import Crew, code_of, ended, kinds, running_nowhere, wait_until, work_off


@pytest.fixture
def app() -> Iterator[Holdfast]:
    """The app of the module with the handlers, on a store of this test's own."""
    with process_tasks.app.testing():
        process_tasks.app.connections.factory = Holdfast("memory://").connections.factory
        yield process_tasks.app


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def written(file: Path) -> int:
    wait_until(lambda: file.exists() and file.read_text())
    return int(file.read_text())


def test_functions_and_coroutines_run_in_another_process(app: Holdfast) -> None:
    first, second = process_tasks.divide.enqueue(7, divisor=2), process_tasks.gather.enqueue(3)
    third, nested = process_tasks.describe.using(meta={"a": 1}).enqueue("word"), process_tasks.Shelf.nested.enqueue()
    work_off(app, worker_id="w", concurrency=2)
    assert (first.result(5), second.result(5), nested.result(5)) == (3, [0, 1, 2], "found")
    word, task_id, attempt, worker_id, meta, pid, same = third.result(5)
    assert (word, task_id, attempt, worker_id, meta, same) == ("word", third.id, 1, "w", {"a": 1}, True)
    assert pid != os.getpid()


def test_a_child_is_used_again_and_none_is_left_behind(app: Holdfast) -> None:
    handles = [process_tasks.own_pid.enqueue() for _ in range(5)]
    work_off(app, concurrency=1)
    (pid,) = {handle.result(5) for handle in handles}
    assert gone(pid)


def test_what_a_child_says_is_recorded_and_what_it_prints_is_harmless(app: Holdfast) -> None:
    handle, coroutine = process_tasks.speak.enqueue(), process_tasks.aspeak.enqueue()
    work_off(app)
    assert kinds(handle) == ["task.enqueued", "task.running", "task.progress", "page.printed", "task.completed"]
    assert app.handle(handle.result(5)).result(5) == 4
    assert "task.progress" in kinds(coroutine)
    assert coroutine.task().status == "completed"


@pytest.mark.parametrize(
    ("task", "words"), [(process_tasks.exit_hard, "exit code 3"), (process_tasks.crash, "signal 11")]
)
def test_a_child_that_dies_is_a_failure_and_is_retried(app: Holdfast, task: Any, words: str) -> None:
    handle = task.enqueue()
    work_off(app)
    assert handle.result(5) == 1
    failure = next(event for event in handle.events() if event.kind == "task.failed")
    assert failure.payload["error"]["code"] == "process_died"
    assert words in failure.payload["error"]["message"]


@pytest.mark.parametrize(
    ("what", "status", "code"),
    [
        ("SystemExit", "failed", "SystemExit"),
        ("Unrecoverable", "failed", "unrecoverable"),
        ("Snooze", "queued", None),
        ("Retry", "failed", "retry"),
        ("surrogate", "failed", "ValueError"),
        ("result", "failed", "result_not_json"),
    ],
)
def test_a_child_ends_as_a_thread_would(app: Holdfast, what: str, status: str, code: str | None) -> None:
    handle = process_tasks.end_as.enqueue(what)
    work_off(app)
    record = handle.task()
    assert (record.status, code_of(record)) == (status, code)


def test_at_its_timeout_a_child_is_killed(app: Holdfast, tmp_path: Path) -> None:
    with Crew(app, concurrency=1) as crew:
        assert process_tasks.divide.enqueue(4, 2).result(20) == 2  # the child is up: its start is not what is timed
        handle = process_tasks.hang.enqueue(str(tmp_path / "pid"))
        pid = written(tmp_path / "pid")
        assert code_of(ended(handle)) == "timeout"
        wait_until(lambda: gone(pid))
        assert process_tasks.divide.enqueue(6, 3).result(20) == 2
    assert crew.raised is None


def test_a_lost_lease_kills_the_child(app: Holdfast, tmp_path: Path) -> None:
    with Crew(app, lease=0.6) as crew:
        handle = process_tasks.hang_for_ever.enqueue(str(tmp_path / "pid"))
        pid = written(tmp_path / "pid")
        app.tasks.release(handle.id)
        wait_until(lambda: gone(pid))
        assert ended(handle).result == 2
        assert crew.wait_for(LeaseWasLost).claim.task_id == handle.id
    assert handle.task().failures == 0


def test_a_child_learns_of_a_cancel_from_its_context(app: Holdfast) -> None:
    with Crew(app, lease=0.6):
        handle = process_tasks.until_canceled.enqueue()
        wait_until(lambda: "task.progress" in kinds(handle))
        handle.cancel()
        record = ended(handle)
    assert (record.status, record.failures) == ("canceled", 0)


def test_a_worker_that_leaves_kills_its_children_and_gives_their_work_back(app: Holdfast, tmp_path: Path) -> None:
    with Crew(app, grace=0.2) as crew:
        handle = process_tasks.hang_for_ever.enqueue(str(tmp_path / "pid"))
        pid = written(tmp_path / "pid")
        crew.worker.stop()
        crew.join()
    wait_until(lambda: gone(pid))
    record = handle.task()
    assert (record.status, record.attempt, record.failures) == ("queued", 1, 0)
    assert running_nowhere(app)
    assert crew.raised is None


def test_a_handler_that_cannot_be_found_in_a_child_is_a_failure(app: Holdfast) -> None:
    def local() -> None: ...

    task = Holdfast("memory://")
    declared = task.task(name="local", run_in="process", max_attempts=1)(local)
    handle = declared.enqueue()
    threads = threading.active_count()
    work_off(task)
    assert code_of(handle.task()) == "handler_not_found"
    assert threading.active_count() <= threads
    task.close()


def test_a_copy_that_a_handler_forks_answers_for_nobody(app: Holdfast) -> None:
    """Its answer would be taken for that of the next task in the same child."""
    first, *others = [process_tasks.fork_and_return.enqueue(), *(process_tasks.end_as.enqueue(n) for n in "abc")]
    work_off(app, concurrency=1)
    assert first.result(5) == "original"
    assert [handle.result(5) for handle in others] == ["a", "b", "c"]


def test_a_death_is_noticed_although_a_copy_lives_on(app: Holdfast, tmp_path: Path) -> None:
    handle = process_tasks.die_before_a_copy.enqueue(str(tmp_path / "pid"))
    try:
        work_off(app)
        assert code_of(handle.task()) == "process_died"
    finally:
        os.kill(written(tmp_path / "pid"), signal.SIGKILL)


def test_at_its_timeout_a_handler_is_killed_with_what_it_started(app: Holdfast, tmp_path: Path) -> None:
    handle = process_tasks.hang_with_a_copy.enqueue(str(tmp_path / "pid"))
    work_off(app)
    assert code_of(handle.task()) == "timeout"
    wait_until(lambda: gone(written(tmp_path / "pid")), "the copy's end")


@pytest.mark.parametrize(("what", "code"), [("close", "process_died"), ("write", "process_broke")])
def test_a_handler_that_meddles_with_the_line_fails_alone(app: Holdfast, what: str, code: str) -> None:
    meddling, other = process_tasks.meddle.enqueue(what), process_tasks.divide.enqueue(4, divisor=2)
    work_off(app, concurrency=1)
    assert (meddling.task().status, code_of(meddling.task())) == ("failed", code)
    assert other.result(5) == 2
