"""Limits on PostgreSQL: what they cost, what they do not hide, and the interleavings that they have to stand."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from holdfast.model.claim import Claim
from holdfast.stores.postgres.store import PostgresStore
from tests.stores.postgres_support import opened, request, somebody_else

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

    before = await total()
    claims = (await store.claim(request(limit=BATCH))).claims
    after = await total()
    assert len(claims) == BATCH
    return after - before


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
