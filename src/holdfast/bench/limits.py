"""What limits cost: the drain of a limited queue beside one without, the hand-over between two processes, fairness.

A limited queue is drained by the same workers right after one without limits, so that both figures are of the same
minutes.
"""

from __future__ import annotations

import statistics
from collections import Counter
from itertools import pairwise

import msgspec

from holdfast.app import Holdfast
from holdfast.bench import stores
from holdfast.bench.crew import Crew
from holdfast.bench.noops import declare
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError
from holdfast.model.task import Task

PAGE = 10_000


class LimitedDrain(msgspec.Struct, frozen=True, kw_only=True):
    tasks: int
    processes: int
    max_running: int
    free_per_s: float
    limited_per_s: float
    ratio: float


def limited_drain(url: str, *, tasks: int, max_running: int = 1000, processes: int = 1) -> LimitedDrain:
    stores.require_shared(url, "a limited drain")
    with Holdfast(url) as app:
        stores.require_empty(app)
        app.queues.limit("limited", max_running=max_running)
        rates = {queue: _drained(app, url, queue, tasks, processes) for queue in ("free", "limited")}
    return LimitedDrain(
        tasks=tasks,
        processes=processes,
        max_running=max_running,
        free_per_s=round(rates["free"]),
        limited_per_s=round(rates["limited"]),
        ratio=round(rates["limited"] / rates["free"], 3),
    )


def _drained(app: Holdfast, url: str, queue: str, tasks: int, processes: int) -> float:
    """Tasks per second, from the last look that showed all of them queued."""
    noop = declare(app).noop.using(queue=queue)
    for first in range(0, tasks, stores.SUBMIT_BATCH):
        app.enqueue_many([noop.s(number) for number in range(first, min(first + stores.SUBMIT_BATCH, tasks))])
    stores.tidy(url)
    started = SYSTEM_CLOCK.monotonic()

    def begun() -> bool:
        nonlocal started
        before = SYSTEM_CLOCK.monotonic()
        if app.tasks.count(queue)["queued"] < tasks:
            return True
        started = before
        return False

    with Crew(url, processes=processes, options=("--queues", queue)) as crew:
        stores.wait_until(begun, "the first claim", still_well=crew.require_alive)
        ended = stores.wait_until(
            lambda: app.tasks.count(queue)["completed"] == tasks, "all to be completed", still_well=crew.require_alive
        )
    return tasks / (ended - started)


class HandOver(msgspec.Struct, frozen=True, kw_only=True):
    tasks: int
    processes: int
    p50_ms: float
    """From the recorded end of a task to the claim of the next, with max_running=1."""
    p99_ms: float


def hand_over(url: str, *, tasks: int, processes: int = 2) -> HandOver:
    stores.require_shared(url, "a hand-over between processes")
    with Holdfast(url) as app:
        stores.require_empty(app)
        app.queues.limit("default", max_running=1)
        stores.fill(app, declare(app).noop, tasks)
        with Crew(url, processes=processes, concurrency=10) as crew:
            stores.wait_until(
                lambda: app.tasks.count()["completed"] == tasks, "all to be completed", still_well=crew.require_alive
            )
        gaps = _gaps(_completed(app))
    return HandOver(
        tasks=tasks,
        processes=processes,
        p50_ms=round(statistics.median(gaps) * 1000, 3),
        p99_ms=round(statistics.quantiles(gaps, n=100)[98] * 1000, 3),
    )


def _gaps(tasks: list[Task]) -> list[float]:
    runs = sorted((task.claimed_at, task.finished_at) for task in tasks if task.claimed_at and task.finished_at)
    gaps = [(after - ended).total_seconds() for (_, ended), (after, _) in pairwise(runs)]
    if min(gaps) < 0:
        raise HoldfastError("two tasks ran at once, with max_running=1")
    return gaps


class Fairness(msgspec.Struct, frozen=True, kw_only=True):
    keys: int
    largest_backlog: int
    smallest_backlog: int
    completed: int
    """When it was looked: ten tasks for every key."""
    keys_with_progress: int
    fewest_of_a_key: int
    """Of keys with a backlog of ten or more."""
    most_of_a_key: int


def fairness(url: str, *, keys: int = 50, largest: int = 5_000) -> Fairness:
    """Keys whose backlogs lie between ten and `largest`, the largest first in line, at most two of a key at once."""
    stores.require_shared(url, "fairness")
    backlogs = [max(round(largest * (10 / largest) ** (n / max(keys - 1, 1))), 10) for n in range(keys)]
    with Holdfast(url) as app:
        stores.require_empty(app)
        app.queues.limit("default", max_running_per_key=2)
        noop = declare(app).noop
        for n, backlog in enumerate(backlogs):
            app.enqueue_many([noop.using(concurrency_key=f"key {n:04}").s(number) for number in range(backlog)])
        stores.tidy(url)
        with Crew(url, concurrency=10) as crew:
            stores.wait_until(
                lambda: app.tasks.count()["completed"] >= 10 * keys, "ten tasks per key", still_well=crew.require_alive
            )
            app.queues.pause("default")
        of_keys = Counter(task.concurrency_key for task in _completed(app))
    return Fairness(
        keys=keys,
        largest_backlog=backlogs[0],
        smallest_backlog=backlogs[-1],
        completed=of_keys.total(),
        keys_with_progress=len(of_keys),
        fewest_of_a_key=min(of_keys[f"key {n:04}"] for n in range(keys)),
        most_of_a_key=max(of_keys.values()),
    )


def _completed(app: Holdfast) -> list[Task]:
    found: list[Task] = []
    while page := app.tasks.list(status="completed", limit=PAGE, after=found[-1].id if found else None):
        found += page
    return found
