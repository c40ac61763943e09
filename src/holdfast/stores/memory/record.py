"""A task as the memory store keeps it, and the record that people are shown of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from holdfast.clock import from_micros, maybe_from_micros
from holdfast.model.claim import Claim, Lease
from holdfast.model.event import recorded_error
from holdfast.model.task import NewTask, Task, TaskStatus
from holdfast.model.workflow import ParentEnd, RunInfo, Step
from holdfast.policy import workflow
from holdfast.policy.outputs import shown_pins
from holdfast.policy.verdict import Facts


@dataclass(slots=True)
class Edge:
    """From a task to one that waits for it."""

    child: Record
    at: int = 0
    """Which of the child's parents this is."""
    counted: bool = False


@dataclass(slots=True)
class Record:
    """Instants are microseconds. `new` is what was submitted and never changes."""

    seq: int
    new: NewTask
    status: TaskStatus
    run_at: int
    created_at: int
    attempt: int = 0
    failures: int = 0
    claimed_by: str | None = None
    token: str | None = None
    claim_id: str | None = None
    lease_length: int = 0
    lease_expires_at: int | None = None
    settled_token: str | None = None
    settled_as: str | None = None
    settled_status: TaskStatus | None = None
    cancel_requested_at: int | None = None
    canceled_because: str | None = None
    result: str | None = None
    last_error: dict[str, Any] | None = None
    last_error_at: int = 0
    started_at: int | None = None
    claimed_at: int | None = None
    finished_at: int | None = None
    events: Sequence[int] = ()
    parents: tuple[Record, ...] = ()
    edges: Sequence[Edge] = ()
    pending: int = 0
    """Parents that it still waits for."""
    begun: bool = False
    """Claimed at least once since it was submitted or requeued, and not ended: it goes first in its key."""
    steps: dict[str, Step] | None = None

    @property
    def awaited(self) -> bool:
        """Others were submitted to wait for it."""
        return bool(self.edges)

    @property
    def facts(self) -> Facts:
        return Facts(
            attempt=self.attempt,
            failures=self.failures,
            max_attempts=self.new.max_attempts,
            backoff=self.new.backoff,
            cancel_requested=self.cancel_requested_at is not None,
            last_error_code=self.last_error.get("code") if self.last_error else None,
        )

    def holds(self, lease: Lease, now: int) -> bool:
        """The fence (C6.3): this very attempt, this very token, and the lease has not expired."""
        return (
            self.status is TaskStatus.RUNNING
            and self.attempt == lease.attempt
            and self.token == lease.token
            and self.lease_expires_at is not None
            and now < self.lease_expires_at
        )

    def expired(self, now: int) -> bool:
        return self.status is TaskStatus.RUNNING and self.lease_expires_at is not None and self.lease_expires_at <= now

    def clear_lease(self) -> None:
        self.claimed_by = self.token = self.claim_id = self.lease_expires_at = None

    # Most tasks are linked with nothing and have no steps: lists and dicts are made for those that have

    def link(self, child: Record, at: int = 0) -> None:
        """From now on `child` waits for this one."""
        if not isinstance(self.edges, list):
            self.edges = []
        self.edges.append(Edge(child, at))

    def logged(self, position: int) -> None:
        if not isinstance(self.events, list):
            self.events = []
        self.events.append(position)

    def keep(self, step: Step) -> Step:
        """The step of this name that came first."""
        if self.steps is None:
            self.steps = {}
        return self.steps.setdefault(step.name, step)


def shown(record: Record) -> Task:
    new = record.new
    return Task(
        id=new.id,
        name=new.name,
        queue=new.queue,
        payload=msgspec.json.decode(new.payload),
        priority=new.priority,
        status=record.status,
        run_at=from_micros(record.run_at),
        attempt=record.attempt,
        failures=record.failures,
        max_attempts=new.max_attempts,
        backoff=new.backoff,
        timeout=new.timeout,
        lease=new.lease,
        claimed_by=record.claimed_by,
        lease_expires_at=maybe_from_micros(record.lease_expires_at),
        cancel_requested_at=maybe_from_micros(record.cancel_requested_at),
        canceled_because=record.canceled_because,
        idempotency_key=new.idempotency_key,
        concurrency_key=new.concurrency_key,
        run_id=new.run_id,
        parents=list(new.parents),
        on_parent_failure=new.on_parent_failure,
        result=None if record.result is None else msgspec.json.decode(record.result),
        last_error=recorded_error(record.last_error, record.last_error_at) if record.last_error else None,
        meta={} if new.meta is None else msgspec.json.decode(new.meta),
        inputs=shown_pins(new.inputs),
        created_at=from_micros(record.created_at),
        started_at=maybe_from_micros(record.started_at),
        claimed_at=maybe_from_micros(record.claimed_at),
        finished_at=maybe_from_micros(record.finished_at),
    )


def claim_of(record: Record) -> Claim:
    assert record.token is not None
    assert record.claimed_by is not None
    assert record.lease_expires_at is not None
    assert record.claimed_at is not None
    new = record.new
    return Claim(
        lease=Lease(new.id, record.attempt, record.token),
        worker_id=record.claimed_by,
        lease_expires_at=from_micros(record.lease_expires_at),
        lease_seconds=record.lease_length / 1_000_000,
        name=new.name,
        queue=new.queue,
        payload=new.payload,
        priority=new.priority,
        failures=record.failures,
        max_attempts=new.max_attempts,
        timeout=new.timeout,
        run_id=new.run_id,
        meta=new.meta,
        created_at=from_micros(record.created_at),
        claimed_at=from_micros(record.claimed_at),
    )


def parent_end(record: Record) -> ParentEnd:
    return ParentEnd(
        task_id=record.new.id,
        name=record.new.name,
        status=record.status,
        result=record.result,
        error=recorded_error(record.last_error, record.last_error_at) if record.last_error else None,
    )


def run_info(run_id: str, members: list[Record]) -> RunInfo:
    counts = Counter(member.status.value for member in members)
    last = Counter(member.status.value for member in members if not member.awaited)
    began_at = from_micros(min(member.created_at for member in members))
    ended_at = max((member.finished_at for member in members if member.finished_at is not None), default=None)
    return workflow.run_info(run_id, counts, last, began_at=began_at, ended_at=maybe_from_micros(ended_at))


def oldest_due(records: Iterable[Record], now: int) -> dict[str, datetime]:
    """By queue, since when the task is due that has waited longest."""
    due: dict[str, int] = {}
    for record in records:
        if record.status is TaskStatus.QUEUED and record.run_at <= now:
            due[record.new.queue] = min(record.run_at, due.get(record.new.queue, now))
    return {queue: from_micros(at) for queue, at in due.items()}
