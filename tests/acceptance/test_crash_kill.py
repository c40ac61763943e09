"""Kill -9 at every named point: nothing acknowledged is lost, nothing is settled twice, the file stays whole.

claim ─┬─ handler ─┬─ settle sent ─┬─ settle recorded ─┬─ its reply is used
  after_claim   in_handler    before_settle       after_settle
"""

from __future__ import annotations

import signal
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.acceptance.crash_worker import POINTS, Orders
from tests.acceptance.processes import (
    check_database,
    check_nothing_was_lost,
    killed_at_the_end,
    ledger_of,
    start_worker,
)
from tests.runtime.support import wait_until


def kill_and_finish(folder: Path, *, rounds: int, passage: int) -> None:
    """`rounds` times: more work, then a worker that dies at its nth passage of the next point. One more finishes it."""
    file, ledger = folder / "tasks.db", folder / "ledger"
    url = f"sqlite:///{file}"
    with Holdfast(url) as app:
        handles = []
        for turn in range(rounds):
            handles += app.enqueue_many([app.using(max_attempts=0).s("work", number) for number in range(20)])
            orders = Orders(url=url, ledger=str(ledger), point=POINTS[turn % 4], after=passage + turn // 4 % 3)
            with killed_at_the_end(start_worker(orders, log=folder / "log")) as process:
                assert process.wait(60) == -signal.SIGKILL, (folder / "log").read_text()
        final = Orders(url=url, ledger=str(ledger), concurrency=20)
        with killed_at_the_end(start_worker(final, log=folder / "log")) as process:
            wait_until(lambda: app.tasks.count()["completed"] == len(handles), "all to be completed", seconds=60)
            process.terminate()
            assert process.wait(60) == 0
        check_nothing_was_lost(app, handles, ledger_of(ledger))
        assert app.workers.list() == []
    check_database(file)


@pytest.mark.parametrize("passage", [1, 2, 3])
def test_kills_at_every_point_lose_nothing(tmp_path: Path, passage: int) -> None:
    kill_and_finish(tmp_path, rounds=8, passage=passage)


@pytest.mark.soak
def test_two_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    kill_and_finish(tmp_path, rounds=200, passage=1)


@pytest.mark.parametrize(
    ("point", "ran", "failures"),
    [("after_claim", [2], 1), ("in_handler", [1, 2], 1), ("before_settle", [1, 2], 1), ("after_settle", [1], 0)],
)
def test_what_one_kill_costs(tmp_path: Path, point: str, ran: list[int], failures: int) -> None:
    """Before the settle is recorded: one failure and one more run. After it: nothing, although no reply came."""
    file, ledger = tmp_path / "tasks.db", tmp_path / "ledger"
    orders = Orders(url=f"sqlite:///{file}", ledger=str(ledger), point=point)
    with Holdfast(orders.url) as app:
        handle = app.using(max_attempts=0).enqueue("work", 1)
        with killed_at_the_end(start_worker(orders, log=tmp_path / "log")) as process:
            assert process.wait(60) == -signal.SIGKILL
        with killed_at_the_end(start_worker(Orders(url=orders.url, ledger=str(ledger)), log=tmp_path / "log")):
            wait_until(lambda: handle.task().status.terminal)
        task = handle.task()
        assert ledger_of(ledger)[task.id] == ran
        assert (task.status, task.failures, task.result) == ("completed", failures, ran[-1])
        if failures:
            failure = next(event for event in handle.events() if event.kind == "task.failed")
            assert failure.payload["error"]["code"] == "lease_expired"
            assert failure.payload["backoff_ms"] == 0
    check_database(file)


def test_the_work_of_a_killed_worker_runs_again_within_three_seconds(tmp_path: Path) -> None:
    """Its lease is 60 s long; the kernel tells the others that it is gone (C6.7)."""
    url, ledger = f"sqlite:///{tmp_path}/tasks.db", tmp_path / "ledger"
    with Holdfast(url) as app:
        dying = Orders(url=url, ledger=str(ledger), point="in_handler", lease=60)
        living = Orders(url=url, ledger=str(ledger), lease=60)
        handle = app.using(max_attempts=0).enqueue("work", 1)
        with killed_at_the_end(start_worker(dying, log=tmp_path / "log")) as process:
            assert process.wait(60) == -signal.SIGKILL
        died_at = app.using(delay=3600).enqueue("a mark in time, by the store's clock").task().created_at
        with killed_at_the_end(start_worker(living, log=tmp_path / "log")):
            wait_until(lambda: handle.task().status.terminal)
        again = [event.ts for event in handle.events() if event.kind == "task.running"][1]
        assert again - died_at <= timedelta(seconds=3)


def test_a_worker_that_is_already_there_takes_over_within_three_seconds(tmp_path: Path) -> None:
    url, ledger = f"sqlite:///{tmp_path}/tasks.db", tmp_path / "ledger"
    with Holdfast(url) as app:
        dying = Orders(url=url, ledger=str(ledger), lease=60, concurrency=1)
        other = Orders(url=url, ledger=str(ledger), lease=60, concurrency=1)
        handle = app.using(max_attempts=0).enqueue("slow", str(tmp_path / "gate"))
        with killed_at_the_end(start_worker(dying, log=tmp_path / "log")) as process:
            wait_until(lambda: ledger_of(ledger)[handle.id] == [1])
            with killed_at_the_end(start_worker(other, log=tmp_path / "log")):
                wait_until(lambda: len(app.workers.list()) == 2)
                process.kill()
                process.wait()
                died_at = app.using(delay=3600).enqueue("a mark in time").task().created_at
                (tmp_path / "gate").touch()
                wait_until(lambda: handle.task().status.terminal)
        again = [event.ts for event in handle.events() if event.kind == "task.running"][1]
        assert again - died_at <= timedelta(seconds=3)
        assert ledger_of(ledger)[handle.id] == [1, 2]
