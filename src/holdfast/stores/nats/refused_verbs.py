"""What the NATS store cannot do exactly, and therefore does not do (contract section 19)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from holdfast.errors import NotSupported
from holdfast.model.outbox import Delivery, NewSink, OutboxRow, OutboxState, Sink
from holdfast.model.output import DatasetInfo, DatasetVersion, OutputRow
from holdfast.stores.nats.handle import Handle


class RefusedVerbs(Handle):
    # Outbox

    async def declare_sink(self, new: NewSink) -> None:  # noqa: ARG002
        _no_outbox()

    async def delete_sink(self, name: str) -> bool:  # noqa: ARG002
        _no_outbox()

    async def sinks(self) -> list[Sink]:
        return []

    async def targets(self) -> list[NewSink]:
        return []

    async def take_outbox(
        self,
        sinks: Sequence[str],  # noqa: ARG002
        *,
        limit: int,  # noqa: ARG002
        hold: str,  # noqa: ARG002
        hold_seconds: float,  # noqa: ARG002
    ) -> list[OutboxRow]:
        return []

    async def record_deliveries(self, deliveries: Sequence[Delivery]) -> None:  # noqa: ARG002
        _no_outbox()

    async def outbox(
        self,
        *,
        sink: str | None,  # noqa: ARG002
        state: OutboxState | None,  # noqa: ARG002
        limit: int,  # noqa: ARG002
        after: int,  # noqa: ARG002
    ) -> list[OutboxRow]:
        _no_outbox()

    async def requeue_outbox(self, row_ids: Sequence[int]) -> int:  # noqa: ARG002
        _no_outbox()

    async def purge_outbox(self, row_ids: Sequence[int]) -> int:  # noqa: ARG002
        _no_outbox()

    # Outputs

    async def datasets(self, *, limit: int, after: str | None) -> list[DatasetInfo]:  # noqa: ARG002
        _no_outputs()

    async def dataset_versions(self, dataset: str, *, limit: int, before: int | None) -> list[DatasetVersion]:  # noqa: ARG002
        _no_outputs()

    async def dataset_version(self, dataset: str, version: int | None) -> DatasetVersion | None:  # noqa: ARG002
        _no_outputs()

    async def dataset_rows(self, dataset: str, version: int, *, after: str | None, limit: int) -> list[OutputRow]:  # noqa: ARG002
        _no_outputs()

    async def pinned(self, task_id: str) -> dict[str, int | None]:  # noqa: ARG002
        return {}


def _no_outbox() -> NoReturn:
    raise NotSupported("the NATS store has no outbox; follow the events, or use a SQLite or PostgreSQL URL")


def _no_outputs() -> NoReturn:
    raise NotSupported("the NATS store keeps no outputs; use a SQLite or PostgreSQL URL")
