"""How soon an idle worker begins a task: one of another process, or on memory of this one."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from holdfast.app import Holdfast
from holdfast.bench import stores
from holdfast.bench.crew import Crew
from holdfast.bench.noops import declare
from holdfast.clock import SYSTEM_CLOCK

GAP_SECONDS = 0.02
"""Between two tasks, so that each meets a worker that has settled the one before and is idle again."""
WARM_UP = 10


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    tasks: int
    commit_p50_ms: float
    """A submit alone: what one durable commit costs here."""
    pickup_p50_ms: float
    """From an acknowledged submit to the handler's first line. It can be below zero: a worker may be faster than the
    acknowledgement."""
    pickup_p99_ms: float
    whole_p50_ms: float
    """From the call of `enqueue` to the handler's first line."""
    whole_p99_ms: float


def latency(url: str, *, tasks: int, here: bool = False) -> Latency:
    """`here`: of a worker in this process, on the same event loop."""
    with Holdfast(url) as app:
        stores.require_empty(app)
        if here or stores.kind(url) == "memory":
            return asyncio.run(_measured(app, tasks, here=True))
        with Crew(url, concurrency=10):
            stores.wait_until(lambda: bool(app.workers.list()), "the worker to be enrolled")
            return asyncio.run(_measured(app, tasks, here=False))


async def _measured(app: Holdfast, tasks: int, *, here: bool) -> Latency:
    arrive = declare(app).arrive
    called, acknowledged, begun = [], [], []
    async with app, _worker(app, here=here):
        handles = []
        for number in range(WARM_UP + tasks):
            await asyncio.sleep(GAP_SECONDS)
            before = SYSTEM_CLOCK.monotonic()
            handle = await arrive.aenqueue()
            if number >= WARM_UP:
                called.append(before)
                acknowledged.append(SYSTEM_CLOCK.monotonic())
                handles.append(handle)
        for handle in handles:
            begun.append(await handle.aresult(timeout=stores.PATIENCE_SECONDS))
    commits = [after - before for before, after in zip(called, acknowledged, strict=True)]
    pickups = [after - before for before, after in zip(acknowledged, begun, strict=True)]
    wholes = [after - before for before, after in zip(called, begun, strict=True)]
    return Latency(
        tasks=tasks,
        commit_p50_ms=_millis(statistics.median(commits)),
        pickup_p50_ms=_millis(statistics.median(pickups)),
        pickup_p99_ms=_millis(statistics.quantiles(pickups, n=100)[98]),
        whole_p50_ms=_millis(statistics.median(wholes)),
        whole_p99_ms=_millis(statistics.quantiles(wholes, n=100)[98]),
    )


@asynccontextmanager
async def _worker(app: Holdfast, *, here: bool) -> AsyncIterator[None]:
    if not here:
        yield
        return
    worker = app.worker(concurrency=10)
    working = asyncio.create_task(worker.arun())
    yield
    worker.stop()
    await working


def _millis(seconds: float) -> float:
    return round(seconds * 1000, 3)
