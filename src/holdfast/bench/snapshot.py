"""What a snapshot that somebody holds open does to the rate of a worker (a report, a backup, a forgotten session).

Nothing that died since the snapshot can be vacuumed away, so a claim that walks over the dead gets slower by the
second. A feeder in a process of its own keeps the queue deep; it feeds before the snapshot is taken and all the time
after, so that the first seconds and the last ones differ in nothing but the snapshot's age.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import asyncpg
import msgspec

from holdfast.app import Holdfast
from holdfast.bench import stores
from holdfast.bench.crew import Crew
from holdfast.bench.noops import declare
from holdfast.clock import SYSTEM_CLOCK

FED_AT_ONCE = 5_000
WARM_UP_SHARE = 0.1
"""So much of the queue is worked off, and fed, before the snapshot is taken."""
WINDOW_SECONDS = 10.0


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    seconds: float
    queued: int
    """At least so many, all the time."""
    processes: int
    window_seconds: float
    first_per_s: float
    last_per_s: float
    ratio: float


def snapshot(url: str, *, seconds: float, queued: int, processes: int = 1) -> Snapshot:
    stores.require_postgres(url, "a held snapshot")
    window = min(WINDOW_SECONDS, seconds / 3)
    with Holdfast(url) as app:
        stores.require_empty(app)
        stores.fill(app, declare(app).noop, queued + FED_AT_ONCE)
        stores.tidy(url)

        def completed() -> int:
            return app.tasks.count()["completed"]

        with feeder(url, queued), Crew(url, processes=processes) as crew:
            stores.wait_until(
                lambda: completed() >= queued * WARM_UP_SHARE, "the warm-up", still_well=crew.require_alive
            )
            with held(stores.driver_dsn(url)):
                first, last = windows(completed, seconds, window)
            crew.require_alive()
    return Snapshot(
        seconds=seconds,
        queued=queued,
        processes=processes,
        window_seconds=window,
        first_per_s=round(first),
        last_per_s=round(last),
        ratio=round(last / first, 3),
    )


def windows(completed: Callable[[], int], seconds: float, window: float) -> tuple[float, float]:
    """The rates of the first and of the last seconds from now."""
    rates = []
    for pause in (0.0, seconds - 2 * window):
        threading.Event().wait(pause)
        started, before = SYSTEM_CLOCK.monotonic(), completed()
        threading.Event().wait(window)
        rates.append((completed() - before) / (SYSTEM_CLOCK.monotonic() - started))
    return rates[0], rates[1]


@contextmanager
def held(dsn: str) -> Iterator[None]:
    """A snapshot held open in a session of its own while the block lasts."""
    with asyncio.Runner() as runner:
        conn = runner.run(_take(dsn))
        try:
            yield
        finally:
            runner.run(conn.close())


async def _take(dsn: str) -> asyncpg.Connection:
    conn = await asyncpg.connect(dsn)
    await conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await conn.execute("SELECT 1")
    return conn


@contextmanager
def feeder(url: str, queued: int) -> Iterator[None]:
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "holdfast.bench.snapshot", str(queued)], env=os.environ | {"HOLDFAST_URL": url}
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _feed(queued: int) -> None:
    """In the feeder's process, until it is ended."""
    app = Holdfast()
    noop = declare(app).noop
    calls = [noop.s(number) for number in range(FED_AT_ONCE)]
    while True:
        if app.tasks.count()["queued"] < queued + FED_AT_ONCE:
            app.enqueue_many(calls)
        else:
            threading.Event().wait(stores.LOOK_SECONDS)


if __name__ == "__main__":
    _feed(int(sys.argv[1]))
