"""SIGSTOP for longer than a lease, then SIGCONT: the late settle is refused and nothing is overwritten (C6.3, C7)."""

from __future__ import annotations

import signal
from pathlib import Path

from holdfast import Holdfast
from tests.acceptance.crash_worker import Orders
from tests.acceptance.processes import (
    check_database,
    killed_at_the_end,
    ledger_of,
    start_worker,
    wait_until_stopped,
)
from tests.runtime.support import wait_until


def test_a_settle_that_comes_after_a_long_pause_is_refused(tmp_path: Path) -> None:
    """1. A's handler ends; 2. A is stopped before its settle; 3. its lease runs out and B completes; 4. A goes on."""
    file, ledger, refusals = tmp_path / "tasks.db", tmp_path / "ledger", tmp_path / "refusals"
    url = f"sqlite:///{file}"
    go_on = tmp_path / "go-on"
    paused = Orders(
        url=url, ledger=str(ledger), stop_until=str(go_on), lease=0.5, concurrency=1, refusals=str(refusals)
    )
    with Holdfast(url) as app:
        handle = app.using(max_attempts=0).enqueue("work", 1)
        with killed_at_the_end(start_worker(paused, log=tmp_path / "log-a")) as first:
            wait_until_stopped(first, file)
            assert handle.task().status == "running"
            with killed_at_the_end(start_worker(Orders(url=url, ledger=str(ledger)), log=tmp_path / "log-b")):
                wait_until(lambda: handle.task().status.terminal)
                before = handle.task(), handle.events()
                go_on.touch()
                first.send_signal(signal.SIGCONT)
                wait_until(lambda: refusals.exists() and refusals.read_text(), "the late settle")
                wait_until(lambda: "lease.lost" in (tmp_path / "log-a").read_text())
        assert refusals.read_text().split() == ["lease_lost"]
        assert (handle.task(), handle.events()) == before
        task = handle.task()
        assert (task.status, task.result, task.attempt, task.failures) == ("completed", 2, 2, 1)
        assert ledger_of(ledger)[task.id] == [1, 2]
    check_database(file)


def test_a_handler_that_was_paused_past_its_lease_is_fenced_off(tmp_path: Path) -> None:
    """The same with the handler still running: on its return it is told, and its result goes nowhere."""
    file, ledger, gate = tmp_path / "tasks.db", tmp_path / "ledger", tmp_path / "gate"
    url = f"sqlite:///{file}"
    orders = Orders(url=url, ledger=str(ledger), lease=0.5, concurrency=2)
    with Holdfast(url) as app:
        handle = app.using(max_attempts=0).enqueue("slow", str(gate))
        with killed_at_the_end(start_worker(orders, log=tmp_path / "log-a")) as first:
            wait_until(lambda: ledger_of(ledger)[handle.id] == [1])
            first.send_signal(signal.SIGSTOP)
            wait_until_stopped(first, file)
            gate.touch()
            with killed_at_the_end(start_worker(orders, log=tmp_path / "log-b")):
                wait_until(lambda: handle.task().status.terminal)
            before = handle.task(), handle.events()
            first.send_signal(signal.SIGCONT)
            wait_until(lambda: "lease.lost" in (tmp_path / "log-a").read_text())
            other = app.using(max_attempts=0).enqueue("work", 1)
            wait_until(lambda: other.task().status == "completed", "the worker to go on")
        assert (handle.task(), handle.events()) == before
        assert (before[0].result, before[0].attempt) == (2, 2)
    check_database(file)


def test_a_worker_that_is_merely_stopped_is_not_taken_for_dead(tmp_path: Path) -> None:
    """Early reaping needs evidence of death: within its lease a stopped worker keeps its task (C6.7)."""
    file, ledger, gate = tmp_path / "tasks.db", tmp_path / "ledger", tmp_path / "gate"
    url = f"sqlite:///{file}"
    with Holdfast(url) as app:
        orders = Orders(url=url, ledger=str(ledger), lease=60)
        handle = app.using(max_attempts=0).enqueue("slow", str(gate))
        with killed_at_the_end(start_worker(orders, log=tmp_path / "log-a")) as first:
            wait_until(lambda: ledger_of(ledger)[handle.id] == [1])
            first.send_signal(signal.SIGSTOP)
            wait_until_stopped(first, file)
            # Another worker really dies; once its work is rescued, whole sweeps have passed the stopped one by.
            victim = app.using(max_attempts=0).enqueue("work", 1)
            dying = Orders(url=url, ledger=str(ledger), point="in_handler")
            with killed_at_the_end(start_worker(dying, log=tmp_path / "log-b")) as second:
                assert second.wait(60) == -signal.SIGKILL
            with killed_at_the_end(start_worker(orders, log=tmp_path / "log-c")):
                wait_until(lambda: victim.task().status == "completed")
            gate.touch()
            first.send_signal(signal.SIGCONT)
            wait_until(lambda: handle.task().status.terminal)
        task = handle.task()
        assert (task.attempt, task.failures, task.result) == (1, 0, 1)
        assert ledger_of(ledger)[victim.id] == [1, 2]
