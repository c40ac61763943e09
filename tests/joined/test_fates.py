"""C7.6 against the worst: a worker process that is stopped past its lease, or killed, inside its handler's transaction.

Whatever happens, the handler's row is in the table exactly once, and so is the completion.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Handle
from tests.acceptance.processes import killed_at_the_end, start, wait_until_stopped
from tests.joined import fated_worker, kinds
from tests.joined.fated_worker import Orders
from tests.joined.test_handlers import Shop
from tests.runtime import support
from tests.runtime.support import Crew, ended, wait_until

LEASE_SECONDS = 1.0


class Scene:
    """A worker process that has come to the point of its fate."""

    def __init__(self, shop: Shop, folder: Path, **orders: Any) -> None:
        self.shop = shop
        self.ledger, self.go = folder / "ledger", folder / "go"
        # Stopped in the middle of a heartbeat, it would keep its record locked for as long as a statement may take.
        options = shop.place.options and {**shop.place.options, "statement_timeout": 2}
        self.orders = Orders(
            url=shop.place.url,
            options=options,
            table=shop.table,
            ledger=str(self.ledger),
            go=str(self.go),
            **orders,
        )
        self._log = folder / "log"

    def start(self) -> subprocess.Popen[bytes]:
        return start(["-m", "tests.joined.fated_worker", msgspec.json.encode(self.orders).decode()], log=self._log)

    def lines(self) -> list[str]:
        return self.ledger.read_text().splitlines() if self.ledger.exists() else []

    def rescuer(self) -> Crew:
        """Another worker, of this process, with no such fate."""
        quiet = msgspec.structs.replace(self.orders, at="", ledger=os.devnull)
        fated_worker.declare(self.shop.app, quiet)
        return Crew(self.shop.app, lease=LEASE_SECONDS)

    def check(self, handle: Handle[Any], *, attempt: int) -> None:
        task = ended(handle)
        assert (task.status, task.attempt, task.result) == ("completed", attempt, attempt), self._log.read_text()
        assert self.shop.orders() == 1
        assert support.kinds(handle).count("task.completed") == 1


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(kinds.place_of(request.param, tmp_path))
    with made.app:
        yield made


@contextmanager
def stopped(scene: Scene) -> Iterator[subprocess.Popen[bytes]]:
    """The worker stands still at its point, and its lease has run out."""
    with killed_at_the_end(scene.start()) as process:
        if scene.orders.way == "complete_in":
            wait_until_stopped(process, Path(kinds.sqlite_file(scene.shop.place)))
        else:
            wait_until(lambda: stands_still(process), "the worker to be stopped")
        wait_until(lambda: expired(scene.shop), "the lease to run out")
        yield process


def stands_still(process: subprocess.Popen[bytes]) -> bool:
    pid, status = os.waitpid(process.pid, os.WUNTRACED | os.WNOHANG)
    return pid == process.pid and os.WIFSTOPPED(status)


def expired(shop: Shop) -> bool:
    (task,) = shop.app.tasks.list()
    return task.lease_expires_at is not None and task.lease_expires_at < datetime.now(UTC)


def go_on(scene: Scene, process: subprocess.Popen[bytes]) -> None:
    scene.go.touch()
    process.send_signal(signal.SIGCONT)


def test_a_worker_stopped_past_its_lease_before_the_completion_writes_nothing(shop: Shop, tmp_path: Path) -> None:
    """1. A writes its row and stands still. 2. Its lease runs out; on PostgreSQL B takes over and completes (on SQLite
    A's transaction keeps everybody out). 3. A goes on, completes: LeaseLost, and its row is gone.
    """
    scene = Scene(shop, tmp_path, at="written", fate="stop", lease=LEASE_SECONDS)
    handle = shop.app.enqueue("order")
    with stopped(scene) as process:
        if not shop.on_sqlite:
            with scene.rescuer():
                scene.check(handle, attempt=2)
        go_on(scene, process)
        wait_until(lambda: "refused 1" in scene.lines(), "A's refusal")
        scene.check(handle, attempt=2)


def test_a_worker_stopped_past_its_lease_before_the_commit_still_commits(shop: Shop, tmp_path: Path) -> None:
    """1. A completes and stands still. 2. Its lease runs out, and a reaper comes. 3. A goes on and commits."""
    scene = Scene(shop, tmp_path, at="completed", fate="stop", lease=LEASE_SECONDS)
    handle = shop.app.enqueue("order")

    async def reap() -> Any:
        store = shop.app.connections.factory()
        try:
            return await store.reap(limit=10, actor="reaper")
        finally:
            await store.close()

    with stopped(scene) as process:
        if not shop.on_sqlite:
            assert asyncio.run(reap()) == [], "the record is locked, and passed by"
        go_on(scene, process)
        scene.check(handle, attempt=1)
    assert scene.lines() == ["written 1", "completed 1"]


def test_a_worker_killed_between_completion_and_commit_has_done_nothing(shop: Shop, tmp_path: Path) -> None:
    scene = Scene(shop, tmp_path, at="completed", fate="die")
    handle = shop.app.enqueue("order")
    with killed_at_the_end(scene.start()) as process:
        assert process.wait(60) == -signal.SIGKILL
    assert shop.orders() == 0
    with scene.rescuer():
        scene.check(handle, attempt=2)


def test_a_handlers_own_sqlite_transaction_that_was_overtaken_is_refused(tmp_path: Path) -> None:
    """1. A begins a transaction, has written nothing yet, and stands still. 2. B takes over and completes. 3. A goes
    on: its write is allowed, its completion is not, and nothing is committed.
    """
    shop = Shop(kinds.sqlite_place(tmp_path))
    scene = Scene(shop, tmp_path, at="written", fate="stop", way="complete_in", lease=LEASE_SECONDS)
    with shop.app:
        handle = shop.app.enqueue("order")
        with stopped(scene) as process:
            with scene.rescuer():
                scene.check(handle, attempt=2)
            go_on(scene, process)
            wait_until(lambda: "refused 1" in scene.lines(), "A's refusal")
            scene.check(handle, attempt=2)
