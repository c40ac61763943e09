"""What was acknowledged is durable: where the server would not wait, where a standby is deaf, and on a full disk."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StoreUnavailable
from holdfast.model.outbox import Effect, NewSink
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.task import NewTask, Submitted
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from tests.faults.checks import check_whole
from tests.faults.test_failover import pair
from tests.postgres_cluster import Node, fresh_node
from tests.runtime.support import wait_until
from tests.stores.postgres_support import new_task, request


def handle(url: str, **options: float) -> PostgresStore:
    return PostgresStore(parsed(url, dict(options)), SYSTEM_CLOCK)


def test_a_server_that_is_not_durable_is_found_by_the_doctor() -> None:
    async def findings(node: Node) -> str:
        store = handle(node.url)
        (found,) = [words for question, well, words in await store.check() if question == "durable" and not well]
        await store.close()
        return found

    with fresh_node(fsync="off", full_page_writes="off") as node:
        assert asyncio.run(findings(node)).startswith("fsync and full_page_writes off")
        node.set("synchronous_commit", "off")
        assert asyncio.run(findings(node)).startswith("fsync and full_page_writes and synchronous_commit off")


@pytest.mark.parametrize(("given", "used"), [("off", "on"), ("remote_apply", "remote_apply"), ("local", "local")])
def test_writes_are_durable_whatever_a_role_was_given(given: str, used: str) -> None:
    async def use(node: Node) -> None:
        store = handle(node.url)
        await store.submit([new_task()])
        await store.claim(request())
        for seat in (store._opened.writer, store._opened.claimer):
            assert await seat.run(lambda session: session.conn.fetchval("show synchronous_commit")) == used
        await store.close()

    with fresh_node() as node:
        node.tell(f"alter role postgres set synchronous_commit = {given}")
        asyncio.run(use(node))


# A synchronous standby that does not answer


@contextmanager
def deaf_standby(primary: Node) -> Iterator[None]:
    """The process of the primary that sends to it stands still."""
    sender = primary.ask("select pid from pg_stat_replication")
    os.kill(sender, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(sender, signal.SIGCONT)


def test_what_no_standby_has_confirmed_is_not_acknowledged_by_a_repetition() -> None:
    """1. The standby is deaf: a submit waits. 2. Its session is ended: committed, on the primary alone. 3. The same

    again finds the task, which is no proof: it waits too. 4. The standby hears: now it is acknowledged.
    """
    waiting = "from pg_stat_activity where wait_event = 'SyncRep'"

    async def use(primary: Node) -> None:
        store = handle(primary.url)
        await store.submit([new_task()])
        new = new_task()
        with deaf_standby(primary):
            first = asyncio.create_task(store.submit([new]))
            await asyncio.to_thread(wait_until, lambda: primary.ask(f"select count(*) {waiting}"))
            primary.ask(f"select pg_terminate_backend(pid) {waiting}")
            with pytest.raises(StoreUnavailable):
                await first
            assert await store.get(new.id) is not None, "committed, as everybody can see"
            again = asyncio.create_task(store.submit([new]))
            await asyncio.to_thread(wait_until, lambda: again.done() or primary.ask(f"select count(*) {waiting}"))
            assert not again.done()
        assert await again == [Submitted(new.id, created=True)]
        await store.close()

    with pair() as (primary, _):
        asyncio.run(use(primary))


# A full disk


@contextmanager
def small_disk(node: Node) -> Iterator[Path]:
    """On which new tables are put."""
    folder = node.data.parent / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a small file system")
    try:
        owner = node.data.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)
        node.tell(f"create tablespace small location '{folder}'")
        node.tell("alter database postgres set default_tablespace = small")
        yield folder
    finally:
        node.stop("immediate")
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk_loses_nothing_and_costs_no_lease() -> None:
    """1. The disk is nearly full, a task is claimed. 2. It is full: submits are refused in words, the lease runs out.

    3. There is space: all goes on.
    """

    async def use(url: str, hog: Path, reserve: Path) -> None:
        store = handle(url)
        first = new_task()
        await store.submit([first])
        acknowledged = [first.id, *await submitted_until_full(store)]
        os.unlink(reserve)
        (claim,) = (await store.claim(request(lease_seconds=5.0))).claims
        acknowledged += await submitted_until_full(store)
        while await store.now() <= claim.lease_expires_at:
            with pytest.raises(StoreUnavailable, match="its disk is full; free some space"):
                await store.submit([large()])
        os.unlink(hog)
        (told,) = await store.settle([Settlement(claim.lease, Completed())])
        assert not isinstance(told, Exception), "nobody could have extended it"
        await check_whole(store, acknowledged)
        await store.close()

    with fresh_node() as node, small_disk(node) as folder:
        (folder / "hog").write_bytes(b"x" * (12 << 20))
        (folder / "reserve").write_bytes(b"x" * (2 << 20))
        asyncio.run(use(node.url, folder / "hog", folder / "reserve"))


def test_what_finds_no_space_in_the_outbox_is_not_acknowledged() -> None:
    """1. Only the outbox is on the small disk, which is filled to the last block. 2. Submits are acknowledged with
    their row while its last page has room, then refused as a whole. 3. There is space: all goes on.
    """

    async def telling(url: str) -> None:
        store = handle(url)
        await store.declare_sink(NewSink(name="hook", url="https://host", effect=Effect.ROUTE))
        await store.close()

    async def use(url: str, hog: Path) -> None:
        store = handle(url)
        acknowledged = await submitted_until_full(store, new_task)
        assert await told_of(store) == acknowledged
        refused = new_task()
        with pytest.raises(StoreUnavailable, match="its disk is full; free some space"):
            await store.submit([refused])
        assert await store.get(refused.id) is None
        os.unlink(hog)
        await store.submit([refused])
        assert await told_of(store) == [*acknowledged, refused.id]
        await check_whole(store, [*acknowledged, refused.id])
        await store.close()

    async def told_of(store: PostgresStore) -> list[str]:
        return [row.task_id for row in await store.outbox(sink="hook", state=None, limit=20_000, after=0)]

    with fresh_node() as node:
        asyncio.run(telling(node.url))
        with small_disk(node) as folder:
            node.tell("alter table holdfast.outbox set tablespace small")
            fill_to_the_last_block(folder / "hog")
            asyncio.run(use(node.url, folder / "hog"))


def fill_to_the_last_block(hog: Path) -> None:
    with hog.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"x" * 4096)


def large() -> NewTask:
    """Random enough that compressing it helps little."""
    return new_task(payload=f'"{os.urandom(200_000).hex()}"')


async def submitted_until_full(store: PostgresStore, made: Callable[[], NewTask] = large) -> list[str]:
    """What was acknowledged."""
    acknowledged: list[str] = []
    while True:
        new = made()
        try:
            await store.submit([new])
        except StoreUnavailable:
            return acknowledged
        acknowledged.append(new.id)
