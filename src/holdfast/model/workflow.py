"""Runs, their members' ends, and the steps within one task (contract section 10)."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from holdfast.model.task import TaskStatus


class RunStatus(StrEnum):
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A run, as people read it: reached from its tasks, which are all there is of it."""

    id: str
    status: RunStatus
    counts: dict[str, int]
    """Tasks per status; a status without tasks may be absent."""
    created_at: datetime
    """Of its first task."""
    finished_at: datetime | None
    """Of its last one; empty while it runs."""


class ParentEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How one parent of a task ended."""

    task_id: str
    name: str
    status: TaskStatus
    result: str | None
    """JSON, where it is completed."""
    error: dict[str, Any] | None
    """Its last_error, where it failed."""


class Step(msgspec.Struct, frozen=True):
    """What a named step of a handler gave, recorded once per task (C10.7)."""

    name: str
    result: str
    at: datetime
