"""The verbs for sinks and what they are to be told; what they do stands in outbox.py."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast.model.outbox import Delivery, NewSink, OutboxRow, OutboxState, Sink
from holdfast.stores.postgres import outbox
from holdfast.stores.postgres.handle import Handle


class OutboxVerbs(Handle):
    async def declare_sink(self, new: NewSink) -> None:
        await self._write(lambda session: outbox.declare(session, new))

    async def delete_sink(self, name: str) -> bool:
        return await self._write(lambda session: outbox.delete(session, name))

    async def sinks(self) -> list[Sink]:
        return await self._read(outbox.sinks)

    async def targets(self) -> list[NewSink]:
        return await self._write(outbox.targets)  # relays ask often, and need no connection for reads

    async def take_outbox(self, sinks: Sequence[str], *, limit: int, hold: str, hold_seconds: float) -> list[OutboxRow]:
        return await self._write(lambda session: outbox.take(session, sinks, limit, hold, hold_seconds))

    async def record_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            await self._write_all(lambda session: outbox.record(session, deliveries))

    async def outbox(self, *, sink: str | None, state: OutboxState | None, limit: int, after: int) -> list[OutboxRow]:
        return await self._read(lambda session: outbox.listed(session, sink, state, limit, after))

    async def requeue_outbox(self, row_ids: Sequence[int]) -> int:
        return await self._write(lambda session: outbox.requeue(session, row_ids))

    async def purge_outbox(self, row_ids: Sequence[int]) -> int:
        return await self._write(lambda session: outbox.purge(session, row_ids))
