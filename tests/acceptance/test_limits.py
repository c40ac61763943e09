"""Limits over eight worker processes, some of them killed with -9, and changed meanwhile (C9.1 to C9.5).

Nothing that a worker believes is asked. The store's events say when every attempt began and ended; a lease that nobody
settled is over at the latest when its time is, and where the store sees that its worker is gone, not before that was
killed. The clauses are checked over that whole history.
"""

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from collections.abc import Iterable
from contextlib import ExitStack
from datetime import datetime, timedelta
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast import Holdfast
from holdfast.policy.verdict import LEASE_EXPIRED
from tests import postgres_server
from tests.acceptance.limits_worker import LEASE_SECONDS, declare
from tests.acceptance.processes import killed_at_the_end, start
from tests.acceptance.workflow_laws import every_event, every_task
from tests.runtime.support import wait_until

PROCESSES = 8
KNOWN_WITHIN = timedelta(seconds=1)
ENDS = ("task.completed", "task.failed", "task.snoozed", "task.released", "task.canceled")
BURST, RATE, STORE_WIDE, PER_KEY = 3, 40, 24, 2


class Run(NamedTuple):
    """One attempt: it takes a place from `since` on, until it ends or its lease does."""

    since: datetime
    until: datetime
    queue: str
    key: str | None
    seq: int
    task_id: str
    finished_at: datetime | None


def history(app: Holdfast, kills: list[datetime]) -> list[Run]:
    """`kills`: when workers were killed, where the store ends their leases early."""
    tasks = {task.id: (seq, task) for seq, task in enumerate(every_task(app))}
    runs: list[Run] = []
    under_way: dict[str, int] = {}
    for event in every_event(app):
        seq, task = tasks[event.task_id]
        if event.kind == "task.running":
            under_way[task.id] = len(runs)
            lease_ends = event.ts + timedelta(seconds=LEASE_SECONDS)
            runs.append(Run(event.ts, lease_ends, task.queue, task.concurrency_key, seq, task.id, task.finished_at))
        elif event.kind in ENDS and task.id in under_way:
            n = under_way.pop(task.id)
            reaped = event.payload.get("error", {}).get("code") == LEASE_EXPIRED
            freed = [kill for kill in kills if reaped and kill >= runs[n].since][:1]
            runs[n] = runs[n]._replace(until=min(runs[n].until, event.ts, *freed))
    assert {run.task_id for run in runs} == tasks.keys()
    return sorted(runs)


def most_at_a_start(runs: Iterable[Run]) -> list[tuple[datetime, int]]:
    """For every start: how many ran then, itself included. One that ends at that very moment runs no more."""
    found: list[tuple[datetime, int]] = []
    under_way: list[Run] = []
    for run in runs:
        under_way = [other for other in under_way if other.until > run.since]
        under_way.append(run)
        found.append((run.since, len(under_way)))
    return found


class Change(NamedTuple):
    """When it was asked for, when that was answered, and how many may run since."""

    asked_at: datetime
    done_at: datetime
    most: int


def check_max_running(runs: list[Run], changes: list[Change]) -> None:
    """For a second after a change the limit before may still count."""
    ends = [change.done_at + KNOWN_WITHIN for change in changes[1:]]
    for since, running in most_at_a_start(runs):
        known = [
            change.most
            for change, end in zip_longest(changes, ends)
            if change.asked_at <= since and (end is None or since <= end)
        ]
        assert running <= max(known), f"{running} ran at {since}, of {known}"


def check_steady(runs: list[Run], most: int) -> None:
    for since, running in most_at_a_start(runs):
        assert running <= most, f"{running} ran at {since}, of {most}"


def check_rate(runs: list[Run]) -> None:
    starts = [run.since for run in runs]
    for n, since in enumerate(starts):
        for m, upto in enumerate(starts[n:], start=n):
            assert m - n + 1 <= BURST + RATE * (upto - since).total_seconds(), f"{m - n + 1} from {since} to {upto}"


