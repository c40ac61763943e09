"""Outputs and real processes: a paused worker's late completion commits nothing, an append repeated after kill -9 adds
nothing twice, and writers of one dataset take turns (contract section 13).
"""

from __future__ import annotations

import signal
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.model.output import DatasetVersion
from tests.acceptance.cli_driver import Cli
from tests.acceptance.crash_worker import POINTS, Orders
from tests.acceptance.places import KINDS, place
from tests.acceptance.processes import killed_at_the_end, ledger_of, start_worker, wait_until_stopped_with
from tests.runtime.support import wait_until


def worker(orders: Orders, log: Path) -> subprocess.Popen[bytes]:
    return start_worker(orders, log=log, module="outputs_worker")


def versions(app: Holdfast, dataset: str = "orders") -> list[DatasetVersion]:
    """Oldest first; none where there is no such dataset."""
    known = [info.latest.dataset for info in app.datasets.list()]
    return app.datasets.versions(dataset, limit=10_000)[::-1] if dataset in known else []


def rows(app: Holdfast, version: int | None = None) -> dict[str, Any]:
    return dict(app.datasets.get("orders", version).rows())


def everything(app: Holdfast) -> list[Any]:
    names = [info.latest.dataset for info in app.datasets.list()]
    return [(one, app.datasets.get(name, one.version).rows()) for name in names for one in app.datasets.versions(name)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_paused_worker_commits_nothing_when_it_comes_back(kind: str, cli: Cli, tmp_path: Path) -> None:
    """1. A's handler ends; 2. A is stopped before its settle; 3. its lease runs out and B completes; 4. A goes on."""
    url, untouched = place(kind, cli)
    ledger, refusals, go_on = tmp_path / "ledger", tmp_path / "refusals", tmp_path / "go-on"
    paused = Orders(
        url=url, ledger=str(ledger), stop_until=str(go_on), lease=1.0, concurrency=1, refusals=str(refusals)
    )
    with Holdfast(url) as app:
        handle = app.using(max_attempts=0).enqueue("append", ["a", "b"])
        with killed_at_the_end(worker(paused, tmp_path / "log-a")) as first:
            wait_until_stopped_with(first, untouched)
            assert versions(app) == []
            with killed_at_the_end(worker(Orders(url=url, ledger=str(ledger)), tmp_path / "log-b")):
                wait_until(lambda: handle.task().status.terminal)
                before = everything(app)
                go_on.touch()
                first.send_signal(signal.SIGCONT)
                wait_until(lambda: refusals.exists() and refusals.read_text(), "the late settle")
        assert refusals.read_text().split() == ["lease_lost"]
        assert everything(app) == before
        assert rows(app) == {"a": [handle.id, 2], "b": [handle.id, 2]}, "the attempt that held the lease has written"
        assert [len(versions(app, name)) for name in ("orders", "last")] == [1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_appends_repeated_after_kills_add_nothing_twice(kind: str, cli: Cli, tmp_path: Path) -> None:
    """Before the settle, what was written is gone with its attempt; after it, the attempt is over, reply or not."""
    url, _ = place(kind, cli)
    ledger = tmp_path / "ledger"
    # Nobody sees a worker behind a dispatcher die: its work is rescued when its lease has run out.
    lease = 2.0 if kind.startswith("http") else 60.0
    with Holdfast(url) as app:
        handles = []
        for turn, point in enumerate(POINTS):
            keys = [f"{turn}-{number}" for number in range(5)] + ["shared"]
            handles += app.enqueue_many([app.using(max_attempts=0).s("append", keys) for _ in range(3)])
            dying = Orders(url=url, ledger=str(ledger), point=point, lease=lease, concurrency=2)
            with killed_at_the_end(worker(dying, tmp_path / "log")) as process:
                assert process.wait(60) == -signal.SIGKILL, (tmp_path / "log").read_text()
        with killed_at_the_end(worker(Orders(url=url, ledger=str(ledger)), tmp_path / "log")):
            wait_until(lambda: app.tasks.count()["completed"] == len(handles), seconds=60)
        assert max(map(max, ledger_of(ledger).values())) > 1, "some attempt was lost"
        check_versions(app, {handle.id: handle.task().attempt for handle in handles})
        assert set(rows(app)) == {f"{turn}-{number}" for turn in range(4) for number in range(5)} | {"shared"}


@pytest.mark.parametrize("kind", KINDS)
def test_writers_in_many_processes_take_turns(kind: str, cli: Cli, tmp_path: Path) -> None:
    (url, _), ledger = place(kind, cli), tmp_path / "ledger"
    with Holdfast(url) as app:
        calls = [app.using(max_attempts=0).s("append", [f"{number:02}", "shared"]) for number in range(40)]
        handles = app.enqueue_many(calls)
        orders = Orders(url=url, ledger=str(ledger), concurrency=3, until_idle=True)
        workers = [worker(orders, tmp_path / f"log-{number}") for number in range(3)]
        for process in workers:
            with killed_at_the_end(process):
                assert process.wait(60) == 0
        check_versions(app, {handle.id: handle.task().attempt for handle in handles})
        assert len(rows(app)) == 41


def check_versions(app: Holdfast, attempts: dict[str, int]) -> None:
    """One version per task, by the attempt that completed it; each is the one before and what it adds."""
    made = versions(app)
    assert [one.version for one in made] == list(range(1, len(attempts) + 1))
    assert sorted(one.task_id for one in made) == sorted(attempts)
    assert sorted(one.task_id for one in versions(app, "last")) == sorted(attempts)
    contents = [rows(app, one.version) for one in made]
    for one, content in zip(made, contents, strict=True):
        assert len(content) == one.rows
        for task_id, attempt in content.values():
            assert attempt == attempts[task_id], "only completions have written"
    for before, after in pairwise(contents):
        assert before.items() <= after.items(), "the first value is kept"
    assert [one.added for one in made[1:]] == [len(after) - len(before) for before, after in pairwise(contents)]
