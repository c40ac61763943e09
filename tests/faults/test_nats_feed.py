"""What a replica follows is taken away from it: its consumer, a message, the stream itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from holdfast.events.facts import StoreAway
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.transition import Change, Settled
from holdfast.stores.nats import feed
from holdfast.stores.nats.options import parsed
from holdfast.stores.nats.store import NatsStore
from tests import jetstream_servers
from tests.faults.load import declare
from tests.faults.nats_support import opened, place, until
from tests.jetstream_admin import Ask, asked
from tests.nats_link import NatsProxy
from tests.runtime.support import Crew, ended, wait_until
from tests.stores.postgres_support import new_task, request


def stream(url: str) -> str:
    return parsed(url, {}).stream


def delete_consumers(url: str) -> int:
    """Of the store's stream; how many."""

    async def work(ask: Ask) -> int:
        names = (await ask(f"CONSUMER.NAMES.{stream(url)}"))["consumers"] or []
        for name in names:
            await ask(f"CONSUMER.DELETE.{stream(url)}.{name}")
        return len(names)

    return asked(url, work)


def delete_stream(url: str) -> None:
    async def work(ask: Ask) -> None:
        await ask(f"STREAM.DELETE.{stream(url)}")

    asked(url, work)


@pytest.mark.soak
@pytest.mark.parametrize("servers", [jetstream_servers.single, jetstream_servers.cluster], ids=["single", "cluster"])
def test_a_worker_whose_consumer_is_deleted_follows_again(servers: Any) -> None:
    """It is told of nothing any more, and finds out by itself; it polls for nothing meanwhile."""
    with place(servers) as url, Holdfast(url) as app, Holdfast(url) as other:
        declare(app)
        with Crew(app, poll_interval=600) as crew:
            assert ended(other.enqueue("plain")).status == "completed"
            for _ in range(2):
                assert delete_consumers(url) > 0
                assert ended(other.enqueue("plain")).status == "completed"
            assert crew.of(StoreAway) == []
    assert crew.raised is None


def test_a_delivery_that_is_lost_is_delivered_again() -> None:
    """One in the middle, and the last of all, after which nothing comes that would show the gap."""

    async def use(url: str, proxy: NatsProxy) -> None:
        async with opened(proxy.url) as store, opened(url) as other:
            await store.reap(limit=1, actor="nobody")
            for lost_one in (0, 1, 2):
                lost: list[bytes] = []
                passed = 0

                def swallow(line: bytes, lost_one: int = lost_one, lost: list[bytes] = lost) -> bool:
                    nonlocal passed
                    if b".r.bulletin." not in line or b"$JS.ACK." not in line or lost:
                        return False
                    passed += 1
                    if passed > lost_one:
                        lost.append(line)
                    return bool(lost)

                proxy.swallows = swallow
                tasks = [new_task() for _ in range(3)]
                for new in tasks:
                    await other.submit([new])
                replica = store._ledger.replica.records
                # Nobody asks: the feed itself finds out.
                await until(lambda: all(new.id in replica for new in tasks), "all to be seen")  # noqa: B023
                assert lost

    with place() as url, NatsProxy(url) as proxy:
        asyncio.run(use(url, proxy))


def test_a_change_in_flight_while_everything_is_read_anew_leaves_no_ghost() -> None:
    """1. A claim is sent and lost. 2. Meanwhile the replica is read anew, and then the task canceled.

    3. The claim fails. What it had planned on must not come back.
    """

    async def use(url: str, proxy: NatsProxy) -> None:
        async with opened(proxy.url, timeout=1.0) as store, opened(url) as other:
            new = new_task()
            await other.submit([new])
            await store.reap(limit=1, actor="nobody")
            proxy.stays = True
            proxy.arm("before")
            claiming = asyncio.ensure_future(store.claim(request()))
            await until(lambda: proxy.total, "the claim to be lost")
            records = store._ledger.replica.records
            store._ledger.following.feed.forget()
            await until(lambda: records is not store._ledger.replica.records, "it to begin")
            await until(lambda: new.id in store._ledger.replica.records, "the task to be read anew")
            await other.amend(Change.CANCEL, [new.id], actor="operator")
            await until(lambda: new.id not in store._ledger.replica.records, "its end to be seen")
            with pytest.raises(StoreUnavailable):
                await claiming
            assert (await store.claim(request())).claims == []
            assert [dict(queue.counts) for queue in await store.queues()] == [{"canceled": 1}]

    with place() as url, NatsProxy(url) as proxy:
        asyncio.run(use(url, proxy))


