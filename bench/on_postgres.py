"""The figures of PostgreSQL, each in a fresh schema of one server that is started for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TypeVar

import asyncpg

from bench import servers
from bench.figures import Figure, Measure, at_least, at_most, median_run
from holdfast import ids
from holdfast.bench import footprint, limits
from holdfast.bench.chord import chord
from holdfast.bench.drain import drain
from holdfast.bench.latency import latency
from holdfast.bench.producers import producers
from holdfast.bench.rescue import rescue
from holdfast.bench.snapshot import snapshot
from holdfast.bench.submit import submit

T = TypeVar("T")


def on_server(measure: Callable[[str], T]) -> T:
    schema = f"bench_{ids.nonce()}"
    try:
        return measure(f"{servers.postgres()}?schema={schema}")
    finally:
        asyncio.run(_drop(schema))


async def _drop(schema: str) -> None:
    conn = await asyncpg.connect(servers.postgres())
    try:
        await conn.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")
    finally:
        await conn.close()


def drains(share: int) -> Iterator[Figure]:
    yield from _drained(1, 0.55, 200_000 // share)
    yield from _drained(2, 0.5, 200_000 // share)


def _drained(processes: int, target: float, tasks: int) -> list[Figure]:
    found = median_run(
        lambda: on_server(lambda url: drain(url, tasks=tasks, processes=processes)), lambda run: run.ratio or 0
    )
    crew = "one worker process" if processes == 1 else f"{processes} worker processes"
    return [
        Figure(f"drain, {crew}", found.tasks_per_s, "tasks/s"),
        Figure(f"floor of the same run, {crew}", found.floor_tasks_per_s or 0, "tasks/s"),
        at_least(f"ratio, {crew}", found.ratio or 0, "", target),
        at_most(f"CPU per task, {crew}", found.cpu_us_per_task or 0, "µs", 25),
    ]


def submits(share: int) -> list[Figure]:
    found = median_run(
        lambda: on_server(lambda url: submit(url, tasks=200_000 // share, singles=5_000 // share)),
        lambda run: run.single_ratio or 0,
    )
    return [
        at_least("bulk submit, signatures checked", found.tasks_per_s, "tasks/s", 100_000),
        Figure("bare INSERT with its event, in bulk", found.floor_tasks_per_s or 0, "tasks/s"),
        Figure("single awaited submits", found.single_per_s, "tasks/s"),
        Figure("bare INSERT with its event, one by one", found.floor_single_per_s or 0, "tasks/s"),
        at_least("ratio of the singles", found.single_ratio or 0, "", 0.7),
    ]


def latencies(share: int) -> list[Figure]:
    found = on_server(lambda url: latency(url, tasks=max(1000 // share, 200)))
    return [
        Figure("commit (one submit), p50", found.commit_p50_ms, "ms"),
        at_most("idle pick-up from another process, p50", found.pickup_p50_ms, "ms", 2.5),
        at_most("idle pick-up from another process, p99", found.pickup_p99_ms, "ms", 10),
        Figure("the same from the call of enqueue, with its commit, p50", found.whole_p50_ms, "ms"),
        Figure("the same from the call of enqueue, with its commit, p99", found.whole_p99_ms, "ms"),
    ]


def producing(share: int) -> list[Figure]:
    found = on_server(lambda url: producers(url, producers=16, seconds=max(20 / share, 4)))
    return [
        Figure("16 producers, wake-ups on", found.with_wakeups_per_s, "commits/s"),
        Figure("16 producers, wake-ups off", found.without_wakeups_per_s, "commits/s"),
        at_least("ratio", found.ratio, "", 0.9),
    ]


def snapshots(share: int) -> list[Figure]:
    found = on_server(lambda url: snapshot(url, seconds=max(60 / share, 15), queued=200_000 // share))
    return [
        Figure(f"under a held snapshot, first {found.window_seconds:g} s", found.first_per_s, "tasks/s"),
        Figure(f"under a held snapshot, last {found.window_seconds:g} s", found.last_per_s, "tasks/s"),
        at_least("ratio", found.ratio, "", 0.85),
    ]


def rescues(_share: int) -> list[Figure]:
    found = on_server(rescue)
    return [at_most("work of a killed worker runs again, leases of 60 s", found.seconds, "s", 5)]


def chords(share: int) -> list[Figure]:
    found = on_server(lambda url: chord(url, members=100_000 // share, processes=2))
    return [
        Figure(f"chord of {found.members:,} members, submit", found.submit_seconds, "s"),
        Figure("chord, 2 worker processes, until its finalizer has ended", found.members_per_s, "members/s"),
    ]


def limited(share: int) -> list[Figure]:
    found = median_run(
        lambda: on_server(lambda url: limits.limited_drain(url, tasks=100_000 // share)), lambda run: run.ratio
    )
    return [
        Figure("drain without limits", found.free_per_s, "tasks/s"),
        Figure(f"drain with max_running={found.max_running}", found.limited_per_s, "tasks/s"),
        at_least("ratio", found.ratio, "", 0.5),
    ]


def handing_over(share: int) -> list[Figure]:
    found = on_server(lambda url: limits.hand_over(url, tasks=max(1000 // share, 200)))
    return [
        at_most("hand-over, max_running=1, two processes, p50", found.p50_ms, "ms", 10),
        Figure("hand-over, max_running=1, two processes, p99", found.p99_ms, "ms"),
    ]


def fair(share: int) -> list[Figure]:
    found = on_server(lambda url: limits.fairness(url, largest=max(20_000 // share, 2_000)))
    return [
        at_least(f"keys of {found.keys} that progressed", found.keys_with_progress, "", found.keys),
        Figure("completed of the least lucky key, of ten per key", found.fewest_of_a_key, "tasks"),
        Figure("completed of the luckiest one", found.most_of_a_key, "tasks"),
    ]


def idles(share: int) -> list[Figure]:
    found = on_server(lambda url: footprint.idle(url, seconds=20 / share))
    return [Figure("idle worker", found.core_percent, "% of core")]


MEASURES: dict[str, Measure] = {
    "postgres-drain": drains,
    "postgres-submit": submits,
    "postgres-latency": latencies,
    "postgres-producers": producing,
    "postgres-snapshot": snapshots,
    "postgres-rescue": rescues,
    "postgres-chord": chords,
    "postgres-limits": limited,
    "postgres-hand-over": handing_over,
    "postgres-fairness": fair,
    "postgres-idle": idles,
}
