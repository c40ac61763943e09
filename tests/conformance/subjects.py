"""The stores of this project as subjects of the suite. A new store adds an entry to FRESH and one to SUBJECTS."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

from holdfast.clock import Clock
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.nats.options import parsed as parsed_nats
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.postgres.options import parsed as parsed_postgres
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.protocol import StoreFactory
from holdfast.stores.sqlite.options import parsed
from holdfast.stores.sqlite.store import SQLiteStore
from holdfast.testing.conformance import Subject
from holdfast.testing.virtual_clock import VirtualClock
from tests import jetstream_servers, postgres_server
from tests.nats_link import NatsProxy

OpenFresh = Callable[[VirtualClock], tuple[StoreFactory, Callable[[], None]]]
"""Opens handles on a fresh store in that time; the second function removes the store once they are closed."""


class QuarterRng:
    """Jitter that is there but always the same, however often a store draws it."""

    def random(self) -> float:
        return 0.25


def fresh_memory(clock: VirtualClock) -> tuple[StoreFactory, Callable[[], None]]:
    state = MemoryState(clock)
    return lambda: MemoryStore(state, rng=QuarterRng()), lambda: None


def fresh_sqlite(clock: VirtualClock) -> tuple[StoreFactory, Callable[[], None]]:
    folder = tempfile.TemporaryDirectory(prefix="holdfast-")
    options = parsed(f"sqlite:///{folder.name}/tasks.db?synchronous=normal", {})
    return lambda: SQLiteStore(options, clock, rng=QuarterRng()), folder.cleanup


def fresh_postgres(clock: VirtualClock) -> tuple[StoreFactory, Callable[[], None]]:
    options = parsed_postgres(postgres_server.server().url, {"schema": postgres_server.fresh_schema()})
    return lambda: PostgresStore(options, clock, rng=QuarterRng()), lambda: None


def fresh_nats(clock: VirtualClock) -> tuple[StoreFactory, Callable[[], None]]:
    url = jetstream_servers.single().url(jetstream_servers.fresh_prefix())
    return lambda: NatsStore(parsed_nats(url, {}), clock, rng=QuarterRng()), lambda: jetstream_servers.remove(url)


FRESH: dict[str, OpenFresh] = {
    "memory": fresh_memory,
    "sqlite": fresh_sqlite,
    "postgres": fresh_postgres,
    "nats": fresh_nats,
}


def memory_subject(make_state: Callable[[Clock], MemoryState] = MemoryState) -> Subject:
    clock = VirtualClock()
    state = make_state(clock)

    @asynccontextmanager
    async def outage() -> AsyncIterator[None]:
        state.go_away()
        yield
        state.come_back()

    async def vanish(worker_id: str) -> None:
        """The evidence is the thread that enrolled the worker: here is one that has ended."""
        ended = threading.Thread(target=lambda: None)
        ended.start()
        ended.join()
        worker, started, seen, _ = state.workers[worker_id]
        state.workers[worker_id] = (worker, started, seen, ended)

    return Subject(lambda: MemoryStore(state), clock, outage=outage, vanish=vanish)


def sqlite_subject(*, one_engine: bool = False) -> Subject:
    clock = VirtualClock()
    folder = tempfile.TemporaryDirectory(prefix="holdfast-")
    path = f"{folder.name}/tasks.db"
    opened: list[SQLiteStore] = []

    def open_handle() -> SQLiteStore:
        """Handles with equal options share one engine; these do not, so that a race is one between connections."""
        patience = 60 if one_engine else 60 + len(opened) % 4
        opened.append(SQLiteStore(parsed(f"sqlite:///{path}", {"busy_timeout": patience}), clock))
        return opened[-1]

    @asynccontextmanager
    async def outage() -> AsyncIterator[None]:
        os.rename(path, f"{path}.away")
        yield
        os.rename(f"{path}.away", path)

    async def vanish(worker_id: str) -> None:
        """The evidence is a locked file, which the kernel unlocks with the process: here, by closing it."""
        held = opened[0]._engine.presence._held
        os.close(held.pop(worker_id)[1])

    return Subject(open_handle, clock, outage=outage, vanish=vanish, dispose=folder.cleanup)


def postgres_subject() -> Subject:
    clock = VirtualClock()
    schema = postgres_server.fresh_schema()
    server = postgres_server.server()
    folder = tempfile.TemporaryDirectory(prefix="holdfast-")
    url = server.url_through(Path(folder.name))
    opened: list[PostgresStore] = []

    def open_handle() -> PostgresStore:
        opened.append(PostgresStore(parsed_postgres(url, {"schema": schema, "evict_grace": 0}), clock))
        return opened[-1]

    @asynccontextmanager
    async def outage() -> AsyncIterator[None]:
        """Nobody can connect, and whoever was connected is thrown out."""
        server.unlink(Path(folder.name))
        pool = opened[0]._opened
        seats = (pool.writer, pool.reader, pool.keeper)
        await postgres_server.end_sessions([seat._conn for seat in seats if seat._conn is not None])
        yield
        server.link(Path(folder.name))

    async def vanish(worker_id: str) -> None:
        """The evidence is a lock of the handle's session, which the server drops with it."""
        await postgres_server.end_sessions([opened[0]._evidence._held.pop(worker_id).conn])

    hides = server.socket_folder is not None
    return Subject(open_handle, clock, outage=outage if hides else None, vanish=vanish, dispose=folder.cleanup)


def nats_subject(servers: Callable[[], jetstream_servers.Endpoint] = jetstream_servers.single) -> Subject:
    clock = VirtualClock()
    url = servers().url(jetstream_servers.fresh_prefix())
    closing = ExitStack()
    closing.callback(jetstream_servers.remove, url)
    proxy = closing.enter_context(NatsProxy(url))
    options = parsed_nats(proxy.url, {"evict_grace": 0})
    opened: list[NatsStore] = []

    def open_handle() -> NatsStore:
        opened.append(NatsStore(options, clock))
        return opened[-1]

    async def vanish(worker_id: str) -> None:
        """The evidence is that somebody listens there, which the server forgets with the connection."""
        await opened[0]._ledger.presence.drop(worker_id)

    @asynccontextmanager
    async def outage() -> AsyncIterator[None]:
        """Nobody can connect, and whoever was connected is thrown out."""
        proxy.shut()
        yield
        proxy.open()

    return Subject(open_handle, clock, outage=outage, vanish=vanish, dispose=closing.close)


def nats_cluster_subject() -> Subject:
    return nats_subject(jetstream_servers.cluster)


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "memory": memory_subject,
    "sqlite": sqlite_subject,
    "postgres": postgres_subject,
    "nats": nats_subject,
    "nats-cluster": nats_cluster_subject,
}
