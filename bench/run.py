"""Prints every figure that the project promises, beside its target and, where there is one, the floor of the same run.

`python bench/run.py [--json FILE] [--quick]`. Each measure runs on a store of its own, one after another. Machines are
noisy: rates are measured three times and the median is told. Nothing here fails a build; RESULTS.md keeps what was
seen.
"""

from __future__ import annotations

import argparse
import json
import platform
import sqlite3
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from holdfast.bench import measures
from holdfast.runtime import own_process

T = TypeVar("T")


class Figure(NamedTuple):
    name: str
    value: float
    unit: str
    target: str
    met: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="also write the figures here")
    parser.add_argument("--quick", action="store_true", help="a tenth of the load, for a first look")
    options = parser.parse_args()
    share = 10 if options.quick else 1
    own_process.tune()  # as `holdfast worker` does
    figures: list[Figure] = []
    for measure in (drains, submits, latencies, memories, idles, imports):
        for figure in measure(share):
            figures.append(figure)
            verdict = "met" if figure.met else "MISSED"
            print(
                f"{figure.name:44} {figure.value:>12,.3f} {figure.unit:10} target {figure.target:12} {verdict}",
                flush=True,
            )
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    print(f"\n{versions}, {platform.machine()}, {platform.system()}")
    if options.json:
        options.json.write_text(json.dumps([figure._asdict() for figure in figures], indent=2) + "\n")


def on_sqlite(measure: Callable[[str], T]) -> T:
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        return measure(f"sqlite:///{Path(folder) / 'bench.db'}")


def drains(share: int) -> list[Figure]:
    tasks = 100_000 // share
    runs = [on_sqlite(lambda url: measures.drain(url, tasks=tasks, concurrency=100)) for _ in range(3)]
    middle = sorted(runs, key=lambda run: run.ratio or 0)[1]
    memory = [measures.drain(f"memory://bench-{i}", tasks=tasks, concurrency=100).tasks_per_s for i in range(3)]
    in_memory = statistics.median(memory)
    return [
        Figure(
            "SQLite drain, one worker process", middle.tasks_per_s, "tasks/s", ">= 25,000", middle.tasks_per_s >= 25_000
        ),
        Figure("  floor of the same run: bare SQL", middle.floor_tasks_per_s or 0, "tasks/s", "", True),
        Figure("  ratio", middle.ratio or 0, "", ">= 0.3", (middle.ratio or 0) >= 0.3),
        Figure("memory drain", in_memory, "tasks/s", ">= 25,000", in_memory >= 25_000),
    ]


def submits(share: int) -> list[Figure]:
    rates = [on_sqlite(lambda url: measures.submit(url, tasks=200_000 // share)).tasks_per_s for _ in range(3)]
    rate = statistics.median(rates)
    return [Figure("SQLite bulk submit, signatures checked", rate, "tasks/s", ">= 80,000", rate >= 80_000)]


def latencies(share: int) -> list[Figure]:
    found = on_sqlite(lambda url: measures.latency(url, tasks=max(1000 // share, 100)))
    bound = found.commit_p50_ms + 1
    return [
        Figure("SQLite commit (one submit), p50", found.commit_p50_ms, "ms", "", True),
        Figure("idle pick-up, p50", found.pickup_p50_ms, "ms", f"<= {bound:.2f}", found.pickup_p50_ms <= bound),
        Figure("idle pick-up, p99", found.pickup_p99_ms, "ms", "< 15", found.pickup_p99_ms < 15),
    ]


def memories(share: int) -> list[Figure]:
    found = on_sqlite(lambda url: measures.memory(url, queued=1_000_000 // share, worked=50_000 // share))
    name = f"worker's peak memory, {found.queued:,} queued"
    return [Figure(name, found.peak_mib, "MiB", "< 150", found.peak_mib < 150)]


def idles(share: int) -> list[Figure]:
    found = on_sqlite(lambda url: measures.idle(url, seconds=20 / share if share > 1 else 20))
    return [Figure("idle worker on SQLite", found.core_percent, "% of core", "< 1", found.core_percent < 1)]


def imports(_share: int) -> list[Figure]:
    found = measures.imports()
    return [
        Figure("import holdfast", found.import_ms, "ms", "< 60", found.import_ms < 60),
        Figure("from holdfast import Holdfast", found.app_ms, "ms", "", True),
    ]


if __name__ == "__main__":
    main()
