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
from holdfast.model.claim import Extended
from holdfast.model.transition import Amended, Change
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.own_transaction import HandlerPool
from holdfast.stores.postgres.primary import primary
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.postgres.workers import Enrolled
from holdfast.testing.conformance.subject import worker_info
from tests import postgres_server
from tests.postgres_cluster import Node, fresh_node
from tests.runtime.support import wait_until
from tests.stores.postgres_support import new_task, opened, request, somebody_else

DEADLOCKS = "select deadlocks from pg_stat_database where datname = current_database()"


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


def test_transactions_of_handlers_leave_a_demoted_primary_too(node: Node) -> None:
    async def use() -> None:
        options = parsed(f"postgresql://postgres@127.0.0.1:1,{node.address}/postgres", {})
        pool = HandlerPool(options)
        first = await session_of(pool)
        assert await session_of(pool) == first
        primary(options.hosts).left(primary(options.hosts).moves)
        assert await session_of(pool) != first
        await pool.close()

    async def session_of(pool: HandlerPool) -> int:
        conn = await pool.acquire()
        try:
            return int(await conn.fetchval("select pg_backend_pid()"))
        finally:
            await pool.release(conn)

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


def test_a_deadlock_with_others_is_tried_again() -> None:
    """1. Somebody locks the second task. 2. We have the first and wait for the second. 3. He wants the first.

    4. Our session notices first, and gives way; he goes on; we do it again.
    """

    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            tasks = sorted([new_task(), new_task()], key=lambda new: new.id)
            await store.submit(tasks)
            before = await other.fetchval(DEADLOCKS)
            await other.execute("set deadlock_timeout = '60s'")
            async with other.transaction():
                await other.execute("select from tasks where id = $1 for update", tasks[1].id)
                canceling = asyncio.create_task(store.amend(Change.CANCEL, [new.id for new in tasks], actor="me"))
                while not await other.fetchval("select count(*) from pg_locks where not granted"):
                    assert not canceling.done()
                await other.execute("select from tasks where id = $1 for update", tasks[0].id)
            assert [type(told) for told in await canceling] == [Amended, Amended]
            while await other.fetchval(DEADLOCKS) == before:
                await other.execute("select pg_stat_force_next_flush()")

    asyncio.run(use())


def test_a_worker_that_enrolls_again_after_its_session_was_lost_keeps_its_leases() -> None:
    """1. A worker has a task. 2. The session that shows that it lives is ended. 3. It enrolls, as it does now and then,

    before anybody noticed: under another lock, but it is no successor of a dead one.
    """

    async def use() -> None:
        async with opened() as store:
            await store.enroll(worker_info("worker-1"))
            await store.submit([new_task()])
            (claim,) = (await store.claim(request(worker_id="worker-1"))).claims
            await postgres_server.end_sessions([store._opened.keeper._conn])
            await store.enroll(worker_info("worker-1"))
            (told,) = await store.extend([claim.lease])
            assert isinstance(told, Extended)
            assert store._evidence.lost() == []

    asyncio.run(use())


def test_workers_have_more_time_to_come_back_after_an_outage() -> None:
    async def use() -> None:
        async with opened(evict_grace=100) as store:
            await store.submit([new_task()])
            gone, now = Enrolled("worker-1", 1), SYSTEM_CLOCK.monotonic()
            store._missed = {gone: now - 101}
            store._opened.writer.back_at = now - 150
            assert store._overdue([gone]) == []
            store._opened.writer.back_at = now - 201
            assert store._overdue([gone]) == [gone]

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


def test_a_repair_that_others_hold_up_is_made_up_for() -> None:
    """1. A lease ran out before the server started. 2. Its row is locked when a handle comes to repair that. 3. It is

    free: the handle repairs first, and only then settles.
    """

    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            await store.submit([new_task()])
            (claim,) = (await store.claim(request())).claims
            await other.execute("update events set at = pg_postmaster_start_time() - interval '1 hour'")
            await other.execute("update tasks set lease_expires_at = pg_postmaster_start_time() - interval '1 minute'")
            async with opened(store._options.schema, statement_timeout=0.2) as back:
                async with other.transaction():
                    await other.execute("select from tasks for update")
                    with pytest.raises(StoreUnavailable):
                        await back.extend([claim.lease])
                (told,) = await back.extend([claim.lease])
                assert isinstance(told, Extended)

    asyncio.run(use())
