"""A handle's connections: given up together when the primary moved, watched by the kernel, never shared by a fork."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
from collections.abc import Iterator
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StoreUnavailable
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.conformance.subject import worker_info
from tests import postgres_server
from tests.postgres_cluster import Node, fresh_node
from tests.runtime.support import wait_until
from tests.stores.postgres_support import new_task, opened, request


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with fresh_node() as made:
        yield made


def connections(store: PostgresStore) -> list[Any]:
    pool = store._opened
    return [seat._conn for seat in (pool.writer, pool.claimer, pool.reader, pool.keeper)]


async def use_all(store: PostgresStore) -> None:
    await store.submit([new_task()])
    await store.claim(request())
    await store.now()
    await store.enroll(worker_info("worker-1"))


async def submit_until_refused(store: PostgresStore) -> None:
    """A session learns of a change of settings a moment later."""
    while True:
        await store.submit([new_task()])


def test_when_the_primary_moved_every_connection_of_every_handle_is_given_up(node: Node) -> None:
    """Only one of them has to meet it: the others' connections go on answering, with what was true once."""

    async def use() -> None:
        options = parsed(node.url, {})
        store, other = PostgresStore(options, SYSTEM_CLOCK), PostgresStore(options, SYSTEM_CLOCK)
        await use_all(store)
        await other.now()
        before = [*connections(store), other._opened.reader._conn]
        node.set("default_transaction_read_only", "on")
        wait_until(lambda: node.ask("show default_transaction_read_only") == "on")
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            await submit_until_refused(store)
        for call in (store.now, other.now):
            with pytest.raises(StoreUnavailable, match="takes no writes"):
                await call()
        assert store._evidence.lost() == ["worker-1"], "its lock is worth nothing there"
        node.set("default_transaction_read_only", "off")
        wait_until(lambda: node.ask("show default_transaction_read_only") == "off")
        await use_all(store)
        await other.now()
        after = [*connections(store), other._opened.reader._conn]
        assert not set(map(id, before)) & set(map(id, after))
        assert all(conn.is_closed() for conn in before)
        assert store._evidence.lost() == []
        await store.close()
        await other.close()

    asyncio.run(use())


def test_reads_cannot_write() -> None:
    async def use() -> None:
        async with opened() as store:
            await store.now()
            with pytest.raises(asyncpg.ReadOnlySQLTransactionError):
                await store._opened.reader._conn.execute("create table mine ()")  # type: ignore[union-attr]

    asyncio.run(use())


def test_the_kernel_watches_every_connection() -> None:
    """A peer that is gone without a word is noticed within about ten seconds."""

    async def use() -> None:
        async with opened() as store:
            await use_all(store)
            for conn in connections(store):
                wire = conn._transport.get_extra_info("socket")
                assert wire.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
                assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 5
                assert wire.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 10_000

    asyncio.run(use())


# Forks


def fresh_app() -> Holdfast:
    return Holdfast(postgres_server.server().url, schema=postgres_server.fresh_schema())


def enqueue_some(app: Holdfast) -> None:
    for _ in range(3):
        app.enqueue("work")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_parent_and_child_of_a_multiprocessing_fork_both_go_on() -> None:
    with fresh_app() as app:
        enqueue_some(app)
        child = multiprocessing.get_context("fork").Process(target=enqueue_some, args=(app,))
        child.start()
        enqueue_some(app)
        child.join(30)
        assert child.exitcode == 0
        enqueue_some(app)
        assert app.tasks.count()["queued"] == 12


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_parent_and_child_of_a_fork_inside_an_event_loop_both_go_on() -> None:
    """The child leaves its parent's loop and starts one of its own, with the same app."""

    async def use(app: Holdfast) -> None:
        await app.aenqueue("work")
        child = os.fork()
        if child == 0:
            _in_the_child(app)
        await app.aenqueue("work")
        _, status = await asyncio.to_thread(os.waitpid, child, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        await app.aenqueue("work")
        assert (await app.tasks.acount())["queued"] == 4

    with fresh_app() as app:
        asyncio.run(use(app))


def _in_the_child(app: Holdfast) -> None:
    try:
        asyncio._set_running_loop(None)  # of the parent
        asyncio.run(_once(app))
    except BaseException:
        os._exit(1)
    os._exit(0)


async def _once(app: Holdfast) -> None:
    await app.aenqueue("work")
    await app.aclose()
