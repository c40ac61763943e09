"""Tells rows one call each, several at once, for sinks that take no batches."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from holdfast.model.outbox import OutboxRow
from holdfast.sinks.protocol import Answer, unreached

BEGIN_SECONDS = 20.0
"""Rows whose turn has not come by then are left for the next round, so that no hold runs out under way."""


async def each(
    rows: Sequence[OutboxRow], tell: Callable[[OutboxRow], Awaitable[Answer]], *, at_once: int
) -> list[Answer]:
    loop = asyncio.get_running_loop()
    begins_before = loop.time() + BEGIN_SECONDS
    places = asyncio.Semaphore(at_once)

    async def one(row: OutboxRow) -> Answer:
        async with places:
            if loop.time() > begins_before:
                return unreached("its turn did not come in time")
            return await tell(row)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(row)) for row in rows]
    return [task.result() for task in tasks]
