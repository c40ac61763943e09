"""A task before and after it is stored."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.model.backoff import DEFAULT_BACKOFF, Backoff
from holdfast.model.output import Pin


class TaskStatus(StrEnum):
    WAITING = "waiting"
    QUEUED = "queued"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


TERMINAL = frozenset({TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELED})


class NewTask(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a submit carries: validated, encoded, with an id that the client made."""

    id: str
    name: str
    payload: str
    queue: str = "default"
    priority: int = 0
    run_at: datetime | None = None
    delay_seconds: float = 0.0
    """Counted from the store's now; only where `run_at` is empty."""
    max_attempts: int = 5
    backoff: Backoff = DEFAULT_BACKOFF
    timeout: float | None = None
    lease: float | None = None
    idempotency_key: str | None = None
    concurrency_key: str | None = None
    run_id: str | None = None
    parents: tuple[str, ...] = ()
    """Tasks of the same submit that have to end first, in the order in which their results are wanted."""
    on_parent_failure: str = "cancel"
    """`run`: run anyway, with the failure as the input."""
    fail_fast: str | None = None
    """The members of a run under one such name end together: one that fails takes the others with it."""
    meta: str | None = None
    inputs: tuple[Pin, ...] = ()
    """Versions of datasets that it reads, by name of the dataset."""

    @property
    def content(self) -> tuple[object, ...]:
        """What a second submit of the same id must not differ in. Instants are left out: the record's own moves on."""
        return (
            self.name,
            self.queue,
            self.payload,
            self.priority,
            self.max_attempts,
            self.backoff,
            self.timeout,
            self.lease,
            self.idempotency_key,
            self.concurrency_key,
            self.run_id,
            self.parents,
            self.on_parent_failure,
            self.fail_fast,
            self.meta,
            self.inputs,
        )


class Submitted(msgspec.Struct, frozen=True, gc=False):
    id: str
    created: bool


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The record, as people read it (contract section 2). It never shows a lease token."""

    id: str
    name: str
    queue: str
    payload: Any
    priority: int
    status: TaskStatus
    run_at: datetime
    attempt: int
    failures: int
    max_attempts: int
    backoff: Backoff
    timeout: float | None
    lease: float | None
    claimed_by: str | None
    lease_expires_at: datetime | None
    cancel_requested_at: datetime | None
    canceled_because: str | None
    idempotency_key: str | None
    concurrency_key: str | None
    run_id: str | None
    parents: list[str]
    on_parent_failure: str
    result: Any
    last_error: dict[str, Any] | None
    meta: dict[str, Any]
    inputs: dict[str, int | str] = {}
    """By name of the dataset: the version, or `parent` for what a parent writes."""
    created_at: datetime
    started_at: datetime | None
    claimed_at: datetime | None
    finished_at: datetime | None

    def shown_as(self, now: datetime) -> str:
        """The status in people's words: a queued task that is not due is scheduled, or retrying after a failure."""
        if self.status is TaskStatus.QUEUED and self.run_at > now:
            return "retrying" if self.failures else "scheduled"
        return self.status.value
