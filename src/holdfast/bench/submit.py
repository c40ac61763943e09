"""How fast tasks are stored: in bulk, one by one and by many at once, signatures checked, durable when acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from holdfast.app import Holdfast
from holdfast.bench import floor_postgres, stores
from holdfast.bench.noops import Noops, declare
from holdfast.clock import SYSTEM_CLOCK

BATCH = 20_000
CROWD = 32
BULK_ROUNDS, SINGLE_ROUNDS = 2, 10
"""Ours and the floor take turns, so that both meet the same machine."""

Work = Callable[[int], Awaitable[None]]


class Submit(msgspec.Struct, frozen=True, kw_only=True):
    tasks: int
    tasks_per_s: float
    """In bulk: calls made, checked against the signature, encoded, and durable in the store."""
    floor_tasks_per_s: float | None
    singles: int
    single_per_s: float
    """One awaited submit after another."""
    floor_single_per_s: float | None
    single_ratio: float | None
    crowd_per_s: float
    """By so many coroutines of one handle, each of which awaits one submit after another."""


def submit(url: str, *, tasks: int, singles: int) -> Submit:
    with Holdfast(url) as app:
        stores.require_empty(app)
        return asyncio.run(_submit(app, url, tasks, singles))


async def _submit(app: Holdfast, url: str, tasks: int, singles: int) -> Submit:
    ours = _Ours(app, declare(app))
    try:
        if stores.kind(url) != "postgresql":
            (bulk,) = await _rates(tasks, BULK_ROUNDS, ours.many)
            (single,) = await _rates(singles, SINGLE_ROUNDS, ours.one_by_one)
            (crowd,) = await _rates(singles, 1, ours.by_a_crowd)
            return _figures(tasks, singles, bulk, None, single, None, crowd)
        async with floor_postgres.submits(stores.driver_dsn(url)) as floor:
            bulk, floor_bulk = await _rates(tasks, BULK_ROUNDS, ours.many, floor.many)
            single, floor_single = await _rates(singles, SINGLE_ROUNDS, ours.one_by_one, floor.one_by_one)
        (crowd,) = await _rates(singles, 1, ours.by_a_crowd)
        return _figures(tasks, singles, bulk, floor_bulk, single, floor_single, crowd)
    finally:
        await app.aclose()


class _Ours:
    def __init__(self, app: Holdfast, noops: Noops) -> None:
        self._app = app
        self._noop = noops.noop

    async def many(self, count: int) -> None:
        """Two batches are under way at any time: one is made while the store writes the other."""
        firsts = iter(range(0, count, BATCH))

        async def submit_batches() -> None:
            for first in firsts:
                numbers = range(first, min(first + BATCH, count))
                await self._app.aenqueue_many([self._noop.s(number) for number in numbers])

        await asyncio.gather(submit_batches(), submit_batches())

    async def one_by_one(self, count: int) -> None:
        for number in range(count):
            await self._noop.aenqueue(number)

    async def by_a_crowd(self, count: int) -> None:
        await asyncio.gather(*(self.one_by_one(count // CROWD + (place < count % CROWD)) for place in range(CROWD)))


async def _rates(count: int, rounds: int, *works: Work) -> list[float]:
    """Of each work, so many in rounds; connections and plans are made before the clock runs."""
    for work in works:
        await work(10)
    size, spent = max(count // rounds, 1), [0.0] * len(works)
    for _ in range(rounds):
        for place, work in enumerate(works):
            started = SYSTEM_CLOCK.monotonic()
            await work(size)
            spent[place] += SYSTEM_CLOCK.monotonic() - started
    return [size * rounds / seconds for seconds in spent]


def _figures(
    tasks: int,
    singles: int,
    bulk: float,
    floor_bulk: float | None,
    single: float,
    floor_single: float | None,
    crowd: float,
) -> Submit:
    return Submit(
        tasks=tasks,
        tasks_per_s=round(bulk),
        floor_tasks_per_s=None if floor_bulk is None else round(floor_bulk),
        singles=singles,
        single_per_s=round(single),
        floor_single_per_s=None if floor_single is None else round(floor_single),
        single_ratio=None if floor_single is None else round(single / floor_single, 3),
        crowd_per_s=round(crowd),
    )
