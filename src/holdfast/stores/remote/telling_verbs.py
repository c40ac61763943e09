"""Datasets, and who is told of changes, through a dispatcher. Telling them is the dispatcher's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from holdfast.dispatcher import both_ways, queries, wire, wire_data
from holdfast.errors import DatasetNotFound, NotSupported
from holdfast.model.outbox import Delivery, NewSink, OutboxRow, OutboxState, Sink
from holdfast.model.output import DatasetInfo, DatasetVersion, OutputRow
from holdfast.policy import refusals
from holdfast.stores.portions import portions
from holdfast.stores.remote.caller import Caller, pages
from holdfast.stores.remote.forms import nameable

VERSION_LAST = 2**31 - 1


class TellingVerbs(Caller):
    async def datasets(self, *, limit: int, after: str | None) -> list[DatasetInfo]:
        async def page(most: int, found: Sequence[DatasetInfo]) -> list[DatasetInfo]:
            query = queries.DatasetsQuery(limit=most, after=found[-1].latest.dataset if found else after)
            return (await self._ask("datasets", wire_data.DatasetsAnswer, query)).datasets

        return await pages(limit, page)

    async def dataset_versions(self, dataset: str, *, limit: int, before: int | None) -> list[DatasetVersion]:
        if not nameable(dataset):
            return []

        async def page(most: int, found: Sequence[DatasetVersion]) -> list[DatasetVersion]:
            below = found[-1].version if found else before
            query = queries.VersionsQuery(dataset=dataset, limit=most, before=below)
            return (await self._ask("dataset_versions", wire_data.VersionsAnswer, query)).versions

        return await pages(limit, page)

    async def dataset_version(self, dataset: str, version: int | None) -> DatasetVersion | None:
        if not _can_be(dataset, version):
            return None
        query = queries.VersionQuery(dataset=dataset, version=version)
        try:
            return await self._ask("dataset_version", DatasetVersion, query)
        except DatasetNotFound:
            return None

    async def dataset_rows(self, dataset: str, version: int, *, after: str | None, limit: int) -> list[OutputRow]:
        if not _can_be(dataset, version):
            raise refusals.dataset_not_found(dataset, version)

        async def page(most: int, found: Sequence[OutputRow]) -> list[OutputRow]:
            behind = found[-1].key if found else after
            query = queries.RowsQuery(dataset=dataset, version=version, after=behind, limit=most)
            return [both_ways.row(one) for one in (await self._ask("dataset_rows", wire_data.RowsAnswer, query)).rows]

        return await pages(limit, page)

    async def pinned(self, task_id: str) -> dict[str, int | None]:
        return (await self._ask("inputs", wire.PinnedAnswer, task_id=task_id)).inputs

    # Sinks and what they are yet to be told

    async def declare_sink(self, new: NewSink) -> None:
        call = wire_data.SinkCall(
            name=new.name,
            url=new.url,
            effect=new.effect,
            kinds=None if new.kinds is None else list(new.kinds),
            queues=None if new.queues is None else list(new.queues),
            secret=new.secret,
            private=new.private,
        )
        await self._ask("declare_sink", wire.Done, call)

    async def delete_sink(self, name: str) -> bool:
        return (await self._ask("delete_sink", wire.DeletedAnswer, wire.NameCall(name=name))).deleted

    async def sinks(self) -> list[Sink]:
        return (await self._ask("sinks", wire_data.SinksAnswer)).sinks

    async def outbox(self, *, sink: str | None, state: OutboxState | None, limit: int, after: int) -> list[OutboxRow]:
        async def page(most: int, found: Sequence[OutboxRow]) -> list[OutboxRow]:
            above = found[-1].id if found else after
            query = queries.OutboxQuery(sink=sink, state=state, limit=most, after=above)
            return (await self._ask("outbox", wire_data.OutboxAnswer, query)).rows

        return await pages(limit, page)

    async def requeue_outbox(self, row_ids: Sequence[int]) -> int:
        return await self._count("requeue_outbox", row_ids)

    async def purge_outbox(self, row_ids: Sequence[int]) -> int:
        return await self._count("purge_outbox", row_ids)

    async def _count(self, route: str, row_ids: Sequence[int]) -> int:
        total = 0
        for some in portions(row_ids, wire.BATCH_MOST):
            total += (await self._ask(route, wire.CountAnswer, wire_data.RowsCall(ids=list(some)))).count
        return total

    # The dispatcher's own

    async def targets(self) -> list[NewSink]:
        self._relays()

    async def take_outbox(
        self,
        sinks: Sequence[str],  # noqa: ARG002
        *,
        limit: int,  # noqa: ARG002
        hold: str,  # noqa: ARG002
        hold_seconds: float,  # noqa: ARG002
    ) -> list[OutboxRow]:
        self._relays()

    async def record_deliveries(self, deliveries: Sequence[Delivery]) -> None:  # noqa: ARG002
        self._relays()

    def _relays(self) -> NoReturn:
        self._line.ensure_open()
        raise NotSupported(f"{self.label} relays by itself; secrets of sinks do not leave it")


def _can_be(dataset: str, version: int | None) -> bool:
    return nameable(dataset) and (version is None or 0 < version <= VERSION_LAST)
