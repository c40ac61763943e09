"""The floor on PostgreSQL: what bare SQL over the driver can do with the same work, and no queue around it.

Drain: claims and settles of 500 at once as prepared statements, fenced by token and expiry, one event row per change,
on a table as wide as a task record, each process with one connection. Submit: a task and its event in one statement.
The tables have a schema of their own, which is made for a measure and dropped after it. Run as a module, this is one
of the floor's processes: it says that it is ready, waits for the word, drains, and prints its seconds and its tasks.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncpg

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError

BATCH = 500
SUBMIT_BATCH = 20_000
DSN = "HOLDFAST_FLOOR_DSN"

DROP = "DROP SCHEMA IF EXISTS holdfast_floor CASCADE"
SCHEMA = """
CREATE SCHEMA holdfast_floor;
CREATE TABLE holdfast_floor.tasks (
    id uuid PRIMARY KEY,
    run_at timestamptz NOT NULL DEFAULT now(), created_at timestamptz NOT NULL DEFAULT now(),
    started_at timestamptz, finished_at timestamptz, lease_expires_at timestamptz, token uuid, run_id uuid,
    attempt integer NOT NULL DEFAULT 0, failures integer NOT NULL DEFAULT 0, max_attempts integer NOT NULL DEFAULT 5,
    priority smallint NOT NULL DEFAULT 0, status "char" NOT NULL DEFAULT 'q',
    queue text NOT NULL DEFAULT 'default', name text NOT NULL DEFAULT 'noop', payload text NOT NULL,
    claimed_by text, last_error text, result text, meta text, idempotency_key text, concurrency_key text
);
CREATE INDEX ready ON holdfast_floor.tasks (queue, priority DESC, run_at, id) WHERE status = 'q';
CREATE INDEX leased ON holdfast_floor.tasks (lease_expires_at) WHERE status = 'r';
CREATE TABLE holdfast_floor.events (
    id bigint GENERATED ALWAYS AS IDENTITY, task_id uuid NOT NULL, at timestamptz NOT NULL DEFAULT now(),
    kind text NOT NULL, actor text, attempt integer, detail text
);
CREATE INDEX of_task ON holdfast_floor.events (task_id, id);
"""
CLAIM = """
WITH picked AS MATERIALIZED (
    SELECT id FROM holdfast_floor.tasks
    WHERE status = 'q' AND queue = 'default' AND run_at <= now()
    ORDER BY priority DESC, run_at, id LIMIT $1 FOR UPDATE SKIP LOCKED
),
claimed AS (
    UPDATE holdfast_floor.tasks AS t
    SET status = 'r', attempt = t.attempt + 1, token = gen_random_uuid(), claimed_by = $2,
        started_at = coalesce(t.started_at, now()), lease_expires_at = now() + interval '60 seconds'
    FROM picked WHERE t.id = picked.id
    RETURNING t.id, t.token, t.name, t.payload, t.attempt, t.max_attempts
),
noted AS (
    INSERT INTO holdfast_floor.events (task_id, kind, actor, attempt)
    SELECT id, 'task.running', $2, attempt FROM claimed
)
SELECT id, token, name, payload, attempt, max_attempts FROM claimed
"""
SETTLE = """
WITH settled AS (
    UPDATE holdfast_floor.tasks AS t
    SET status = 'c', finished_at = now(), result = g.result, claimed_by = NULL, lease_expires_at = NULL
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS g (id, token, result)
    WHERE t.id = g.id AND t.token = g.token AND t.lease_expires_at > now()
    RETURNING t.id, t.attempt
),
noted AS (
    INSERT INTO holdfast_floor.events (task_id, kind, actor, attempt)
    SELECT id, 'task.completed', $4, attempt FROM settled
)
SELECT id FROM settled
"""
SUBMIT = """
WITH made AS (
    INSERT INTO holdfast_floor.tasks (id, payload) SELECT * FROM unnest($1::uuid[], $2::text[]) RETURNING id
)
INSERT INTO holdfast_floor.events (task_id, kind, actor) SELECT id, 'task.enqueued', 'floor' FROM made
"""
SUBMIT_ONE = """
WITH made AS (INSERT INTO holdfast_floor.tasks (id, payload) VALUES ($1::uuid, $2) RETURNING id)
INSERT INTO holdfast_floor.events (task_id, kind, actor) SELECT id, 'task.enqueued', 'floor' FROM made
"""


def drain_rate(dsn: str, *, tasks: int, processes: int) -> float:
    """Tasks claimed and settled per second by so many processes."""
    with _tables(dsn, tasks):
        running = [_started(dsn) for _ in range(processes)]
        for one in running:
            _heard(one)
        for one in running:
            _told(one)
        ends = [_heard(one).split() for one in running]
        for one in running:
            one.wait()
    done = sum(int(count) for _, count in ends)
    if done != tasks:
        raise HoldfastError(f"the floor settled {done} of {tasks} tasks")
    return tasks / max(float(seconds) for seconds, _ in ends)


@contextmanager
def _tables(dsn: str, tasks: int) -> Iterator[None]:
    """Filled, vacuumed, and gone after the block."""
    asyncio.run(_make(dsn, tasks))
    try:
        yield
    finally:
        asyncio.run(_execute(dsn, DROP))


async def _make(dsn: str, tasks: int) -> None:
    conn = await asyncpg.connect(dsn)
    try:
        await conn.execute(DROP)
        await conn.execute(SCHEMA)
        await conn.execute(
            SUBMIT, ids.task_ids(tasks), [f'{{"args":[{number}],"kwargs":{{}}}}' for number in range(tasks)]
        )
        await conn.execute("VACUUM ANALYZE holdfast_floor.tasks")
    finally:
        await conn.close()


async def _execute(dsn: str, statement: str) -> None:
    conn = await asyncpg.connect(dsn)
    try:
        await conn.execute(statement)
    finally:
        await conn.close()


def _started(dsn: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast.bench.floor_postgres"],
        env=os.environ | {DSN: dsn},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _heard(one: subprocess.Popen[str]) -> str:
    assert one.stdout is not None
    line = one.stdout.readline()
    if not line:
        raise HoldfastError(f"a process of the floor ended with code {one.wait()}")
    return line


def _told(one: subprocess.Popen[str]) -> None:
    assert one.stdin is not None
    one.stdin.close()


async def _drain(dsn: str) -> None:
    """One process: as fast as one connection can claim and settle."""
    conn = await asyncpg.connect(dsn)
    claim, settle = await conn.prepare(CLAIM), await conn.prepare(SETTLE)
    actor, done = ids.nonce(), 0
    _say("ready")
    sys.stdin.read()
    started = SYSTEM_CLOCK.monotonic()
    while rows := await claim.fetch(BATCH, actor):
        settled = await settle.fetch([row[0] for row in rows], [row[1] for row in rows], [None] * len(rows), actor)
        done += len(settled)
    _say(f"{SYSTEM_CLOCK.monotonic() - started} {done}")
    await conn.close()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Submits:
    """Bare inserts on a held connection."""

    def __init__(self, conn: Any) -> None:
        self._conn = conn

    async def many(self, count: int) -> None:
        for first in range(0, count, SUBMIT_BATCH):
            size = min(SUBMIT_BATCH, count - first)
            payloads = [f'{{"args":[{number}],"kwargs":{{}}}}' for number in range(size)]
            await self._conn.execute(SUBMIT, ids.task_ids(size), payloads)

    async def one_by_one(self, count: int) -> None:
        for number in range(count):
            await self._conn.execute(SUBMIT_ONE, ids.task_id(), f'{{"args":[{number}],"kwargs":{{}}}}')


@asynccontextmanager
async def submits(dsn: str) -> AsyncIterator[Submits]:
    await _execute(dsn, DROP)
    await _execute(dsn, SCHEMA)
    conn = await asyncpg.connect(dsn)
    try:
        yield Submits(conn)
    finally:
        await conn.close()
        await _execute(dsn, DROP)


def _main() -> None:
    from holdfast.runtime import own_process

    with asyncio.Runner(loop_factory=own_process.loop_factory()) as runner:
        runner.run(_drain(os.environ[DSN]))


if __name__ == "__main__":
    _main()
