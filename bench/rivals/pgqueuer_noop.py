"""PgQueuer on PostgreSQL: asyncpg, uvloop, batches of 500."""

from __future__ import annotations

import asyncio

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries

from bench.rivals import roles

BATCH = 500
FILL = 5_000


async def setup() -> None:
    await Queries(AsyncpgDriver(await asyncpg.connect(roles.URL))).install()


async def fill(tasks: int) -> None:
    conn = await asyncpg.connect(roles.URL)
    queries = Queries(AsyncpgDriver(conn))
    for first in range(0, tasks, FILL):
        size = min(FILL, tasks - first)
        await queries.enqueue(["noop"] * size, [b"%d" % (first + i) for i in range(size)], [0] * size)
    await conn.close()


async def work() -> None:
    queue = PgQueuer(AsyncpgDriver(await asyncpg.connect(roles.URL)))

    @queue.entrypoint("noop")
    async def noop(_job: Job) -> None:
        roles.count()

    await queue.run(batch_size=BATCH)


if __name__ == "__main__":
    roles.play(
        setup=lambda: asyncio.run(setup()),
        fill=lambda tasks: asyncio.run(fill(tasks)),
        work=lambda: uvloop.run(work()),
    )
