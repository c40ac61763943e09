"""A process that uses a NATS store, loses its connection, and leaves: `python -X dev -m tests.faults.nats_leaver URL`.

With an argument more it leaves while the server cannot be reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import sys

from holdfast.errors import StoreUnavailable
from holdfast.model.outcome import Completed, Settlement
from tests.faults.nats_support import opened
from tests.nats_link import NatsProxy
from tests.stores.postgres_support import new_task, request


async def use(proxy: NatsProxy, *, away: bool) -> None:
    async with opened(proxy.url, timeout=1.0) as store, opened(proxy.url, timeout=1.0) as unused:
        assert unused.label
        await store.submit([new_task(), new_task()])
        (claim,) = (await store.claim(request())).claims
        await store.ended([claim.task_id], limit=1)
        for cut in ("before", "after"):
            proxy.arm(cut)
            with contextlib.suppress(StoreUnavailable):
                await store.extend([claim.lease])
        await store.settle([Settlement(claim.lease, Completed())])
        if away:
            proxy.shut()
            with contextlib.suppress(StoreUnavailable):
                await store.submit([new_task()])


if __name__ == "__main__":
    with NatsProxy(sys.argv[1]) as proxy:
        asyncio.run(use(proxy, away=len(sys.argv) > 2))
    gc.collect()