def check_order(runs: list[Run]) -> None:
    """Whoever starts, starts after everything before it in its key has ended for good."""
    by_key: dict[str | None, list[Run]] = defaultdict(list)
    for run in runs:
        by_key[run.key].append(run)
    for of_key in by_key.values():
        finished = {run.seq: run.finished_at for run in of_key}
        for run in of_key:
            for seq, at in finished.items():
                assert seq >= run.seq or (at is not None and at <= run.since), f"{run} started before {seq} had ended"


class Trial:
    def __init__(self, url: str, folder: Path, seed: int) -> None:
        self.url = url
        self._log = folder / "log"
        self._rng = random.Random(seed)
        self._workers: list[subprocess.Popen[bytes]] = []

    def start_worker(self, stack: ExitStack) -> None:
        command = ["-m", "tests.acceptance.limits_worker", self.url]
        self._workers.append(stack.enter_context(killed_at_the_end(start(command, log=self._log))))

    def kill_one(self, stack: ExitStack) -> None:
        victim = self._workers.pop(self._rng.randrange(len(self._workers)))
        victim.kill()
        victim.wait()
        self.start_worker(stack)


def now(app: Holdfast) -> datetime:
    """By the store's clock."""

    async def asked() -> datetime:
        return await app.client.store.now()

    return app.client.plainly(asked, plain="now")


def submit(app: Holdfast, tasks: int) -> int:
    hold = declare(app)
    calls = []
    for n in range(tasks):
        calls.append(hold.using(queue="wide").s(0.03))
        calls.append(hold.using(queue="slow").s(0.01))
        calls.append(hold.using(queue="keys", concurrency_key=f"k{min(n % 16, 5)}").s(0.02))
        calls.append(hold.using(queue="line", concurrency_key=f"k{n % 4}", priority=n % 3).s(0.01))
        calls.append(hold.using(queue="free").s(0.01))
    app.enqueue_many(calls)
    return len(calls)


def until_completed(app: Holdfast, number: int) -> None:
    wait_until(lambda: app.tasks.count()["completed"] >= number, f"{number} to be completed", seconds=600)


def try_out(url: str, folder: Path, *, tasks: int, kills: int, seed: int) -> None:
    trial = Trial(url, folder, seed)
    killed: list[datetime] = []
    with Holdfast(trial.url) as app, ExitStack() as stack:
        app.queues.limit("*", max_running=STORE_WIDE)
        app.queues.limit("slow", rate=f"{RATE}/s", burst=BURST)
        app.queues.limit("keys", max_running_per_key=PER_KEY)
        app.queues.limit("line", max_running_per_key=1)
        wide: list[Change] = []

        def limit_wide(most: int) -> None:
            asked_at = now(app)
            app.queues.limit("wide", max_running=most)
            wide.append(Change(asked_at, now(app), most))

        limit_wide(5)
        number = submit(app, tasks)
        for _ in range(PROCESSES):
            trial.start_worker(stack)
        for n in range(kills):
            until_completed(app, number * (n + 1) // (kills + 2))
            killed.append(now(app))
            trial.kill_one(stack)
            limit_wide((2, 9, 4)[n % 3])
        until_completed(app, number)
        check(history(app, killed if url.startswith("sqlite") else []), wide)


def check(runs: list[Run], wide: list[Change]) -> None:
    of: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        of[run.queue].append(run)
    check_steady(runs, STORE_WIDE)
    check_max_running(of["wide"], wide)
    check_rate(of["slow"])
    for key in {run.key for run in of["keys"]}:
        check_steady([run for run in of["keys"] if run.key == key], PER_KEY)
    check_order(of["line"])


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/tasks.db"
    # Leases end by their time alone, so that the history shows when they do.
    return f"{postgres_server.server().url}?schema={postgres_server.fresh_schema()}&evict_grace=600"


@pytest.mark.timeout(180)
def test_eight_processes_keep_every_limit(url: str, tmp_path: Path) -> None:
    try_out(url, tmp_path, tasks=60, kills=3, seed=1)


@pytest.mark.soak
def test_eight_processes_keep_every_limit_for_long(url: str, tmp_path: Path) -> None:
    try_out(url, tmp_path, tasks=1500, kills=40, seed=2)
