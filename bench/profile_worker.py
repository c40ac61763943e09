"""Where the CPU of a worker goes, per no-op coroutine task on PostgreSQL; PROFILE.md keeps what was seen.

The CPU per task is that of a real worker process without a profiler (`holdfast bench drain`). The shares are those of a
worker in this process under cProfile, which makes small Python functions look dearer than they are; waiting for the
server is left out.
"""

from __future__ import annotations

import argparse
import cProfile
import platform
import pstats
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bench import on_postgres
from holdfast.app import Holdfast
from holdfast.bench import stores
from holdfast.bench.drain import Drain, drain
from holdfast.bench.noops import declare
from holdfast.runtime import own_process

SHOWN = 30
BY_HAND = "## Through a dispatcher"
WAITING = ("poll' of 'select.", "acquire' of '_thread.")
AREAS = {
    "holdfast/runtime": "runtime: claimer, runner, finalizer, lease keeper",
    "holdfast/executors": "executors: the coroutine's asyncio task",
    "holdfast/stores": "store: parameters, rows, answers",
    "holdfast/events": "events and log",
    "holdfast": "the rest of holdfast",
    "asyncpg": "asyncpg: encoding, decoding",
    "asyncio": "event loop and sockets",
}


class Spent(NamedTuple):
    where: str
    calls: int
    seconds: float

    @property
    def area(self) -> str:
        return next((name for part, name in AREAS.items() if f"{part}/" in self.where), "built-in functions, other")


def main() -> None:
    options = _options()
    own_process.tune()
    drained = on_postgres.on_server(lambda url: drain(url, tasks=options.tasks, floor=False))
    profile = on_postgres.on_server(lambda url: profiled(url, options.tasks // 2))
    report = _report(drained, options.tasks // 2, sorted(spent(profile), key=lambda one: -one.seconds))
    if options.out is None:
        print(report)
    else:
        options.out.write_text(report + _kept(options.out))


def _kept(out: Path) -> str:
    """What was added by hand, which stands last."""
    _, found, rest = (out.read_text() if out.exists() else "").partition(BY_HAND)
    return f"\n{found}{rest}" if found else ""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.profile_worker", description=__doc__)
    parser.add_argument("--tasks", type=int, default=100_000)
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the report here instead of printing it")
    return parser.parse_args()


def profiled(url: str, tasks: int) -> cProfile.Profile:
    """A worker that drains so many tasks here, on Python's own event loop: there waiting is a function of its own."""
    profile = cProfile.Profile()
    with Holdfast(url) as app:
        stores.fill(app, declare(app).noop, tasks)
        worker = app.worker()
        profile.runcall(worker.run, until_idle=True)
    return profile


def spent(profile: cProfile.Profile) -> Iterator[Spent]:
    stats: dict[tuple[str, int, str], tuple[Any, ...]] = vars(pstats.Stats(profile))["stats"]
    for (file, line, function), (_primitive, calls, seconds, *_inner) in stats.items():
        if not any(word in function for word in WAITING):
            yield Spent(_place(file, line, function), calls, seconds)


def _place(file: str, line: int, function: str) -> str:
    """Without what is above the package: paths of a machine are nobody's business."""
    if file == "~":
        return function
    parts = Path(file).parts
    package = next((part for part in ("holdfast", "asyncpg", "asyncio") if part in parts), None)
    start = len(parts) - 1 - parts[::-1].index(package) if package else len(parts) - 1
    return f"{'/'.join(parts[start:])}:{line} {function}"


def _report(drained: Drain, tasks: int, found: list[Spent]) -> str:
    whole = sum(one.seconds for one in found)
    areas: defaultdict[str, float] = defaultdict(float)
    for one in found:
        areas[one.area] += one.seconds
    lines = [
        "# Where the CPU of a worker goes",
        "",
        "Made by `python -m bench.profile_worker --out bench/PROFILE.md`: no-op coroutines on PostgreSQL, one worker.",
        f"Python {platform.python_version()}.",
        "",
        f"**{drained.cpu_us_per_task} µs of CPU per task** (user and system, a real worker process over "
        f"{drained.tasks:,} tasks, no profiler; target: below 25).",
        "",
        f"Shares under cProfile, {tasks:,} tasks, waiting left out. A profiler makes small functions look dearer.",
        "",
        "| part | share |",
        "|---|---|",
        *(f"| {area} | {seconds / whole:.1%} |" for area, seconds in sorted(areas.items(), key=lambda item: -item[1])),
        "",
        "| function | calls per task | share |",
        "|---|---|---|",
        *(f"| `{one.where}` | {one.calls / tasks:.2f} | {one.seconds / whole:.1%} |" for one in found[:SHOWN]),
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
