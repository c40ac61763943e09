"""What an attempt says to the store while it runs: progress, steps, and transactions of its own, all of it fenced; and
what it reads there.

Progress that finds the store away is dropped: the next one says more, and an outage or the restart of a dispatcher must
not fail every handler that tells how far it is. A step has happened, and would happen again if it were not recorded. So
it waits for the store, as a settle does, but not for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from holdfast.errors import LeaseLost, StoreClosed, StoreUnavailable
from holdfast.health import StoreHealth
from holdfast.model.claim import Lease
from holdfast.model.output import OutputRow
from holdfast.model.workflow import Step
from holdfast.outputs import PAGE
from holdfast.portal import in_event_loop
from holdfast.stores.protocol import Joining, OwnTransaction, Store

T = TypeVar("T")

STEP_PATIENCE_SECONDS = 300.0
"""A handler that has a transaction open on SQLite, through a connection of its own, waits here for itself."""


class StoreReporter:
    def __init__(self, store: Store, health: StoreHealth) -> None:
        self._store = store
        self._health = health
        self._loop = asyncio.get_running_loop()
        self._joining: Joining | None = None

    def report(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        if in_event_loop():
            raise RuntimeError("ctx.progress() would block the event loop; use `await ctx.aprogress(…)` here")
        self._wait(lease, self.areport(lease, kind, data))

    async def areport(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        try:
            await self._store.report(lease, kind, data)
        except StoreClosed:
            raise
        except StoreUnavailable:
            return

    def steps(self, lease: Lease) -> list[Step]:
        return self._wait(lease, self.asteps(lease))

    async def asteps(self, lease: Lease) -> list[Step]:
        return await self._patiently(lease, lambda: self._store.steps(lease.task_id))

    def record_step(self, lease: Lease, name: str, result: str) -> Step:
        return self._wait(lease, self.arecord_step(lease, name, result))

    async def arecord_step(self, lease: Lease, name: str, result: str) -> Step:
        return await self._patiently(lease, lambda: self._store.record_step(lease, name, result))

    def pinned(self, lease: Lease) -> dict[str, int | None]:
        return self._wait(lease, self.apinned(lease))

    async def apinned(self, lease: Lease) -> dict[str, int | None]:
        return await self._patiently(lease, lambda: self._store.pinned(lease.task_id), "give the inputs")

    def dataset_rows(self, lease: Lease, dataset: str, version: int, after: str | None) -> list[OutputRow]:
        return self._wait(lease, self.adataset_rows(lease, dataset, version, after))

    async def adataset_rows(self, lease: Lease, dataset: str, version: int, after: str | None) -> list[OutputRow]:
        return await self._patiently(
            lease, lambda: self._store.dataset_rows(dataset, version, after=after, limit=PAGE), "give an input"
        )

    def _wait(self, lease: Lease, saying: Coroutine[Any, Any, T]) -> T:
        try:
            said = asyncio.run_coroutine_threadsafe(saying, self._loop)
        except RuntimeError:  # the loop has closed
            saying.close()
            raise LeaseLost(f"the worker that ran task {lease.task_id} has stopped; its lease is gone") from None
        return said.result()

    async def _patiently(self, lease: Lease, call: Callable[[], Awaitable[T]], what: str = "take a step") -> T:
        try:
            async with asyncio.timeout(STEP_PATIENCE_SECONDS):
                return await self._health.persist(call)
        except TimeoutError:
            raise StoreUnavailable(
                f"the store did not {what} of task {lease.task_id} for {STEP_PATIENCE_SECONDS:g} s; "
                "if the handler has a transaction of its own open, end it first"
            ) from None

    def joining(self) -> Joining:
        if self._joining is None:
            if in_event_loop():
                raise RuntimeError("ctx.complete_in() would block the event loop; use `await ctx.acomplete_in(…)` here")
            self._joining = asyncio.run_coroutine_threadsafe(self._store.joining(), self._loop).result()
        return self._joining

    async def ajoining(self) -> Joining:
        if self._joining is None:
            self._joining = await self._store.joining()
        return self._joining

    def own_transaction(self) -> OwnTransaction:
        return self._store.own_transaction()
