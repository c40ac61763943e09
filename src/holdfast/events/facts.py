"""One value per kind of thing that a worker tells."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.model.claim import Claim
from holdfast.model.outcome import Outcome
from holdfast.model.transition import Settled


class WorkerStarted(msgspec.Struct, frozen=True):
    worker_id: str
    store: str
    queues: Sequence[str] | None
    concurrency: int
    tasks: int


class WorkerStopping(msgspec.Struct, frozen=True):
    worker_id: str
    running: int
    grace_seconds: float


class WorkerStopped(msgspec.Struct, frozen=True):
    worker_id: str
    released: int


class TaskSettled(msgspec.Struct, frozen=True, gc=False):
    claim: Claim
    outcome: Outcome
    settled: Settled


class LeaseWasLost(msgspec.Struct, frozen=True):
    claim: Claim
    why: str


class NameUnknown(msgspec.Struct, frozen=True):
    claim: Claim
    hint: str


class HandlerBlocked(msgspec.Struct, frozen=True):
    """A coroutine holds up the event loop of its worker."""

    claim: Claim | None
    place: str
    seconds: float


class HandlerStuck(msgspec.Struct, frozen=True):
    """A handler would not end; its task is settled, its slot stays taken."""

    claim: Claim
    stuck: int
    slots: int


class Reaped(msgspec.Struct, frozen=True):
    settled: Sequence[Settled]


class Evicted(msgspec.Struct, frozen=True):
    worker_ids: Sequence[str]


class ScheduleFired(msgspec.Struct, frozen=True):
    name: str
    instants: Sequence[datetime]


class ScheduleFailed(msgspec.Struct, frozen=True):
    """One schedule cannot be declared or fired; the others go on."""

    name: str
    error: str


class Relayed(msgspec.Struct, frozen=True):
    """A sink was told so many things, and has taken them."""

    sink: str
    number: int


class RowDead(msgspec.Struct, frozen=True):
    """A row of the outbox was given up."""

    sink: str
    row_id: int
    task_id: str
    error: str


class RowsDead(msgspec.Struct, frozen=True):
    """Rows of the outbox were given up because nobody was there to be told for a long time."""

    sink: str
    number: int
    error: str


class SinkAway(msgspec.Struct, frozen=True):
    sink: str
    error: str


class SinkBack(msgspec.Struct, frozen=True):
    sink: str
    away_seconds: float


class SinkLeft(msgspec.Struct, frozen=True):
    """This process cannot tell this sink anything; others may."""

    sink: str
    why: str


class SinkFailed(msgspec.Struct, frozen=True):
    """A sink that the code wants cannot be declared."""

    sink: str
    error: str


class WakeupAway(msgspec.Struct, frozen=True):
    """The transport that wakes this worker is gone; it polls."""

    url: str
    error: str


class WakeupBack(msgspec.Struct, frozen=True):
    url: str


class WakeupsRefused(msgspec.Struct, frozen=True):
    """Messages that are no wake-ups of ours; how many so far."""

    url: str
    number: int


class StoreAway(msgspec.Struct, frozen=True):
    error: str


class StoreBack(msgspec.Struct, frozen=True):
    away_seconds: float


class PartFailed(msgspec.Struct, frozen=True):
    """A background part met an error that is not the store being away; it goes on."""

    part: str
    error: str


Told = (
    WorkerStarted
    | WorkerStopping
    | WorkerStopped
    | TaskSettled
    | LeaseWasLost
    | NameUnknown
    | HandlerBlocked
    | HandlerStuck
    | Reaped
    | Evicted
    | ScheduleFired
    | ScheduleFailed
    | Relayed
    | RowDead
    | RowsDead
    | SinkAway
    | SinkBack
    | SinkLeft
    | SinkFailed
    | WakeupAway
    | WakeupBack
    | WakeupsRefused
    | StoreAway
    | StoreBack
    | PartFailed
)
