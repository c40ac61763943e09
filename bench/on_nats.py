"""The figures of NATS JetStream, on a single server and on a cluster of three, both with `sync_interval: always`.

Each measure has a stream of its own, with three copies on the cluster.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

from bench import servers
from bench.figures import Figure, Measure, at_least, at_most, median_run
from holdfast import Holdfast, ids
from holdfast.bench import footprint, stores
from holdfast.bench.drain import drain
from holdfast.bench.latency import latency
from holdfast.bench.noops import declare
from holdfast.bench.submit import CROWD, submit
from holdfast.clock import SYSTEM_CLOCK
from holdfast.model.claim import ClaimRequest
from holdfast.stores.nats.options import parsed
from holdfast.stores.nats.store import NatsStore
from tests import jetstream_servers

T = TypeVar("T")

SINGLE, CLUSTER = "single server", "cluster of three"
BOTH = (SINGLE, CLUSTER)
FEW, MANY = 100, 100_000
CLAIMS = 50
WARM_UP = 5


def on_servers(which: str, measure: Callable[[str], T]) -> T:
    url = servers.nats(cluster=which is CLUSTER).url(jetstream_servers.fresh_prefix())
    try:
        return measure(url)
    finally:
        jetstream_servers.remove(url)


def drains(share: int) -> Iterator[Figure]:
    tasks = 20_000 // share
    for which in BOTH:
        found = median_run(partial(on_servers, which, partial(drain, tasks=tasks)), lambda run: run.ratio or 0)
        yield Figure(f"drain, one worker process, {which}", found.tasks_per_s, "tasks/s")
        yield Figure(f"floor of the same run, {which}", found.floor_tasks_per_s or 0, "tasks/s")
        yield at_least(f"ratio, {which}", found.ratio or 0, "", 0.4)
        yield Figure(f"CPU of the worker per task, {which}", found.cpu_us_per_task or 0, "µs")


def submits(share: int) -> Iterator[Figure]:
    for which in BOTH:
        found = on_servers(which, lambda url: submit(url, tasks=40_000 // share, singles=2_000 // share))
        yield Figure(f"bulk submit, signatures checked, {which}", found.tasks_per_s, "tasks/s")
        yield Figure(f"single awaited submits, {which}", found.single_per_s, "tasks/s")
        yield Figure(f"single submits by {CROWD} at once, {which}", found.crowd_per_s, "tasks/s")


def latencies(share: int) -> Iterator[Figure]:
    for which in BOTH:
        found = on_servers(which, lambda url: latency(url, tasks=max(500 // share, 200)))
        yield Figure(f"commit (one submit), p50, {which}", found.commit_p50_ms, "ms")
        yield Figure(f"idle pick-up from another process, p50, {which}", found.pickup_p50_ms, "ms")
        yield Figure(f"idle pick-up from another process, p99, {which}", found.pickup_p99_ms, "ms")
        yield Figure(f"the same from the call of enqueue, p50, {which}", found.whole_p50_ms, "ms")


def memories(share: int) -> Iterator[Figure]:
    found = on_servers(SINGLE, lambda url: footprint.memory(url, queued=MANY // share, worked=1_000))
    yield at_most(f"worker's peak memory, {found.queued:,} tasks queued", found.peak_mib * 1.048576, "MB", 200)


class Claims(NamedTuple):
    """Of one task each, by a handle of a store with so many queued."""

    ms: float
    cpu_us: float
    """Of this process, with the feed that brings the claim back."""
    messages: float
    """Sent and received."""


def claims(share: int) -> Iterator[Figure]:
    many = MANY // share
    few_found, many_found = on_servers(SINGLE, lambda one: on_servers(SINGLE, partial(_claims, one, many)))
    for queued, found in ((FEW, few_found), (many, many_found)):
        yield Figure(f"claim of one task, {queued:,} queued, p50", found.ms, "ms")
        yield Figure(f"CPU of the client per claim, {queued:,} queued", found.cpu_us, "µs")
        yield Figure(f"messages per claim, {queued:,} queued", found.messages, "")
    yield at_most("ratio of the times", many_found.ms / few_found.ms, "", 1.5)
    yield at_most("ratio of the CPU", many_found.cpu_us / few_found.cpu_us, "", 1.5)
    yield at_most("ratio of the messages", many_found.messages / few_found.messages, "", 1.1)


def _claims(few_url: str, many: int, many_url: str) -> tuple[Claims, Claims]:
    for url, queued in ((few_url, FEW), (many_url, many)):
        with Holdfast(url) as app:
            stores.fill(app, declare(app).noop, queued)
    return asyncio.run(_take_turns(few_url, many_url))


async def _take_turns(few_url: str, many_url: str) -> tuple[Claims, Claims]:
    """So that both meet the same machine."""
    handles = [NatsStore(parsed(url, {})) for url in (few_url, many_url)]
    watches = [_Watch(store) for store in handles]
    try:
        for watch in watches:
            await watch.begin()
        for _ in range(CLAIMS):
            for watch in watches:
                await watch.claim()
        few, many = [watch.found() for watch in watches]
    finally:
        for store in handles:
            await store.close()
    return few, many


class _Watch:
    def __init__(self, store: NatsStore) -> None:
        self._store = store
        self._waits: list[float] = []
        self._cpu: list[float] = []
        self._before = self._seen = 0

    async def begin(self) -> None:
        for _ in range(WARM_UP):
            await self.claim()
        self._waits.clear()
        self._cpu.clear()
        self._before = await self._messages()

    async def claim(self) -> None:
        before, cpu = SYSTEM_CLOCK.monotonic(), time.process_time()
        claimed = await self._store.claim(ClaimRequest(worker_id="bench", claim_id=ids.token(), limit=1))
        assert len(claimed.claims) == 1
        self._waits.append(1000 * (SYSTEM_CLOCK.monotonic() - before))
        self._cpu.append(1e6 * (time.process_time() - cpu))
        self._seen = await self._messages()

    async def _messages(self) -> int:
        stats = (await self._store._ledger.wire.client()).stats
        return int(stats["in_msgs"] + stats["out_msgs"])

    def found(self) -> Claims:
        messages = (self._seen - self._before) / len(self._waits)
        return Claims(statistics.median(self._waits), statistics.median(self._cpu), messages)


def idles(share: int) -> Iterator[Figure]:
    found = on_servers(SINGLE, lambda url: footprint.idle(url, seconds=20 / share))
    yield Figure("idle worker", found.core_percent, "% of core")


MEASURES: dict[str, Measure] = {
    "nats-drain": drains,
    "nats-submit": submits,
    "nats-latency": latencies,
    "nats-memory": memories,
    "nats-claim": claims,
    "nats-idle": idles,
}
