"""How many copies a store on NATS is made with: never fewer than was meant, without a word."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import SchemaMismatch, StoreUnavailable
from holdfast.stores.nats.options import parsed
from holdfast.stores.nats.store import NatsStore
from tests.jetstream_servers import fresh_cluster, fresh_single


async def copies(url: str) -> int:
    store = NatsStore(parsed(url, {}))
    try:
        await store.now()
        return int((await store._ledger.stream.info())["config"]["num_replicas"])
    finally:
        await store.close()


def test_a_single_server_keeps_one_copy() -> None:
    with fresh_single() as servers:
        assert asyncio.run(copies(servers.url("x"))) == 1
        with pytest.raises(SchemaMismatch, match="replicas=1"):
            asyncio.run(copies(servers.url("y") + "?replicas=3"))


@pytest.mark.soak
@pytest.mark.parametrize("killed", [1, 2])
def test_a_cluster_that_cannot_hold_three_copies_makes_no_store_with_less(killed: int) -> None:
    with fresh_cluster() as servers:
        for node in servers.nodes[-killed:]:
            node.kill()
        try:
            assert asyncio.run(copies(servers.url("x"))) == 3
        except StoreUnavailable:
            pass
        else:
            assert killed == 1, "a minority has made a store"
        for node in servers.nodes[-killed:]:
            node.start()
        servers.wait_until_healthy()
        assert asyncio.run(copies(servers.url("x"))) == 3
