"""What a claim of ten tasks, and a look for expired leases, cost in buffers touched: free of the noise of time.

Each is within twice the cost on a small fresh queue, whatever the tables hold besides, and whoever holds a snapshot.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cache

import asyncpg
import pytest

from holdfast import ids
from holdfast.model.outcome import Completed, Settlement
from holdfast.stores.postgres import claim
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.statements import statement
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.postgres.survey import survey
from tests import postgres_server
from tests.stores.postgres_support import opened, request, somebody_else

MANY = 1_000_000
PINNED = 60_000
BATCH = 10
FILL = """
INSERT INTO tasks (id, run_at, created_at, finished_at, status, name, queue, priority, max_attempts, backoff, payload)
SELECT
    ('01900000-0000-7000-8000-' || lpad(to_hex(nextval('task_seq')), 12, '0'))::uuid, clock_timestamp() + $2::interval,
    clock_timestamp(), CASE WHEN $3::text = 'completed' THEN clock_timestamp() END, $3::text, 'probe', 'default',
    $4::smallint + n % $5::int, 5, '{"kind":"fixed","delay":1.0}', '{"args":[1],"kwargs":{}}'
FROM generate_series(1, $1::bigint) AS n
"""


async def fill(
    store: PostgresStore,
    tasks: int,
    *,
    due: timedelta = timedelta(0),
    status: str = "queued",
    priority: int = 0,
    priorities: int = 1,
) -> None:
    """As if they had been submitted."""
    async with somebody_else(store) as other:
        await other.execute(FILL, tasks, due, status, priority, priorities)


Setting = Callable[[PostgresStore], Awaitable[None]]


async def small_and_fresh(store: PostgresStore) -> None:
    await fill(store, 100)


async def a_million_queued(store: PostgresStore) -> None:
    await fill(store, MANY)


async def a_million_completed(store: PostgresStore) -> None:
    await fill(store, MANY, status="completed")
    await fill(store, 100)


async def a_million_scheduled_above(store: PostgresStore) -> None:
    await fill(store, MANY, due=timedelta(hours=1), priority=7)
    await fill(store, 100)


async def eight_priorities(store: PostgresStore) -> None:
    await fill(store, 800, priorities=8)


async def worked_off_under_a_snapshot(store: PostgresStore) -> None:
    await fill(store, PINNED)
    while claims := (await store.claim(request(limit=1000))).claims:
        await store.settle([Settlement(one.lease, Completed()) for one in claims])
    await fill(store, 100)


SETTINGS: list[Setting] = [
    a_million_queued,
    a_million_completed,
    a_million_scheduled_above,
    eight_priorities,
    worked_off_under_a_snapshot,
]


@asynccontextmanager
async def snapshot() -> AsyncIterator[None]:
    """Somebody reads, and goes on reading: nothing that dies meanwhile can be cleaned away."""
    conn = await asyncpg.connect(postgres_server.server().url)
    try:
        await conn.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        await conn.execute("SELECT")
        yield
    finally:
        await conn.close()


async def touched(session: Session, name: str, *values: object) -> int:
    """Buffers that one statement touches. It runs in full, with what it writes."""
    (plan,) = json.loads(
        await session.conn.fetchval(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement(session.schema, name)}", *values
        )
    )
    # What writes and is asked by nobody is not part of the top node's count.
    unasked = [node for node in plan["Plan"]["Plans"] if node.get("Operation") == "Insert"]
    return sum(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for node in [plan["Plan"], *unasked])


async def touched_by_a_claim(store: PostgresStore) -> int:
    async def work(session: Session) -> int:
        wanted = request(limit=BATCH)
        shelves = store._fronts.order(None)
        values = claim.parameters(session, wanted, ids.tokens(BATCH), shelves)
        return await touched(session, claim.statement_for(shelves), *values)

    for _ in range(3):  # the fronts are where they are in a worker that is at work
        assert len((await store.claim(request(limit=BATCH))).claims) == BATCH
    return await store._opened.claimer.run(work)


async def touched_by_a_look_for_expired_leases(store: PostgresStore) -> int:
    async def work(session: Session) -> int:
        await survey(session, store._fronts, None)
        await survey(session, store._fronts, None)
        async with session.conn.transaction():
            return await touched(session, "expired", None, BATCH, store._fronts.leases)

    claims = (await store.claim(request(limit=BATCH))).claims
    async with somebody_else(store) as other:
        await other.execute(
            "update tasks set lease_expires_at = clock_timestamp() where id = any($1)",
            [one.task_id for one in claims],
        )
    return await store._opened.writer.run(work)


async def cost(setting: Setting) -> tuple[int, int]:
    async with opened(statement_timeout=300) as store:
        await store.now()
        async with snapshot():
            await setting(store)
            return await touched_by_a_claim(store), await touched_by_a_look_for_expired_leases(store)


@cache
def usual_cost() -> tuple[int, int]:
    return asyncio.run(cost(small_and_fresh))


@pytest.mark.timeout(300)
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.__name__)
def test_a_claim_costs_no_more_than_on_a_small_fresh_queue(setting: Setting) -> None:
    of_claim, of_look = asyncio.run(cost(setting))
    usual_claim, usual_look = usual_cost()
    print(f"claim {of_claim} against {usual_claim}, look for expired leases {of_look} against {usual_look}")
    assert of_claim <= 2 * usual_claim
    assert of_look <= 2 * usual_look
