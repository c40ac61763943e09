"""The figures of NATS JetStream, on a single server and on a cluster of three, both with `sync_interval: always`.

Each measure has a stream of its own, with three copies on the cluster.
"""

from __future__ import annotations

import asyncio
import statistics
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
CLAIMS, CLAIM_SIZE = 50, 1
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
    """Of one task each, from a worker's handle, with so many queued."""

    ms: float
    sent: float
    received: float


def claims(share: int) -> Iterator[Figure]:
    few, many = (on_servers(SINGLE, partial(_claims, queued=queued)) for queued in (FEW, MANY // share))
    yield Figure(f"claim of one task, {FEW:,} queued, p50", few.ms, "ms")
    yield Figure(f"claim of one task, {MANY // share:,} queued, p50", many.ms, "ms")
    yield at_most("ratio", many.ms / few.ms, "", 1.5)
    yield Figure(f"messages per claim, sent + received, {FEW:,} queued", few.sent + few.received, "")
    yield Figure(f"messages per claim, sent + received, {MANY // share:,} queued", many.sent + many.received, "")
    yield at_most("ratio", (many.sent + many.received) / (few.sent + few.received), "", 1.1)


def _claims(url: str, queued: int) -> Claims:
    with Holdfast(url) as app:
        stores.fill(app, declare(app).noop, queued)
    return asyncio.run(_timed_claims(url))


async def _timed_claims(url: str) -> Claims:
    store = NatsStore(parsed(url, {}))
    try:
        for _ in range(WARM_UP):
            await _claim(store)
        client = await store._ledger.wire.client()
        sent, received, waits = client.stats["out_msgs"], client.stats["in_msgs"], list[float]()
        for _ in range(CLAIMS):
            before = SYSTEM_CLOCK.monotonic()
            await _claim(store)
            waits.append(1000 * (SYSTEM_CLOCK.monotonic() - before))
        sent, received = client.stats["out_msgs"] - sent, client.stats["in_msgs"] - received
    finally:
        await store.close()
    return Claims(statistics.median(waits), sent / CLAIMS, received / CLAIMS)


async def _claim(store: NatsStore) -> None:
    claimed = await store.claim(ClaimRequest(worker_id="bench", claim_id=ids.token(), limit=CLAIM_SIZE))
    assert len(claimed.claims) == CLAIM_SIZE


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
