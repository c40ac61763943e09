"""Side effects that must follow a change of state (contract section 12): who is told, of what, and how far that is.

A sink is somebody who is told. What it is told of are rows of the outbox, written in the transaction of the change by
the store itself. A relay takes them, tells the sink, and says how it went. When they are tried again is decided in
policy/relaying.py.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec

from holdfast.model.event import Event


class Effect(StrEnum):
    """What is done at a sink: the source documents' words."""

    WAKE = "enqueue_task"
    """A hint that a task is due. One row per task and sink, renewed while the task is due and unclaimed (C12.4)."""
    ROUTE = "route_event"
    """An event, told at least once; in order per task and sink."""


class NewSink(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    url: str
    """Where it is: `sqs://…` and `nats://…` are woken; `https://…` and `subscriber:NAME` are told events."""
    effect: Effect
    kinds: tuple[str, ...] | None = None
    """Only events of these kinds; None: all. For wake-ups without meaning."""
    queues: tuple[str, ...] | None = None
    """Only of tasks of these queues; None: all."""
    secret: str | None = None
    """What signs the calls of a webhook. Kept by the store, since any relay may have to sign; no read shows it."""
    private: bool = False
    """A webhook in a private network, on purpose."""


class Sink(msgspec.Struct, frozen=True, kw_only=True):
    """The record, as people read it: a sink and what waits for it."""

    name: str
    url: str
    effect: Effect
    kinds: tuple[str, ...] | None
    queues: tuple[str, ...] | None
    private: bool
    signed: bool
    created_at: datetime
    pending: int
    """Rows that are due and not delivered, or rest after a failure. Told up to a bound (policy/relaying.py)."""
    dead: int
    oldest_at: datetime | None
    """Since when the oldest of those waits."""


class OutboxState(StrEnum):
    PENDING = "pending"
    DEAD = "dead"
    """Given up after many tries, or because the sink refused it for good. It no longer holds others back."""


class OutboxRow(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that one sink is to be told. Delivered rows are gone, but for wake-ups that are to be repeated."""

    id: int
    sink: str
    effect: Effect
    task_id: str
    queue: str
    state: OutboxState
    event: Event | None
    """What is told; None for a wake-up."""
    created_at: datetime
    due_at: datetime
    tries: int
    last_error: str | None
    told: int = 0
    """How often a wake-up was delivered. From then on it is pending only in that it will be repeated when it is due."""

    @property
    def repeats(self) -> bool:
        """It was delivered, and nothing has gone wrong since: no more than a repetition is to come."""
        return self.told > 0 and self.state is OutboxState.PENDING and self.last_error is None


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """How it went with a row that was taken. `error` is empty where it was delivered."""

    row_id: int
    hold: str
    """Under which it was taken: the word of a relay that was too slow counts no more."""
    error: str | None = None
    blame: bool = True
    """False: the sink could not be reached at all, which is not this row's fault and costs it no try."""
    final: bool = False
    """It would fail for ever: dead at once."""
    delay_seconds: float | None = None
    """The sink asked for so much time (429, Retry-After); None: what policy says."""
