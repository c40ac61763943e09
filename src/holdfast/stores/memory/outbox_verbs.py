"""The memory store's verbs for sinks and what they are to be told."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from holdfast.clock import from_micros, span_micros
from holdfast.model.outbox import Delivery, Effect, NewSink, OutboxRow, OutboxState, Sink
from holdfast.model.task import TaskStatus
from holdfast.policy.relaying import COUNTED
from holdfast.stores.memory.admitting import ensure_text
from holdfast.stores.memory.handle import Handle
from holdfast.stores.memory.outbox import Known, Row


class OutboxVerbs(Handle):
    async def declare_sink(self, new: NewSink) -> None:
        with self._state.lock:
            now = self._now()
            ensure_text(new)
            known = self._state.outbox.sinks.get(new.name)
            self._state.outbox.sinks[new.name] = Known(new, now if known is None else known.created_at)

    async def delete_sink(self, name: str) -> bool:
        with self._state.lock:
            self._now()
            for row in [row for row in self._state.outbox.rows.values() if row.sink == name]:
                self._state.outbox.remove(row)
            return self._state.outbox.sinks.pop(name, None) is not None

    async def sinks(self) -> list[Sink]:
        with self._state.lock:
            now = self._now()
            return [self._sink_shown(name, now) for name in sorted(self._state.outbox.sinks)]

    def _sink_shown(self, name: str, now: int) -> Sink:
        sink, created_at = self._state.outbox.sinks[name]
        rows = [row for row in self._state.outbox.rows.values() if row.sink == name]
        waiting = [row for row in rows if row.state is OutboxState.PENDING and (row.due_at <= now or row.last_error)]
        oldest = min((row.created_at for row in waiting), default=None)
        return Sink(
            name=name,
            url=sink.url,
            effect=sink.effect,
            kinds=sink.kinds,
            queues=sink.queues,
            private=sink.private,
            signed=sink.secret is not None,
            created_at=from_micros(created_at),
            pending=min(len(waiting), COUNTED),
            dead=min(sum(row.state is OutboxState.DEAD for row in rows), COUNTED),
            oldest_at=None if oldest is None else from_micros(oldest),
        )

    async def targets(self) -> list[NewSink]:
        with self._state.lock:
            self._now()
            return [self._state.outbox.sinks[name].sink for name in sorted(self._state.outbox.sinks)]

    async def take_outbox(self, sinks: Sequence[str], *, limit: int, hold: str, hold_seconds: float) -> list[OutboxRow]:
        with self._state.lock:
            now = self._now()
            due = sorted(self._state.outbox.due(sinks, now), key=lambda row: (row.due_at, row.id))
            taken = list(islice((row for row in due if self._still(row)), limit))
            for row in taken:
                row.hold, row.held_until = hold, now + span_micros(hold_seconds)
            return [_shown(row) for row in taken]

    def _still(self, row: Row) -> bool:
        """A wake-up for a task that nobody has to be woken for is dropped. One that is queued again gets a new one."""
        if row.effect is not Effect.WAKE:
            return True
        record = self._state.records.get(row.task_id)
        if record is None or record.status is not TaskStatus.QUEUED:
            self._state.outbox.remove(row)
            return False
        return True

    async def record_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        with self._state.lock:
            now = self._now()
            for delivery in deliveries:
                self._state.outbox.record(delivery, now)

    async def outbox(self, *, sink: str | None, state: OutboxState | None, limit: int, after: int) -> list[OutboxRow]:
        with self._state.lock:
            self._now()
            wanted = (
                row
                for row in self._state.outbox.rows.values()
                if row.id > after and sink in (None, row.sink) and state in (None, row.state)
            )
            return [_shown(row) for row in islice(wanted, limit)]

    async def requeue_outbox(self, row_ids: Sequence[int]) -> int:
        with self._state.lock:
            now = self._now()
            dead = self._dead(row_ids)
            for row in dead:
                row.state, row.tries, row.due_at = OutboxState.PENDING, 0, now
            return len(dead)

    async def purge_outbox(self, row_ids: Sequence[int]) -> int:
        with self._state.lock:
            self._now()
            dead = self._dead(row_ids)
            for row in dead:
                self._state.outbox.remove(row)
            return len(dead)

    def _dead(self, row_ids: Sequence[int]) -> list[Row]:
        rows = (self._state.outbox.rows.get(row_id) for row_id in dict.fromkeys(row_ids))
        return [row for row in rows if row is not None and row.state is OutboxState.DEAD]


def _shown(row: Row) -> OutboxRow:
    return OutboxRow(
        id=row.id,
        sink=row.sink,
        effect=row.effect,
        task_id=row.task_id,
        queue=row.queue,
        state=row.state,
        event=row.event,
        created_at=from_micros(row.created_at),
        due_at=from_micros(row.due_at),
        tries=row.tries,
        last_error=row.last_error,
        told=row.told,
    )
