"""What is asked of a store's records, and small answers that are not tasks."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from holdfast.model.limits import NO_LIMITS, Limits
from holdfast.model.task import TaskStatus


class TaskFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Newest first: by the time in the ids or by submission, which is the same where ids were made as they should be.

    `after` is the id of the last task of the page before.
    """

    status: TaskStatus | None = None
    queue: str | None = None
    name: str | None = None
    run_id: str | None = None
    last: bool = False
    """Only tasks that no other waits for: those whose results are the run's."""
    finished_before: datetime | None = None
    limit: int = 100
    after: str | None = None


class QueueInfo(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    paused: bool
    counts: dict[str, int]
    """Tasks per status; a status without tasks may be absent."""
    limits: Limits = NO_LIMITS
    next_start_at: datetime | None = None
    """When its rate lets the next task start; None where one may start now."""


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    host: str
    pid: int
    queues: list[str] | None
    concurrency: int
    version: str
    names: list[str] = []
    """The task names that it knows."""
    started_at: datetime | None = None
    seen_at: datetime | None = None
    running: int = 0
    remote: bool = False
    """It works through a dispatcher: nothing here can show whether it lives (C6.7), only when it was last seen."""


class Retention(msgspec.Struct, frozen=True):
    """How long ended tasks are kept; None keeps them for ever."""

    completed: timedelta | None = timedelta(days=7)
    canceled: timedelta | None = timedelta(days=7)
    failed: timedelta | None = None
    outputs: timedelta | None = timedelta(days=30)
    """Versions of datasets, but for the latest ones and those that a live task reads."""

    def age_of(self, status: TaskStatus) -> timedelta | None:
        return {
            TaskStatus.COMPLETED: self.completed,
            TaskStatus.CANCELED: self.canceled,
            TaskStatus.FAILED: self.failed,
        }[status]
