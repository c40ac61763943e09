"""A bit flips in a file of a NATS server, while it is stopped: of what was acknowledged nothing is lost in silence.

With three copies all is shown and done as before, whichever server is asked, and also where the damaged one leads. With
one, a message that cannot be read is named; one that the server has thrown away, with all behind it, is told to those
who knew of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.task import Task
from holdfast.model.transition import Settled
from holdfast.stores.nats.store import NatsStore
from tests.faults.checks import check_whole
from tests.faults.nats_support import opened, place
from tests.faults.test_nats_feed import stream
from tests.jetstream_admin import Ask, asked
from tests.jetstream_node import Node
from tests.jetstream_servers import Servers, fresh_cluster, fresh_prefix, fresh_single
from tests.runtime.support import wait_until
from tests.stores.nats_support import completed, counts, found, ledger_of, submitted
from tests.stores.postgres_support import request

T = TypeVar("T")

TRIES = 20
"""Each may lead to another server."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Servers]:
    with fresh_cluster() as servers:
        yield servers


def flip(node: Node, name: str, subject: str) -> None:
    """A bit of the last message under this subject, behind its headers."""
    flipped = 0
    for block in node.folder.glob(f"jetstream/*/streams/{name}/msgs/*.blk"):
        data = bytearray(block.read_bytes())
        at = data.rfind(subject.encode())
        if at >= 0:
            data[data.index(b"\r\n\r\n", at) + 10] ^= 1
            block.write_bytes(bytes(data))
            flipped += 1
    assert flipped == 1


async def again(verb: Callable[[], Awaitable[T]]) -> T:
    """As callers do who are told that the store is not available."""
    for _ in range(TRIES):
        try:
            return await verb()
        except StoreUnavailable as error:
            why = error
    raise why


async def shown(store: NatsStore, task_ids: list[str]) -> list[Task | None]:
    return [await again(lambda: store.get(task_id)) for task_id in task_ids]  # noqa: B023


async def lead(servers: Servers, node: Node, url: str) -> None:
    """From now on it leads the stream of this store."""
    name = stream(url)

    async def step_down(ask: Ask) -> None:
        await ask(f"STREAM.LEADER.STEPDOWN.{name}", placement={"preferred": node.name})

    def leads() -> bool:
        if servers.leader_of(name) is not node:
            asked(url, step_down)
        return node.leads(name)

    await asyncio.to_thread(wait_until, leads, "the damaged node to lead", seconds=60)


async def survive(servers: Servers, part: str, *, kill: bool, leads: bool) -> None:
    with place(lambda: servers) as url:  # removed, or the damaged server would never be well again
        await survive_at(url, servers, part, kill=kill, leads=leads)


async def survive_at(url: str, servers: Servers, part: str, *, kill: bool, leads: bool) -> None:
    async with opened(url, timeout=2.0) as known:
        done, queued = await completed(known, 3), await submitted(known, 3)
        subjects, name = ledger_of(known).subjects, stream(url)
        before, counted = await shown(known, done + queued), await counts(known)
        leader = servers.leader_of(name)
        node = next(one for one in servers.nodes if one is not leader)
        node.kill() if kill else node.end()
        damaged = {
            "spec": subjects.spec(queued[1]),
            "live": subjects.live("default", queued[1]),
            "end": subjects.end("completed", "default", done[1]),
            "event": subjects.event(done[1], 2),
            "queue": subjects.queue("default"),
        }[part]
        flip(node, name, damaged)
        await asyncio.to_thread(servers.start)
        if leads:
            await lead(servers, node, url)
        for one in servers.nodes:
            others = [other.address for other in servers.nodes if other is not one]
            there = f"nats://{','.join([one.address, *others])}/{url.rpartition('/')[2]}"
            async with opened(there, timeout=2.0) as fresh:
                assert await shown(fresh, done + queued) == before
                assert await again(lambda: counts(fresh)) == counted
        assert await shown(known, done + queued) == before
        async with opened(url, timeout=2.0) as worker:
            asked_for = request(limit=10)
            claims = (await again(lambda: worker.claim(asked_for))).claims
            assert sorted(claim.task_id for claim in claims) == sorted(queued)
            await again(lambda: worker.settle([Settlement(claim.lease, Completed()) for claim in claims]))
            await again(lambda: check_whole(worker, done + queued))


def test_a_damaged_copy_of_a_live_task_hides_it_from_nobody(cluster: Servers) -> None:
    asyncio.run(survive(cluster, "live", kill=False, leads=True))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("leads", [False, True], ids=["follows", "leads"])
@pytest.mark.parametrize("kill", [False, True], ids=["ended", "killed"])
@pytest.mark.parametrize("part", ["spec", "live", "end", "event", "queue"])
def test_a_damaged_copy_changes_nothing_that_is_shown_or_done(
    cluster: Servers, part: str, kill: bool, leads: bool
) -> None:
    asyncio.run(survive(cluster, part, kill=kill, leads=leads))


# One copy


def test_a_single_server_whose_copy_is_damaged_says_what_cannot_be_read() -> None:
    """Nothing else is lost, and all else goes on. What belongs to it is not taken for left over."""

    async def use(server: Servers) -> None:
        (node,), url = server.nodes, server.url(fresh_prefix())
        async with opened(url, timeout=1.0) as store:
            (lost, *rest), done = await submitted(store, 3), await completed(store, 2)
            subject = ledger_of(store).subjects.live("default", lost)
            before = await shown(store, rest + done)
            node.end()
            flip(node, stream(url), subject)
            await asyncio.to_thread(server.start)
            async with opened(url, timeout=1.0) as fresh:
                words = f"the message under {subject} is damaged .* restore a backup"
                for verb in (lambda: fresh.get(lost), lambda: fresh.claim(request(task_id=lost)), fresh.repair):
                    with pytest.raises(StoreUnavailable, match=words):
                        await verb()
                (says,) = [one for one in await fresh.check() if one[0] == "messages"]
                assert says[1] is False
                assert subject in says[2]
                assert await shown(fresh, rest + done) == before
                claims = (await fresh.claim(request(limit=10))).claims
                assert sorted(claim.task_id for claim in claims) == sorted(rest)
                assert all(
                    isinstance(one, Settled)
                    for one in await fresh.settle([Settlement(claim.lease, Completed()) for claim in claims])
                )
                assert (await counts(fresh))["default"] == {"completed": 4}
                assert await found(fresh, ledger_of(fresh).subjects.spec(lost)), "what belongs to it is kept"

    with fresh_single() as server:
        asyncio.run(use(server))


def test_a_server_that_has_thrown_away_what_it_acknowledged_is_found_out() -> None:
    """Killed, it reads its files anew when it starts, and ends before the first message that is damaged."""

    async def use(server: Servers) -> None:
        (node,), url = server.nodes, server.url(fresh_prefix())
        async with opened(url) as store:
            kept = await completed(store, 2)
            lost = await submitted(store, 3)
            subject = ledger_of(store).subjects.spec(lost[0])
            await store.reap(limit=1, actor="nobody")
            node.kill()
            flip(node, stream(url), subject)
            await asyncio.to_thread(server.start)
            with pytest.raises(StoreUnavailable, match=r"ended with message \d+ and now ends with \d+: .* lost"):
                await claims_of(store)
            assert await claims_of(store) == []
            await check_whole(store, kept)
            (new,) = await submitted(store)
            assert await claims_of(store) == [new]

    with fresh_single() as server:
        asyncio.run(use(server))


async def claims_of(store: NatsStore) -> list[str]:
    return [claim.task_id for claim in (await store.claim(request(limit=10))).claims]
