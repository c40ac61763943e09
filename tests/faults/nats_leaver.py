"""A process that uses a NATS store, whatever happens to its connection, and leaves: `nats_leaver URL`."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys

from holdfast.errors import StoreUnavailable
from tests.faults.nats_support import opened
from tests.stores.postgres_support import new_task, request

CALLS = 10


async def use(url: str) -> None:
    async with opened(url, timeout=2.0) as store:
        for _ in range(CALLS):
            with contextlib.suppress(StoreUnavailable):
                await store.submit([new_task(), new_task()])
                (claim,) = (await store.claim(request())).claims
                await store.ended([claim.task_id], limit=1)


if __name__ == "__main__":
    asyncio.run(use(sys.argv[1]))
    gc.collect()
