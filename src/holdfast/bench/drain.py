"""How fast no-op tasks run, from the first claim until the store shows all of them completed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import msgspec

from holdfast.app import Holdfast
from holdfast.bench import bare_nats, floor_postgres, floor_sqlite, stores
from holdfast.bench.crew import Crew
from holdfast.bench.noops import declare
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    tasks: int
    processes: int
    """0: the worker ran in the measuring process (memory)."""
    concurrency: int
    tasks_per_s: float
    cpu_us_per_task: float | None
    """User and system time of the worker processes, without their start."""
    floor_tasks_per_s: float | None
    ratio: float | None


def drain(
    url: str, *, tasks: int, processes: int = 1, concurrency: int = 100, floor: bool = True, through: str | None = None
) -> Drain:
    """`through`: the URL of a dispatcher on this store, by which the workers reach it."""
    with Holdfast(url) as app:
        stores.require_empty(app)
        stores.fill(app, declare(app).noop, tasks)
        stores.tidy(url)
        if stores.kind(url) == "memory":
            rate, cpu, processes = _drained_here(app, tasks, concurrency), None, 0
    if stores.kind(url) != "memory":
        with _looking(url, tasks) as looks:
            rate, cpu = _drained(looks, tasks, Crew(through or url, processes=processes, concurrency=concurrency))
    bare = _floor(url, tasks, processes) if floor else None
    return Drain(
        tasks=tasks,
        processes=processes,
        concurrency=concurrency,
        tasks_per_s=round(rate),
        cpu_us_per_task=cpu,
        floor_tasks_per_s=None if bare is None else round(bare),
        ratio=None if bare is None else round(rate / bare, 3),
    )


class Looks(Protocol):
    """How far a drain is, by what the store shows."""

    def begun(self) -> bool: ...
    def completed(self) -> int: ...


class _Counts:
    def __init__(self, app: Holdfast, tasks: int) -> None:
        self._app = app
        self._tasks = tasks

    def begun(self) -> bool:
        return self._app.tasks.count()["queued"] < self._tasks

    def completed(self) -> int:
        return self._app.tasks.count()["completed"]


@contextmanager
def _looking(url: str, tasks: int) -> Iterator[Looks]:
    if stores.kind(url) == "nats":
        with bare_nats.Looks(url) as looks:
            yield looks
    else:
        with Holdfast(url) as app:
            yield _Counts(app, tasks)


def _drained(looks: Looks, tasks: int, crew: Crew) -> tuple[float, float]:
    """The clock starts with the last look that showed nothing begun: a process's start is not its work."""
    started, spent_before = SYSTEM_CLOCK.monotonic(), 0.0

    def begun() -> bool:
        nonlocal started, spent_before
        before, spent = SYSTEM_CLOCK.monotonic(), crew.cpu_seconds()
        if looks.begun():
            return True
        started, spent_before = before, spent
        return False

    with crew:
        stores.wait_until(begun, "the first claim", still_well=crew.require_alive)
        ended = stores.wait_until(
            lambda: looks.completed() == tasks, "all tasks to be completed", still_well=crew.require_alive
        )
        spent = crew.cpu_seconds() - spent_before
    return tasks / (ended - started), round(spent / tasks * 1_000_000, 1)


def _drained_here(app: Holdfast, tasks: int, concurrency: int) -> float:
    started = SYSTEM_CLOCK.monotonic()
    app.worker(concurrency=concurrency).run(until_idle=True)
    completed = app.tasks.count()["completed"]
    elapsed = SYSTEM_CLOCK.monotonic() - started
    if completed != tasks:
        raise HoldfastError(f"the store shows {completed} of {tasks} tasks completed")
    return tasks / elapsed


def _floor(url: str, tasks: int, processes: int) -> float | None:
    match stores.kind(url):
        case "sqlite":
            return floor_sqlite.drain_rate(tasks)
        case "postgresql":
            return floor_postgres.drain_rate(stores.driver_dsn(url), tasks=tasks, processes=processes)
        case "nats":
            return bare_nats.drain_rate(url, tasks=tasks)
        case _:
            return None
