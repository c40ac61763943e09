"""The outbox of the memory store: its tables, while the lock is held (contract section 12)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from holdfast.clock import span_micros
from holdfast.model.event import Event
from holdfast.model.outbox import Delivery, Effect, NewSink, OutboxState
from holdfast.policy.relaying import next_try, next_wake
from holdfast.stores.memory.record import Record


class Known(NamedTuple):
    sink: NewSink
    created_at: int


@dataclass(slots=True)
class Row:
    id: int
    sink: str
    effect: Effect
    task_id: str
    queue: str
    event: Event | None
    created_at: int
    due_at: int
    state: OutboxState = OutboxState.PENDING
    tries: int = 0
    told: int = 0
    """How often a wake-up was delivered."""
    hold: str | None = None
    held_until: int = 0
    last_error: str | None = None

    @property
    def line(self) -> tuple[str, str]:
        """What is told in order."""
        return self.sink, self.task_id


class Outbox:
    def __init__(self) -> None:
        self.sinks: dict[str, Known] = {}
        self.rows: dict[int, Row] = {}
        self.woken: dict[tuple[str, str], Row] = {}
        """Wake-ups by sink and task: there is one of each."""
        self._last = 0

    def note(self, record: Record, event: Event, now: int) -> None:
        """An event was written: what follows from it."""
        for sink, _ in self.sinks.values():
            if sink.queues is not None and record.new.queue not in sink.queues:
                continue
            if sink.effect is Effect.ROUTE and (sink.kinds is None or event.kind in sink.kinds):
                self._add(sink, record, event, now, now)

    def wake(self, record: Record, now: int) -> None:
        """A task has become claimable from its `run_at` on."""
        for sink, _ in self.sinks.values():
            if sink.effect is not Effect.WAKE or (sink.queues is not None and record.new.queue not in sink.queues):
                continue
            known = self.woken.pop((sink.name, record.new.id), None)
            if known is not None:
                del self.rows[known.id]
            self.woken[sink.name, record.new.id] = self._add(sink, record, None, now, max(record.run_at, now))

    def _add(self, sink: NewSink, record: Record, event: Event | None, now: int, due_at: int) -> Row:
        self._last += 1
        row = Row(self._last, sink.name, sink.effect, record.new.id, record.new.queue, event, now, due_at)
        self.rows[row.id] = row
        return row

    def remove(self, row: Row) -> None:
        del self.rows[row.id]
        if row.effect is Effect.WAKE:
            del self.woken[row.line]

    def due(self, sinks: Sequence[str], now: int) -> Iterator[Row]:
        """Free rows, each the first of its line."""
        seen: set[tuple[str, str]] = set()
        for row in self.rows.values():
            if row.sink not in sinks or row.state is OutboxState.DEAD or row.line in seen:
                continue
            seen.add(row.line)
            if row.due_at <= now and row.held_until <= now:
                yield row

    def record(self, delivery: Delivery, now: int) -> None:
        row = self.rows.get(delivery.row_id)
        if row is None or row.hold != delivery.hold:
            return
        row.hold, row.held_until = None, 0
        if delivery.error is not None:
            self._failed(row, delivery, now)
        elif row.effect is Effect.WAKE:
            row.due_at = now + span_micros(next_wake(row.told))
            row.tries, row.told, row.last_error = 0, row.told + 1, None
        else:
            self.remove(row)

    def _failed(self, row: Row, delivery: Delivery, now: int) -> None:
        row.last_error = delivery.error
        delay = next_try(row.tries, delivery)
        row.tries += delivery.blame
        if delay is None:
            row.state = OutboxState.DEAD
        else:
            row.due_at = now + span_micros(delay)
