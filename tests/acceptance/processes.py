"""Starting worker processes, waiting for what they do, and reading what they left behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import msgspec

from holdfast import Handle, Holdfast
from tests.acceptance.crash_worker import Orders
from tests.runtime.support import wait_until

PROJECT = Path(__file__).parent.parent.parent


def start(command: Sequence[str], *, log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as file:
        return subprocess.Popen([sys.executable, *command], stdout=file, stderr=file, cwd=PROJECT)


def start_worker(orders: Orders, *, log: Path, module: str = "crash_worker") -> subprocess.Popen[bytes]:
    return start(["-m", f"tests.acceptance.{module}", msgspec.json.encode(orders).decode()], log=log)


@contextlib.contextmanager
def killed_at_the_end(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait()


def wait_until_stopped(process: subprocess.Popen[bytes], database: Path) -> None:
    """Until SIGSTOP has taken effect at a moment when the process does not write to this file."""
    wait_until_stopped_with(process, partial(can_write, database))


def wait_until_stopped_with(process: subprocess.Popen[bytes], untouched: Callable[[], bool]) -> None:
    """Until SIGSTOP has taken effect at a moment when the store is untouched.

    One that is stopped inside a write transaction holds up other writers, which is the database's way and not what is
    tested: then it goes on for a moment and is stopped again.
    """

    def stopped() -> bool:
        pid, status = os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)
        return pid == process.pid and os.WIFSTOPPED(status)

    wait_until(stopped, "the worker to be stopped")
    while not untouched():
        process.send_signal(signal.SIGCONT)
        process.send_signal(signal.SIGSTOP)
        wait_until(stopped, "the worker to be stopped again")


def can_write(database: Path) -> bool:
    """Nobody holds the lock under which this project writes."""
    for name in ("-turn", "-lock"):
        with Path(f"{database}{name}").open("ab") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
    return True


def ledger_of(file: Path) -> dict[str, list[int]]:
    """The attempts of each task, in the order in which handlers began; every attempt has a token of its own."""
    attempts: dict[str, list[int]] = defaultdict(list)
    tokens: set[str] = set()
    for line in file.read_text().splitlines() if file.exists() else []:
        task_id, attempt, token, _ = line.split()
        attempts[task_id].append(int(attempt))
        assert token not in tokens, f"token {token} was given twice"
        tokens.add(token)
    return attempts


def check_nothing_was_lost(app: Holdfast, handles: Sequence[Handle[object]], ledger: dict[str, list[int]]) -> None:
    """Every acknowledged task is completed once, by its last attempt; its events tell the same story."""
    for handle in handles:
        task, events = handle.task(), [event.kind for event in handle.events()]
        attempts = ledger[task.id]
        assert task.status == "completed", task
        assert task.claimed_by is None
        assert attempts == sorted(set(attempts)), f"attempts of {task.id} do not strictly increase: {attempts}"
        assert task.result == task.attempt == attempts[-1]
        assert events.count("task.running") == task.attempt
        assert events.count("task.failed") == task.failures == task.attempt - 1
        assert events.count("task.completed") == 1
        assert events[-1] == "task.completed"
    assert app.tasks.count()["running"] == 0


def check_database(file: Path) -> None:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
