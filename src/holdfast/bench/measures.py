"""What is measured, and how. Every figure counts what the store shows, not what a worker believes."""

from __future__ import annotations

import asyncio
import resource
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from holdfast.app import Holdfast
from holdfast.bench import floor_sqlite
from holdfast.calls import Call
from holdfast.clock import SYSTEM_CLOCK
from holdfast.declared import DeclaredTask
from holdfast.errors import HoldfastError

SUBMIT_BATCH = 20_000


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    tasks: int
    concurrency: int
    tasks_per_s: float
    """From the worker's start until the store shows every task completed."""
    floor_tasks_per_s: float | None
    ratio: float | None


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    tasks: int
    tasks_per_s: float
    """Calls made, checked against the signature, encoded, and durable in the store."""


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    tasks: int
    commit_p50_ms: float
    """A submit alone: what one durable commit costs here."""
    pickup_p50_ms: float
    """From an acknowledged submit to the handler's first line, on an idle worker of the same process."""
    pickup_p99_ms: float


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


def declare(app: Holdfast) -> DeclaredTask[[int], None, object]:
    @app.task(name="bench.noop")
    async def noop(_number: int) -> None:
        pass

    return noop


def drain(url: str, *, tasks: int, concurrency: int) -> Drain:
    with Holdfast(url) as app:
        noop = declare(app)
        _require_empty(app)
        _fill(app, noop, tasks)
        started = SYSTEM_CLOCK.monotonic()
        app.worker(concurrency=concurrency).run(until_idle=True)
        completed = app.tasks.count()["completed"]
        elapsed = SYSTEM_CLOCK.monotonic() - started
    if completed != tasks:
        raise HoldfastError(f"the store shows {completed} of {tasks} tasks completed")
    rate = tasks / elapsed
    floor = floor_sqlite.drain_rate(tasks) if urlsplit(url).scheme == "sqlite" else None
    return Drain(
        tasks=tasks,
        concurrency=concurrency,
        tasks_per_s=round(rate),
        floor_tasks_per_s=None if floor is None else round(floor),
        ratio=None if floor is None else round(rate / floor, 3),
    )


def submit(url: str, *, tasks: int) -> Submit:
    with Holdfast(url) as app:
        noop = declare(app)
        _require_empty(app)
        started = SYSTEM_CLOCK.monotonic()
        _fill(app, noop, tasks)
        elapsed = SYSTEM_CLOCK.monotonic() - started
    return Submit(tasks=tasks, tasks_per_s=round(tasks / elapsed))


def latency(url: str, *, tasks: int) -> Latency:
    with Holdfast(url) as app:
        _require_empty(app)
        commits, pickups = asyncio.run(_latency(app, tasks))
    quantiles = statistics.quantiles(pickups, n=100)
    return Latency(
        tasks=tasks,
        commit_p50_ms=round(statistics.median(commits) * 1000, 3),
        pickup_p50_ms=round(statistics.median(pickups) * 1000, 3),
        pickup_p99_ms=round(quantiles[98] * 1000, 3),
    )


async def _latency(app: Holdfast, tasks: int) -> tuple[list[float], list[float]]:
    begun: asyncio.Queue[float] = asyncio.Queue()

    @app.task(name="bench.arrive")
    async def arrive() -> None:
        begun.put_nowait(SYSTEM_CLOCK.monotonic())

    worker = app.worker(concurrency=10)
    working = asyncio.create_task(worker.arun())
    commits, pickups = [], []
    for _ in range(tasks):
        before = SYSTEM_CLOCK.monotonic()
        await arrive.aenqueue()
        acknowledged = SYSTEM_CLOCK.monotonic()
        pickups.append(await begun.get() - acknowledged)
        commits.append(acknowledged - before)
        await asyncio.sleep(0.005)  # let the settle pass, so that the next task meets an idle worker
    worker.stop()
    await working
    await app.aclose()
    return commits, pickups


def memory(url: str, *, queued: int, worked: int) -> Memory:
    """Fills the store, then measures a worker in a process of its own."""
    with Holdfast(url) as app:
        noop = declare(app)
        _require_empty(app)
        _fill(app, noop, queued + worked)
    code = "import sys; from holdfast.bench.measures import work_and_report as w; w(sys.argv[1], int(sys.argv[2]))"
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", code, url, str(worked)], check=True, capture_output=True, text=True
    )
    return Memory(queued=queued, worked=worked, peak_mib=round(float(done.stdout), 1))


def work_and_report(url: str, worked: int) -> None:
    """In the process that is measured: work off so many tasks, stop, print the peak in MiB."""
    app = Holdfast(url)
    left = threading.Semaphore(0)

    @app.task(name="bench.noop")
    async def noop(_number: int) -> None:
        left.release()

    worker = app.worker()

    def stop_after() -> None:
        for _ in range(worked):
            left.acquire()
        worker.stop()

    threading.Thread(target=stop_after, daemon=True).start()
    worker.run()
    print(_peak_mib())  # noqa: T201


def _peak_mib() -> float:
    """Of this process's own memory. Not ru_maxrss: that one starts with the peak of the process that spawned us."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise HoldfastError("this system does not tell a process's peak memory")


def idle(url: str, *, seconds: float) -> Idle:
    """The CPU time that a worker with nothing to do takes, in this process."""
    with Holdfast(url) as app:
        declare(app)
        worker = app.worker()
        thread = threading.Thread(target=worker.run)
        thread.start()
        threading.Event().wait(2.0)  # past its start
        before = _cpu_seconds()
        threading.Event().wait(seconds)
        used = _cpu_seconds() - before
        worker.stop()
        thread.join()
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


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _fill(app: Holdfast, noop: DeclaredTask[[int], None, object], tasks: int) -> None:
    call: Callable[[int], Call[None]] = noop.s
    for first in range(0, tasks, SUBMIT_BATCH):
        app.enqueue_many([call(number) for number in range(first, min(first + SUBMIT_BATCH, tasks))])


def _require_empty(app: Holdfast) -> None:
    if any(app.tasks.count().values()):
        raise HoldfastError(f"{app.url} holds tasks already; measure on a store of its own")
