"""Kill -9 within workflows and between steps: nothing is lost, nothing is counted twice, no step is repeated that was
recorded, and a finalizer is made ready once.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from holdfast import Handle, Holdfast
from tests import postgres_server
from tests.acceptance.crash_worker import ADVANCE_BATCH, POINTS, Orders
from tests.acceptance.processes import check_nothing_was_lost, killed_at_the_end, ledger_of, start_worker
from tests.runtime.support import kinds, wait_until
from tests.runtime.workflow_support import chord, node, submit

MEMBERS = 20


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    return f"{postgres_server.server().url}?schema={postgres_server.fresh_schema()}"


def killed(folder: Path, orders: Orders) -> None:
    """One worker, until it dies as ordered."""
    with killed_at_the_end(start_worker(orders, log=folder / "log")) as process:
        assert process.wait(60) == -signal.SIGKILL, (folder / "log").read_text()


def finished(folder: Path, app: Holdfast, orders: Orders) -> None:
    """One worker that lives, until every task has ended."""

    def over() -> bool:
        counts = app.tasks.count()
        return not (counts["waiting"] or counts["queued"] or counts["running"])

    with killed_at_the_end(start_worker(orders, log=folder / "log")) as process:
        wait_until(over, "all to end", seconds=60)
        process.terminate()
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("point", "calls"), [("after_step", ["first 1", "second 2"]), ("before_step", ["first 1", "first 2", "second 2"])]
)
def test_a_crash_between_two_steps_resumes_at_the_second(
    url: str, tmp_path: Path, point: str, calls: list[str]
) -> None:
    """After the first step was recorded it is not called again; before that it is."""
    ledger = tmp_path / "ledger"
    with Holdfast(url) as app:
        handle: Handle[Any] = app.using(max_attempts=0).enqueue("stepwise")
        killed(tmp_path, Orders(url=url, ledger=str(ledger), point=point))
        finished(tmp_path, app, Orders(url=url, ledger=str(ledger)))
        task = handle.task()
    assert ledger.read_text().splitlines() == [*calls, "third 2"]
    assert (task.status, task.failures, task.attempt) == ("completed", 1, 2)
    assert task.result == [int(call.split()[1]) for call in [calls[-2], calls[-1], "third 2"]]


def test_kills_of_members_make_the_finalizer_ready_once(url: str, tmp_path: Path) -> None:
    """Two workers in turn are killed at every point; the last one finishes."""
    ledger = tmp_path / "ledger"
    with Holdfast(url) as app:
        *members, final = submit(app, *chord("work", "collect", MEMBERS, max_attempts=0))
        for point in (*POINTS, *POINTS):
            killed(tmp_path, Orders(url=url, ledger=str(ledger), point=point))
        finished(tmp_path, app, Orders(url=url, ledger=str(ledger)))
        check_nothing_was_lost(app, members, ledger_of(ledger))
        assert final.task().result == [member.task().result for member in members]
        assert kinds(final).count("task.ready") == 1
        assert ledger_of(ledger)[final.id] == [1]


def test_a_worker_that_dies_after_the_commit_of_the_last_member_has_made_the_finalizer_ready(
    url: str, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    with Holdfast(url) as app:
        *_, final = submit(app, *chord("work", "collect", MEMBERS, max_attempts=0))
        dying = Orders(url=url, ledger=str(ledger), point="after_each_settle", after=MEMBERS)
        killed(tmp_path, dying)
        assert kinds(final)[:2] == ["task.enqueued", "task.ready"]
        finished(tmp_path, app, Orders(url=url, ledger=str(ledger)))
        assert final.task().result == [1] * MEMBERS
        assert kinds(final).count("task.ready") == 1


def test_dependents_that_were_advanced_half_way_are_advanced_by_the_next_worker(url: str, tmp_path: Path) -> None:
    """1. a root with many dependents completes; 2. its worker dies after two batches of them; 3. another goes on."""
    ledger, many = tmp_path / "ledger", 10 * ADVANCE_BATCH
    with Holdfast(url) as app:
        root = node("work", 0, max_attempts=0)
        children = [node("work", number, after=[root], max_attempts=0) for number in range(many)]
        handles = submit(app, root, *children)
        killed(tmp_path, Orders(url=url, ledger=str(ledger), point="after_advance", after=2))
        assert app.tasks.count()["waiting"] > many // 2
        finished(tmp_path, app, Orders(url=url, ledger=str(ledger), concurrency=50))
        check_nothing_was_lost(app, handles, ledger_of(ledger))
        assert all(kinds(handle).count("task.ready") == 1 for handle in handles[1:])
