"""awa on PostgreSQL: a core in Rust, handlers in Python, 1,024 at once."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import awa

from bench.rivals import roles

CONCURRENCY = 1024
FILL = 5_000
SWITCH_SECONDS = 1.5


@dataclass
class Noop:
    number: int


async def setup() -> None:
    client = awa.AsyncClient(roles.URL)
    await client.migrate()

    # A fresh database takes up the engine for queues only once a worker has run on it.
    @client.task(Noop, queue="first")
    async def handle(_job: Any) -> None: ...

    await client.start([("first", 1)])
    await client.insert(Noop(0), queue="first")
    await asyncio.sleep(SWITCH_SECONDS)
    await client.shutdown()


async def fill(tasks: int) -> None:
    client = awa.AsyncClient(roles.URL)
    for first in range(0, tasks, FILL):
        await client.enqueue_many_copy([Noop(i) for i in range(first, min(first + FILL, tasks))], queue="bench")


async def work() -> None:
    client = awa.AsyncClient(roles.URL)

    @client.task(Noop, queue="bench")
    async def handle(_job: Any) -> None:
        roles.count()

    await client.start([("bench", CONCURRENCY)])
    await asyncio.Event().wait()


if __name__ == "__main__":
    roles.play(
        setup=lambda: asyncio.run(setup()),
        fill=lambda tasks: asyncio.run(fill(tasks)),
        work=lambda: asyncio.run(work()),
    )
