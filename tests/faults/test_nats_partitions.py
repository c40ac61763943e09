"""A node of a NATS cluster is cut off from the other two, and clients still reach it. Real servers, real workers.

A leader that is cut off takes itself for the leader for a while, and the others have chosen another. What it says then
is old. A handle that can reach only this node must not hand it on; one that can reach others goes there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.model.claim import Claim, Extended
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.query import TaskFilter
from holdfast.model.task import NewTask
from holdfast.model.transition import Settled
from holdfast.stores.nats.options import parsed
from holdfast.stores.nats.store import NatsStore
from tests.faults.checks import check_whole
from tests.faults.load import submitted
from tests.faults.nats_support import opened, until
from tests.faults.test_nats_nodes import under_load
from tests.jetstream_node import Node
from tests.jetstream_servers import Servers, fresh_cluster, fresh_prefix
from tests.nats_routes import Cut, Routes
from tests.stores.postgres_support import new_task, request

KEY = "a key"
WAIT_SECONDS = 1.0
"""For an answer."""


class Apart:
    """A cluster whose nodes can be cut off from each other."""

    def __init__(self, servers: Servers, routes: Routes) -> None:
        self.servers = servers
        self._routes = routes

    @contextmanager
    def cut_off(self, node: Node, cut: Cut) -> Iterator[None]:
        self._routes.cut_off(self.servers.nodes.index(node), cut)
        try:
            yield
        finally:
            self._routes.heal()

    def sides(self, url: str) -> tuple[Node, str, str]:
        """The leader of this store, and URLs by which only it, or only the others, can be reached."""
        prefix = parsed(url, {}).prefix
        leader = self.servers.leader_of(parsed(url, {}).stream)
        others = ",".join(node.address for node in self.servers.nodes if node is not leader)
        return leader, f"nats://{leader.address}/{prefix}", f"nats://{others}/{prefix}"


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    with closing(Routes()) as routes, fresh_cluster(routes=routes) as servers:
        yield Apart(servers, routes)


def verbs(store: NatsStore, new: NewTask, claim: Claim) -> dict[str, Callable[[], Awaitable[object]]]:
    """All whose answer would be wrong on old knowledge, although most of them write nothing then."""
    end = Settlement(claim.lease, Completed("1"))
    return {
        "get": lambda: store.get(new.id),
        "find": lambda: store.find(KEY),
        "ended": lambda: store.ended([new.id], limit=1),
        "page": lambda: store.page(TaskFilter(limit=10)),
        "queues": store.queues,
        "events": lambda: store.events(new.id, after=0, limit=10),
        "all events": lambda: store.events(None, after=0, limit=100),
        "last event": store.last_event,
        "run": lambda: store.run(str(new.run_id)),
        "claim": lambda: store.claim(request()),
        "claim one": lambda: store.claim(request(task_id=new.id)),
        "extend": lambda: store.extend([claim.lease]),
        "settle": lambda: store.settle([end]),
        "reap": lambda: store.reap(limit=10, actor="stale"),
        "submit": lambda: store.submit([new]),
    }


async def said(verb: Callable[[], Awaitable[object]]) -> object:
    try:
        return await verb()
    except Exception as error:
        return error


async def check_silent(store: NatsStore, new: NewTask, claim: Claim) -> None:
    asked = verbs(store, new, claim)
    answers = await asyncio.gather(*map(said, asked.values()))
    wrong = {name: one for name, one in zip(asked, answers, strict=True) if not isinstance(one, StoreUnavailable)}
    assert not wrong


async def claimed(store: NatsStore, task_id: str) -> Claim:
    """As soon as there is a leader."""
    asked = request(task_id=task_id)
    while True:
        try:
            (claim,) = (await store.claim(asked)).claims
            return claim
        except StoreUnavailable:
            continue


async def mislead(apart: Apart, cut: Cut, *, long: bool) -> None:
    """1. The leader is cut off. 2. The others take a task, and give it to a worker. 3. The old leader is asked."""
    url = apart.servers.url(fresh_prefix())
    new, other = new_task(idempotency_key=KEY, run_id="a run"), new_task()
    async with opened(url) as first:
        await first.submit([other])
        leader, old_url, url_of_others = apart.sides(url)
        async with (
            opened(old_url, timeout=WAIT_SECONDS) as old,
            opened(url_of_others) as others,
            opened(old_url, timeout=WAIT_SECONDS) as idle,
        ):
            await old.reap(limit=1, actor="nobody")
            await others.reap(limit=1, actor="nobody")
            assert await idle.get(other.id) is not None, "one that follows nothing"
            with apart.cut_off(leader, cut):
                await submitted(others, [new])
                claim = await claimed(others, new.id)
                await check_silent(old, new, claim)
                await check_silent(idle, new, claim)
                if long:
                    stream = parsed(url, {}).stream
                    await until(lambda: not leader.leads(stream), "it to notice")
                    await check_silent(old, new, claim)
            await asyncio.to_thread(apart.servers.wait_until_healthy)
            for store in (old, idle):
                task = await store.get(new.id)
                assert task is not None
                assert (task.status, task.attempt) == ("running", 1), "what it was told meanwhile decided nothing"
                (extended,) = await store.extend([claim.lease])
                assert isinstance(extended, Extended)
            (last,) = (await old.claim(request(limit=10))).claims
            assert last.task_id == other.id
            for one in await old.settle([Settlement(held.lease, Completed("1")) for held in (claim, last)]):
                assert isinstance(one, Settled)
            await check_whole(old, [new.id, other.id])
            assert await first.repair(dry_run=True) == []


def test_a_leader_that_is_cut_off_is_not_believed(apart: Apart) -> None:
    asyncio.run(mislead(apart, "held", long=False))


@pytest.mark.soak
@pytest.mark.parametrize("cut", ["held", "broken"])
def test_a_node_that_was_a_leader_before_it_was_cut_off_is_not_believed(apart: Apart, cut: Cut) -> None:
    asyncio.run(mislead(apart, cut, long=True))


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cut", ["held", "broken"])
def test_work_goes_on_while_each_node_in_turn_is_cut_off(apart: Apart, tmp_path: Path, cut: Cut) -> None:
    """The leader first. Workers and producers who were connected to it go to the others by themselves."""
    with under_load(apart.servers, tmp_path) as load:
        leader = load.leader
        for node in sorted(apart.servers.nodes, key=lambda node: node is not leader):
            with apart.cut_off(node, cut):
                load.goes_on()
                load.goes_on()
            apart.servers.wait_until_healthy()
            load.goes_on()

    async def check() -> None:
        async with opened(load.url) as store:
            await check_whole(store, load.producer.acknowledged)
            assert await store.repair(dry_run=True) == []

    asyncio.run(check())
