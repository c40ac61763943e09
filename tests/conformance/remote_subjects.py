"""Stores behind a dispatcher as subjects of the suite: every verb goes over real HTTP.

What a dispatcher does by itself (reap, prune, evict, relay) the cases ask of the store behind: handles have a
second one, on that store, for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.model.claim import Lease
from holdfast.model.outbox import Delivery, NewSink, OutboxRow
from holdfast.model.query import Retention, WorkerInfo
from holdfast.model.transition import Settled
from holdfast.stores.protocol import Store, StoreFactory
from holdfast.stores.remote.options import parsed
from holdfast.stores.remote.store import RemoteStore
from holdfast.testing.conformance import Subject
from holdfast.testing.virtual_clock import VirtualClock
from tests.conformance.subjects import FRESH, fresh_memory, memory_subject, sqlite_subject
from tests.dispatchers import Serving


class Handle(RemoteStore):
    """One that also plays the dispatcher's own part."""

    def __init__(self, url: str, behind: Store) -> None:
        super().__init__(parsed(url, {}))
        self._behind = behind

    async def reap(self, *, limit: int, actor: str) -> list[Settled]:
        await super().reap(limit=limit, actor=actor)
        return await self._behind.reap(limit=limit, actor=actor)

    async def prune(self, retention: Retention, *, limit: int) -> int:
        await super().prune(retention, limit=limit)
        return await self._behind.prune(retention, limit=limit)

    async def evict(self, *, actor: str) -> list[str]:
        await super().evict(actor=actor)
        return await self._behind.evict(actor=actor)

    async def targets(self) -> list[NewSink]:
        return await self._behind.targets()

    async def take_outbox(self, sinks: Sequence[str], *, limit: int, hold: str, hold_seconds: float) -> list[OutboxRow]:
        return await self._behind.take_outbox(sinks, limit=limit, hold=hold, hold_seconds=hold_seconds)

    async def record_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        await self._behind.record_deliveries(deliveries)

    async def close(self) -> None:
        await super().close()
        await self._behind.close()


class Twin(Handle):
    """Against the model, which knows workers here as well: those have the store itself."""

    async def enroll(self, worker: WorkerInfo) -> None:
        await (super().enroll(worker) if worker.remote else self._behind.enroll(worker))

    async def leave(self, worker_id: str, leases: Sequence[Lease] | None = None) -> None:
        await (self._behind.leave(worker_id) if leases is None else super().leave(worker_id, leases))


def remote_subject(behind: Subject) -> Subject:
    serving = Serving(behind._open)
    serving.__enter__()

    def dispose() -> None:
        serving.__exit__()
        if behind._dispose is not None:
            behind._dispose()

    return Subject(lambda: Handle(serving.url, behind._open()), behind.clock, outage=behind._outage, dispose=dispose)


def remote_memory_subject() -> Subject:
    return remote_subject(memory_subject())


def remote_sqlite_subject() -> Subject:
    """What goes over HTTP and what a dispatcher does by itself share an engine, as in its process."""
    return remote_subject(sqlite_subject(one_engine=True))


def fresh_remote(clock: VirtualClock) -> tuple[StoreFactory, Callable[[], None]]:
    open_behind, _ = fresh_memory(clock)
    serving = Serving(open_behind).__enter__()
    return lambda: Twin(serving.url, open_behind()), serving.__exit__


FRESH["remote"] = fresh_remote
