"""Schedules over real worker processes, of which some are killed: every firing is submitted once."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests import postgres_server
from tests.acceptance.processes import killed_at_the_end, start
from tests.acceptance.schedule_worker import NAME
from tests.runtime.support import wait_until

SECOND = timedelta(seconds=1)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    own = postgres_server.server().url
    return f"{own}{'&' if '?' in own else '?'}schema={postgres_server.fresh_schema()}"


@pytest.fixture
def app(url: str) -> Iterator[Holdfast]:
    with Holdfast(url) as opened:
        yield opened


def instants(app: Holdfast) -> list[datetime]:
    """For which firings there are tasks, in the order of submission."""
    keys = [str(task.idempotency_key) for task in reversed(app.tasks.list(name=NAME, limit=10_000))]
    return [datetime.fromisoformat(key.removeprefix(f"schedule:{NAME}:")) for key in keys]


def wait_for_more(app: Holdfast) -> None:
    """Until three further firings have been run."""
    wanted = app.tasks.count()["completed"] + 3
    wait_until(lambda: app.tasks.count()["completed"] >= wanted, "three more firings to be run")


def test_with_workers_that_come_and_are_killed_every_instant_is_fired_once(
    app: Holdfast, url: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:

        def another() -> subprocess.Popen[bytes]:
            started = start(["-m", "tests.acceptance.schedule_worker", url], log=tmp_path / "worker.log")
            return stack.enter_context(killed_at_the_end(started))

        first, second = another(), another()
        wait_for_more(app)
        first.kill()
        wait_for_more(app)
        third = another()
        wait_until(lambda: len(app.workers.list()) >= 2, "the third worker to start")
        second.kill()
        wait_for_more(app)
        third.terminate()
        assert third.wait(30) == 0

    (schedule,) = app.schedules.list()
    fired = instants(app)
    assert fired == [fired[0] + n * SECOND for n in range(len(fired))]
    assert schedule.created_at < fired[0] <= schedule.created_at + SECOND
    assert schedule.last_fired_at == fired[-1]
    assert len(fired) >= 9
