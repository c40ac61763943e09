"""What a worker takes of the machine besides time: memory, CPU while it idles, and the cost of an import."""

from __future__ import annotations

import subprocess
import sys
import threading

import msgspec

from holdfast.app import Holdfast
from holdfast.bench import stores
from holdfast.bench.crew import Crew
from holdfast.bench.noops import declare

SETTLING_SECONDS = 2.0
"""A worker that has just started is not idle yet."""


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    queued: int
    worked: int
    peak_mib: float
    """Of a fresh worker process that worked off `worked` tasks while `queued` were waiting."""


class Import(msgspec.Struct, frozen=True, kw_only=True):
    import_ms: float
    """`import holdfast` in a fresh interpreter, the best of several."""
    app_ms: float
    """`from holdfast import Holdfast`, which is what a program pays before its first task."""


class Idle(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    core_percent: float
    """Of one core, for a worker process with nothing to do."""


def memory(url: str, *, queued: int, worked: int) -> Memory:
    stores.require_shared(url, "a worker process")
    with Holdfast(url) as app:
        stores.require_empty(app)
        stores.fill(app, declare(app).noop, queued + worked)
        with Crew(url) as crew:
            stores.wait_until(
                lambda: app.tasks.count()["completed"] >= worked, "the work to be done", still_well=crew.require_alive
            )
            peak = crew.peak_mib()
    return Memory(queued=queued, worked=worked, peak_mib=round(peak, 1))


def idle(url: str, *, seconds: float) -> Idle:
    """The CPU time that a worker process with nothing to do takes."""
    stores.require_shared(url, "a worker process")
    with Holdfast(url) as app, Crew(url) as crew:
        stores.require_empty(app)
        stores.wait_until(lambda: bool(app.workers.list()), "the worker to be enrolled", still_well=crew.require_alive)
        threading.Event().wait(SETTLING_SECONDS)
        before = crew.cpu_seconds()
        threading.Event().wait(seconds)
        used = crew.cpu_seconds() - before
    return Idle(seconds=seconds, core_percent=round(100 * used / seconds, 3))


def imports(*, tries: int = 5) -> Import:
    return Import(
        import_ms=_fresh_import_ms("import holdfast", tries),
        app_ms=_fresh_import_ms("from holdfast import Holdfast", tries),
    )


def _fresh_import_ms(statement: str, tries: int) -> float:
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"

    def one() -> float:
        done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)  # noqa: S603
        return float(done.stdout) * 1000

    return round(min(one() for _ in range(tries)), 1)
