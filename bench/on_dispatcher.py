"""The figures of a dispatcher in front of PostgreSQL: a process of its own, as `holdfast serve` starts it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import aiohttp

from bench.figures import Figure, Measure, at_least, at_most, median_run
from bench.on_postgres import on_server
from holdfast import Holdfast
from holdfast.bench.drain import Drain, drain
from holdfast.bench.latency import GAP_SECONDS, Latency, latency
from holdfast.bench.noops import declare
from holdfast.clock import SYSTEM_CLOCK

WARM_UP = 20
_AT = re.compile(rb"at (http://[0-9.:]+)")


@contextmanager
def dispatcher(url: str) -> Iterator[str]:
    """Its URL, while the block lasts."""
    command = [sys.executable, "-m", "holdfast", "serve", "--port", "0", "--log-level", "error"]
    service = subprocess.Popen(command, env=os.environ | {"HOLDFAST_URL": url}, stderr=subprocess.PIPE)
    assert service.stderr is not None
    try:
        found = next((at for line in service.stderr if (at := _AT.search(line)) is not None), None)
        assert found is not None, "the dispatcher did not start"
        yield found[1].decode()
    finally:
        service.terminate()
        service.communicate()


class Both(NamedTuple):
    direct: Drain
    through: Drain

    @property
    def ratio(self) -> float:
        return self.through.tasks_per_s / self.direct.tasks_per_s


def drained_both(tasks: int) -> Both:
    return Both(
        on_server(lambda url: drain(url, tasks=tasks, floor=False)), on_server(lambda url: _drained_through(url, tasks))
    )


def _drained_through(url: str, tasks: int) -> Drain:
    with dispatcher(url) as at:
        return drain(url, tasks=tasks, floor=False, through=at)


def drains(share: int) -> list[Figure]:
    found = median_run(lambda: drained_both(100_000 // share), lambda both: both.ratio)
    return [
        Figure("drain, one worker process, direct", found.direct.tasks_per_s, "tasks/s"),
        Figure("drain, one worker process, through a dispatcher", found.through.tasks_per_s, "tasks/s"),
        at_least("ratio", found.ratio, "", 0.4),
        Figure("CPU of the remote worker per task", found.through.cpu_us_per_task or 0, "µs"),
    ]


def latencies(share: int) -> Iterator[Figure]:
    tasks = max(1000 // share, 200)
    polled = on_server(lambda url: _polled(url, tasks))
    yield at_most("claim by long-polling, from the acknowledged submit, p50", polled[49], "ms", 10)
    yield Figure("claim by long-polling, from the acknowledged submit, p99", polled[98], "ms")
    found = on_server(lambda url: _picked_up(url, tasks))
    yield Figure("submit through a dispatcher, p50", found.commit_p50_ms, "ms")
    yield Figure("idle pick-up by a remote worker, p50", found.pickup_p50_ms, "ms")
    yield Figure("idle pick-up by a remote worker, p99", found.pickup_p99_ms, "ms")


def _picked_up(url: str, tasks: int) -> Latency:
    with dispatcher(url) as at:
        return latency(at, tasks=tasks)


def _polled(url: str, tasks: int) -> list[float]:
    """Milliseconds, by percentile, until a worker of any language has the task that was just submitted."""
    with dispatcher(url) as at, Holdfast(url) as app:
        return asyncio.run(_poll(at, app, tasks))


async def _poll(at: str, app: Holdfast, tasks: int) -> list[float]:
    arrive, waits = declare(app).arrive, []
    async with app, aiohttp.ClientSession(at) as session:
        for number in range(WARM_UP + tasks):
            polling = asyncio.create_task(_claimed(session))
            await asyncio.sleep(GAP_SECONDS)
            await arrive.aenqueue()
            submitted = SYSTEM_CLOCK.monotonic()
            claimed = await polling
            if number >= WARM_UP:
                waits.append(1000 * (claimed - submitted))
    return statistics.quantiles(waits, n=100)


async def _claimed(session: aiohttp.ClientSession) -> float:
    """The moment at which the answer is here."""
    async with session.post("/v1/claims", json={"worker_id": "bench", "wait_seconds": 30}) as answer:
        said = json.loads(await answer.read())
        assert len(said["claims"]) == 1, said
        return SYSTEM_CLOCK.monotonic()


MEASURES: dict[str, Measure] = {"dispatcher-drain": drains, "dispatcher-latency": latencies}
