"""What the fault tests of the NATS store share: fresh places in the shared servers, and handles on them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.stores.nats.options import parsed
from holdfast.stores.nats.store import NatsStore
from holdfast.testing.virtual_clock import VirtualClock
from tests import jetstream_servers
from tests.faults.test_cuts_verbs import Scene
from tests.jetstream_servers import Endpoint
from tests.nats_link import NatsProxy
from tests.runtime.support import wait_until


def handle(url: str, clock: Clock = SYSTEM_CLOCK, **options: Any) -> NatsStore:
    return NatsStore(parsed(url, options), clock)


@contextmanager
def place(servers: Callable[[], Endpoint] = jetstream_servers.single) -> Iterator[str]:
    """The URL of one that nobody has used; what is made there is removed."""
    url = servers().url(jetstream_servers.fresh_prefix())
    try:
        yield url
    finally:
        jetstream_servers.remove(url)


@asynccontextmanager
async def opened(url: str, clock: Clock = SYSTEM_CLOCK, **options: Any) -> AsyncIterator[NatsStore]:
    store = handle(url, clock, **options)
    try:
        yield store
    finally:
        await store.close()


async def until(condition: Callable[[], object], what: str) -> None:
    """In an event loop, which goes on meanwhile."""
    await asyncio.to_thread(wait_until, condition, what)


@asynccontextmanager
async def staged(servers: Callable[[], Endpoint] = jetstream_servers.single) -> AsyncIterator[Scene]:
    """Both handles follow the stream already: the next write is the one to be cut."""
    clock = VirtualClock()
    with place(servers) as url, NatsProxy(url) as proxy:
        async with opened(proxy.url, clock) as store, opened(url, clock) as direct:
            await store.reap(limit=1, actor="nobody")
            await direct.reap(limit=1, actor="nobody")
            yield Scene(proxy, store, direct, clock)
