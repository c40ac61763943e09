"""Handles on a fresh NATS store, short lives of tasks, and what tests write into its stream by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from holdfast import ids
from holdfast.model.claim import Claim, ClaimRequest
from holdfast.model.outcome import Completed, Outcome, Settlement
from holdfast.model.task import NewTask
from holdfast.stores.nats.ledger import Ledger
from holdfast.stores.nats.options import parsed
from holdfast.stores.nats.reader import Found
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.nats.wire import Message
from tests import jetstream_servers
from tests.jetstream_servers import Endpoint

UNTIL_SECONDS = 20.0
COMPLETED = Completed("null")


class Place:
    """A store of a test, with as many handles as it opens: each has a connection and a replica of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._opened: list[NatsStore] = []

    def open(self, **options: Any) -> NatsStore:
        self._opened.append(NatsStore(parsed(self.url, options)))
        return self._opened[-1]

    async def close(self) -> None:
        for store in self._opened:
            await store.close()


@asynccontextmanager
async def place(servers: Callable[[], Endpoint] = jetstream_servers.single) -> AsyncIterator[Place]:
    made = Place(servers().url(jetstream_servers.fresh_prefix()))
    try:
        yield made
    finally:
        await made.close()
        await asyncio.to_thread(jetstream_servers.remove, made.url)


def in_place(
    work: Callable[[Place], Awaitable[None]], servers: Callable[[], Endpoint] = jetstream_servers.single
) -> None:
    async def whole() -> None:
        async with place(servers) as made:
            await work(made)

    asyncio.run(whole())


def ledger_of(store: NatsStore) -> Ledger:
    return store._ledger


async def submitted(store: NatsStore, count: int = 1, **given: Any) -> list[str]:
    tasks = [NewTask(id=task_id, name="t", payload="{}", **given) for task_id in ids.task_ids(count)]
    await store.submit(tasks)
    return [new.id for new in tasks]


async def completed(store: NatsStore, count: int = 1, **given: Any) -> list[str]:
    """New tasks, submitted, claimed and ended."""
    made = await submitted(store, count, **given)
    await end(store, made)
    return made


async def end(store: NatsStore, task_ids: Sequence[str]) -> None:
    for task_id in task_ids:
        claimed = await store.claim(ClaimRequest(worker_id="w", claim_id=ids.token(), task_id=task_id))
        (answer,) = await store.settle([Settlement(claimed.claims[0].lease, Completed("null"))])
        assert not isinstance(answer, Exception), answer


async def claimed(store: NatsStore, count: int, **given: Any) -> list[Claim]:
    """So many at once."""
    request = ClaimRequest(worker_id="w", claim_id=ids.token(), limit=count, **given)
    claims = (await store.claim(request)).claims
    assert len(claims) == count
    return claims


async def settled(store: NatsStore, claims: Sequence[Claim], outcome: Outcome = COMPLETED, **given: Any) -> None:
    """All of them at once, and alike."""
    for answer in await store.settle([Settlement(claim.lease, outcome, **given) for claim in claims]):
        assert not isinstance(answer, Exception), answer


async def counts(store: NatsStore) -> dict[str, dict[str, int]]:
    return {queue.name: queue.counts for queue in await store.queues()}


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(UNTIL_SECONDS):
        while not await holds():  # noqa: ASYNC110  nobody here can tell when a server has done it
            await asyncio.sleep(0.02)


async def put(store: NatsStore, subject: str, body: bytes, *, ttl: str | None = None) -> int:
    """Whatever stands there."""
    return await ledger_of(store).wire.write([Message(subject, body, None, ttl)])


async def found(store: NatsStore, pattern: str) -> dict[str, Found]:
    """What is there and not empty."""
    every = [one async for one in ledger_of(store).reader.every(pattern)]
    return {one.subject: one for one in every if one.body}
