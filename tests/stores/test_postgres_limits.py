"""Limits on PostgreSQL: what they cost, what they do not hide, and the interleavings that they have to stand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.claim import Claim
from holdfast.stores.postgres import turn
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.virtual_clock import VirtualClock
from tests.stores.postgres_support import new_task, opened, request, somebody_else

BATCH = 10
HELD = 100_000
FILL = """
INSERT INTO tasks (
    id, run_at, created_at, status, name, queue, priority, max_attempts, backoff, payload, concurrency_key
)
SELECT
    ('01900000-0000-7000-8000-' || lpad(to_hex(nextval('task_seq')), 12, '0'))::uuid, clock_timestamp() - $2::interval,
    clock_timestamp(), 'queued', 'probe', $4::text, 0, 5, '{"kind":"fixed","delay":1.0}', '{"args":[1],"kwargs":{}}',
    CASE WHEN $3::text <> '' THEN $3::text || CASE WHEN $5::bigint > 1 THEN (n % $5::bigint)::text ELSE '' END END
FROM generate_series(1, $1::bigint) AS n
"""
TOUCHED = """
SELECT sum(heap_blks_hit + heap_blks_read + coalesce(idx_blks_hit, 0) + coalesce(idx_blks_read, 0))
FROM pg_statio_all_tables WHERE schemaname = $1
"""


async def fill(conn: Any, tasks: int, *, hours: int, key: str = "", keys: int = 1) -> None:
    """As if they had been submitted that long ago."""
    await conn.execute(FILL, tasks, timedelta(hours=hours), key, "default", keys)


Setting = Callable[[Any], Awaitable[None]]


async def only_others(conn: Any) -> None:
    await fill(conn, 200, hours=1)


async def other_keys_behind(conn: Any) -> None:
    await fill(conn, HELD, hours=2, key="big")
    await fill(conn, 3000, hours=1, key="small ", keys=1000)


async def no_keys_behind(conn: Any) -> None:
    await fill(conn, HELD, hours=2, key="big")
    await fill(conn, 3000, hours=1)


async def both_behind(conn: Any) -> None:
    await fill(conn, HELD, hours=2, key="big")
    await fill(conn, 3000, hours=1, key="small ", keys=1000)
    await fill(conn, 3000, hours=1)


async def claim(store: PostgresStore, number: int = BATCH) -> list[Claim]:
    """As a worker does: again where there may be more."""
    claims: list[Claim] = []
    for _ in range(1000):
        answer = await store.claim(request(limit=number - len(claims)))
        claims += answer.claims
        if len(claims) == number or not answer.more:
            break
    return claims


async def touched(store: PostgresStore) -> int:
    """Buffers of our tables that a claim touches, with all that it writes."""

    async def flush(session: Any) -> None:
        await session.conn.execute("SELECT pg_catalog.pg_stat_force_next_flush()")

    async def total() -> int:
        await store._opened.claimer.run(flush)
        async with somebody_else(store) as other:
            return int(await other.fetchval(TOUCHED, store._options.schema))

    while True:
        before = await total()
        answer = await store.claim(request(limit=BATCH))
        after = await total()
        if len(answer.claims) == BATCH:
            return after - before
        assert answer.more  # its stride came to nothing, as after a survey that has it begin anew


async def cost(setting: Setting, *, limited: bool) -> int:
    async with opened(statement_timeout=120) as store:
        await store.now()
        async with somebody_else(store) as other:
            await setting(other)
            await other.execute("analyze tasks")
        if limited:
            await store.limit("default", {"max_running_per_key": 1})
        for _ in range(4):  # as in a worker that is at work: fronts and walks are where they are then
            assert len(await claim(store)) == BATCH
        async with somebody_else(store) as other:
            await other.execute("update queues set changed_at = null")
        return min([await touched(store) for _ in range(3)])


@pytest.mark.timeout(120)
@pytest.mark.parametrize("setting", [other_keys_behind, no_keys_behind, both_behind], ids=lambda one: one.__name__)
def test_a_key_that_is_full_does_not_hide_the_others(setting: Setting) -> None:
    usual = asyncio.run(cost(only_others, limited=False))
    held = asyncio.run(cost(setting, limited=True))
    print(f"{held} buffers against {usual}")
    assert held <= 3 * usual


async def begun(store: PostgresStore) -> int:
    async with somebody_else(store) as other:
        return int(await other.fetchval("select count(*) from tasks where begun"))


def test_queues_without_limits_are_claimed_as_ever() -> None:
    """Also by a worker that listens to a limited one, while that has nothing to do."""

    async def use() -> None:
        async with opened() as store:
            await store.limit("narrow", {"max_running": 1})
            await store.submit([new_task(queue=queue) for queue in ("wide", "wide", "narrow", "narrow")])
            assert len(await claim(store)) == 3
            assert store._fronts.turns(store._fronts.order(None))
            assert await begun(store) == 1
            async with somebody_else(store) as other:
                await other.execute("delete from tasks where queue = 'narrow' and status = 'queued'")
            await store.submit([new_task(queue="wide")])
            assert len(await claim(store)) == 1
            assert not store._fronts.turns(store._fronts.order(None))
            assert await begun(store) == 1

    asyncio.run(use())


def test_a_heartbeat_under_way_keeps_its_place_though_the_lease_seems_over() -> None:
    """1. A heartbeat holds the row; it found the lease valid. 2. The lease's time is over, and a claim counts. 3. The
    heartbeat commits. The place was never free."""

    async def use() -> None:
        clock = VirtualClock()
        async with opened(clock=clock) as store:
            await store.limit("default", {"max_running": 1})
            await store.submit([new_task(), new_task()])
            (held,) = await claim(store)
            async with somebody_else(store) as heartbeat:
                async with heartbeat.transaction():
                    await heartbeat.execute("select from tasks where id = $1 for update", held.task_id)
                    clock.advance(120)
                    assert await claim(store) == []
                    await heartbeat.execute(
                        "update tasks set lease_expires_at = lease_expires_at + interval '1 hour' where id = $1",
                        held.task_id,
                    )
                assert await claim(store) == []
                await heartbeat.execute("update tasks set lease_expires_at = claimed_at where id = $1", held.task_id)
            assert len(await claim(store)) == 1

    asyncio.run(use())


def test_what_was_claimed_by_somebody_who_did_not_know_of_a_limit_counts() -> None:
    """Also where nobody claims from the queue before the time in which that may happen is over."""

    async def use() -> None:
        clock = VirtualClock()
        async with opened(clock=clock) as store:
            await store.submit([new_task(), new_task(), new_task()])
            await store.limit("default", {"max_running": 2})
            assert len(await claim(store, 1)) == 1
            async with somebody_else(store) as other:
                await other.execute("update tasks set begun = false")  # as a claim that began before the change
                clock.advance(30)
                assert len(await claim(store)) == 1
                assert await other.fetchval("select changed_at from queues") is None
                await other.execute("update tasks set begun = false")
                assert len(await claim(store)) == 1, "from then on only marks are looked at"

    asyncio.run(use())


def test_a_task_without_a_key_that_is_committed_late_is_found_behind_held_ones() -> None:
    """1. A transaction gets its time and writes a task. 2. Claims walk past that place, along tasks that their key
    holds, and remember how far they came. 3. It commits. 4. Within a second a claim finds its task."""

    async def use() -> None:
        async with opened() as store:
            await store.limit("default", {"max_running_per_key": 1})
            await store.now()
            async with somebody_else(store) as other:
                await fill(other, 2 * turn.STRIDE, hours=2, key="big")
            async with somebody_else(store) as late:
                async with late.transaction():
                    await fill(late, 1, hours=0)
                    async with somebody_else(store) as other:
                        await fill(other, 3 * turn.STRIDE, hours=0, key="big")
                    assert len(await claim(store)) == 1
                    for _ in range(3):
                        assert await claim(store) == []
                    reached = max(shelf.deep for shelf in store._fronts.order(None))
                committed_at = await late.fetchval("select clock_timestamp()")
                assert await late.fetchval(
                    "select run_at < $1 from tasks where concurrency_key is null", reached.run_at
                )
            found: list[Claim] = []
            async with asyncio.timeout(5):
                while not found:
                    found = await claim(store)
            assert found[0].claimed_at - committed_at < timedelta(seconds=1)

    asyncio.run(use())
