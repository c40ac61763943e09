"""Procrastinate on PostgreSQL: psycopg, 15 tasks at once in each process."""

from __future__ import annotations

import asyncio

import procrastinate

from bench.rivals import roles

CONCURRENCY = 15
FILL = 5_000

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=roles.URL, min_size=1, max_size=20))


@app.task(queue="bench", name="noop")
async def noop(number: int) -> None:  # noqa: ARG001
    roles.count()


def setup() -> None:
    installer = procrastinate.App(connector=procrastinate.SyncPsycopgConnector(conninfo=roles.URL))
    with installer.open():
        installer.schema_manager.apply_schema()


async def fill(tasks: int) -> None:
    async with app.open_async():
        for first in range(0, tasks, FILL):
            await noop.batch_defer_async(*({"number": i} for i in range(first, min(first + FILL, tasks))))


async def work() -> None:
    async with app.open_async():
        await app.run_worker_async(queues=["bench"], concurrency=CONCURRENCY, install_signal_handlers=False)


if __name__ == "__main__":
    roles.play(setup=setup, fill=lambda tasks: asyncio.run(fill(tasks)), work=lambda: asyncio.run(work()))
