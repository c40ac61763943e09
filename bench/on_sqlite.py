"""The figures of the embedded stores and of the library itself."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from bench.figures import Figure, Measure, at_least, at_most, median_run
from holdfast.bench import footprint
from holdfast.bench.chord import chord
from holdfast.bench.drain import drain
from holdfast.bench.latency import latency
from holdfast.bench.submit import submit

T = TypeVar("T")


def on_file(measure: Callable[[str], T]) -> T:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        return measure(f"sqlite:///{Path(folder) / 'bench.db'}")


def drains(share: int) -> list[Figure]:
    tasks = 100_000 // share
    found = median_run(lambda: on_file(lambda url: drain(url, tasks=tasks)), lambda run: run.ratio or 0)
    in_memory = statistics.median(drain(f"memory://bench-{i}", tasks=tasks).tasks_per_s for i in range(3))
    return [
        at_least("drain, one worker process", found.tasks_per_s, "tasks/s", 25_000),
        Figure("floor of the same run: bare SQL", found.floor_tasks_per_s or 0, "tasks/s"),
        at_least("ratio", found.ratio or 0, "", 0.3),
        Figure("CPU of the worker", found.cpu_us_per_task or 0, "µs/task"),
        at_least("drain in memory", in_memory, "tasks/s", 25_000),
    ]


def submits(share: int) -> list[Figure]:
    found = median_run(
        lambda: on_file(lambda url: submit(url, tasks=200_000 // share, singles=2_000 // share)),
        lambda run: run.tasks_per_s,
    )
    return [
        at_least("bulk submit, signatures checked", found.tasks_per_s, "tasks/s", 80_000),
        Figure("single awaited submits", found.single_per_s, "tasks/s"),
    ]


def latencies(share: int) -> list[Figure]:
    tasks = max(1000 // share, 100)
    found = on_file(lambda url: latency(url, tasks=tasks, here=True))
    apart = on_file(lambda url: latency(url, tasks=tasks))
    return [
        Figure("commit (one submit), p50", found.commit_p50_ms, "ms"),
        at_most("idle pick-up in the same process, p50", found.pickup_p50_ms, "ms", found.commit_p50_ms + 1),
        at_most("idle pick-up in the same process, p99", found.pickup_p99_ms, "ms", 15),
        Figure("idle pick-up from another process, p50", apart.pickup_p50_ms, "ms"),
    ]


def chords(share: int) -> list[Figure]:
    found = on_file(lambda url: chord(url, members=100_000 // share, processes=2))
    return [
        Figure(f"chord of {found.members:,} members, submit", found.submit_seconds, "s"),
        Figure("chord, 2 worker processes, until its finalizer has ended", found.members_per_s, "members/s"),
    ]


def memories(share: int) -> list[Figure]:
    found = on_file(lambda url: footprint.memory(url, queued=1_000_000 // share, worked=50_000 // share))
    return [at_most(f"worker's peak memory, {found.queued:,} queued", found.peak_mib, "MiB", 150)]


def idles(share: int) -> list[Figure]:
    found = on_file(lambda url: footprint.idle(url, seconds=20 / share))
    return [at_most("idle worker", found.core_percent, "% of core", 1)]


def imports(_share: int) -> list[Figure]:
    found = footprint.imports()
    return [
        at_most("import holdfast", found.import_ms, "ms", 60),
        Figure("from holdfast import Holdfast", found.app_ms, "ms"),
    ]


MEASURES: dict[str, Measure] = {
    "sqlite-drain": drains,
    "sqlite-submit": submits,
    "sqlite-latency": latencies,
    "sqlite-chord": chords,
    "sqlite-memory": memories,
    "sqlite-idle": idles,
    "imports": imports,
}
