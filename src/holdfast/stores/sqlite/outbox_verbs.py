"""The verbs for sinks and what they are to be told: each is one call on the engine (see sinks.py, outbox.py)."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from holdfast.model.outbox import Delivery, NewSink, OutboxRow, OutboxState, Sink
from holdfast.stores.sqlite import outbox, sinks
from holdfast.stores.sqlite.handle import Handle

FORGOTTEN = 5_000
"""Rows of a sink that is deleted, per write."""


class OutboxVerbs(Handle):
    async def declare_sink(self, new: NewSink) -> None:
        await self._engine.write(lambda tx: sinks.declare(tx, new))

    async def delete_sink(self, name: str) -> bool:
        """In bounded writes, for others want to write too. What a crash leaves over goes with the next prune."""
        known = await self._engine.write(lambda tx: sinks.delete(tx, name))
        rows = await self._engine.read(lambda conn: outbox.of_sink(conn, name))
        for first in range(0, len(rows), FORGOTTEN):
            await self._forget(rows[first : first + FORGOTTEN])
        return known

    async def _forget(self, row_ids: Sequence[int]) -> None:
        await self._engine.write(lambda tx: outbox.forget(tx, row_ids))

    async def sinks(self) -> list[Sink]:
        return await self._engine.read(lambda conn: sinks.listed(conn, self._clock.micros()))

    async def targets(self) -> list[NewSink]:
        return await self._engine.read(sinks.targets)

    async def take_outbox(
        self, wanted: Sequence[str], *, limit: int, hold: str, hold_seconds: float
    ) -> list[OutboxRow]:
        def peek(conn: sqlite3.Connection, now: int) -> list[OutboxRow] | None:
            return outbox.nothing_free(conn, wanted, now)

        return await self._engine.write(lambda tx: outbox.take(tx, wanted, limit, hold, hold_seconds), peek=peek)

    async def record_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        if deliveries:
            await self._engine.write(lambda tx: outbox.record(tx, deliveries))

    async def outbox(self, *, sink: str | None, state: OutboxState | None, limit: int, after: int) -> list[OutboxRow]:
        return await self._engine.read(lambda conn: outbox.listed(conn, sink, state, limit, after))

    async def requeue_outbox(self, row_ids: Sequence[int]) -> int:
        return await self._engine.write(lambda tx: outbox.requeue(tx, row_ids))

    async def purge_outbox(self, row_ids: Sequence[int]) -> int:
        return await self._engine.write(lambda tx: outbox.purge(tx, row_ids))