def test_what_was_away_for_long_is_read_anew() -> None:
    """Marks of ended tasks are gone by then."""

    async def use(url: str, proxy: NatsProxy) -> None:
        async with opened(proxy.url) as store, opened(url) as other:
            await other.submit([new_task(id="a"), new_task(id="b", priority=-1)])
            await store.reap(limit=1, actor="nobody")
            proxy.shut()
            store._ledger.following.feed._heard -= 2 * feed.FORGET_SECONDS
            (claim,) = (await other.claim(request())).claims
            await other.settle([Settlement(claim.lease, Completed())])
            asked(url, lambda ask: ask(f"STREAM.PURGE.{stream(url)}", filter=f"{url.rpartition('/')[2]}.live.*.a"))
            proxy.open()
            (claim,) = (await store.claim(request(limit=10))).claims
            assert claim.task_id == "b"

    with place() as url, NatsProxy(url) as proxy:
        asyncio.run(use(url, proxy))


def test_a_process_that_was_stopped_for_long_reads_everything_anew() -> None:
    """The server goes on sending where it was, without the bulletins that are gone by then, and nothing shows a gap."""

    async def use(url: str) -> None:
        async with opened(url) as store, opened(url) as other:
            await store.reap(limit=1, actor="nobody")
            following = store._ledger.following
            await until(lambda: not following.feed.looks_first, "the first look to be over")
            looks = following._anews
            following.feed._came_at -= 2 * feed.FORGET_SECONDS
            await other.submit([new_task(id="a")])
            await until(lambda: following._anews == looks + 1, "another look at everything")
            (claim,) = (await store.claim(request())).claims
            assert claim.task_id == "a"

    with place() as url:
        asyncio.run(use(url))


# The stream itself


async def refused(store: NatsStore, words: str) -> None:
    with pytest.raises(StoreUnavailable, match=words):
        await store.claim(request())


def test_a_deleted_stream_is_not_made_anew_in_silence() -> None:
    """1. It is deleted: every verb says so, and so does `doctor`. 2. Somebody makes it anew: that is told once.

    3. Then work goes on, with what is there.
    """

    async def use(url: str) -> None:
        async with opened(url, timeout=1.0) as store:
            await store.submit([new_task(id="lost")])
            assert (await store.claim(request(limit=10, worker_id="first"))).claims
            delete_stream(url)
            await refused(store, "is gone: somebody has deleted it")
            with pytest.raises(StoreUnavailable, match="is gone: somebody has deleted it"):
                await store.submit([new_task()])
            with pytest.raises(StoreUnavailable, match="is gone: somebody has deleted it"):
                await store.get("lost")
            ((name, fine, says),) = await store.check()
            assert (name, fine) == ("stream", False)
            assert "holdfast migrate" in says
            async with opened(url) as other:
                await other.migrate()
                await other.submit([new_task(id="new")])
            await refused(store, "was deleted, and made anew or restored")
            (claim,) = (await store.claim(request(limit=10))).claims
            assert claim.task_id == "new"
            (told,) = await store.settle([Settlement(claim.lease, Completed())])
            assert isinstance(told, Settled)
            assert [dict(queue.counts) for queue in await store.queues()] == [{"completed": 1}]

    with place() as url:
        asyncio.run(use(url))


def enqueued(app: Holdfast) -> bool:
    """It may be this call that is told."""
    try:
        return ended(app.enqueue("plain")).status == "completed"
    except StoreUnavailable:
        return False


async def make_anew(url: str) -> None:
    async with opened(url) as store:
        await store.migrate()


def test_a_worker_whose_stream_is_made_anew_goes_on_and_says_so() -> None:
    with place() as url, Holdfast(url) as app:
        declare(app)
        with Crew(app) as crew:
            assert ended(app.enqueue("plain")).status == "completed"
            delete_stream(url)
            assert "is gone" in crew.wait_for(StoreAway).error
            asyncio.run(make_anew(url))
            wait_until(lambda: enqueued(app), "it to be told, and to go on")
    assert crew.raised is None
