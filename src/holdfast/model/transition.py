"""What a settle or an operator's act does to a record: reached by policy, written by stores."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from holdfast.model.task import TaskStatus


class Fact(msgspec.Struct, frozen=True):
    """An event before the store gives it an id, an instant and an actor. `delay_ms` is shown as `available_at`."""

    kind: str
    data: dict[str, Any]


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """The new values of a record. Delays are relative: the store adds its own clock."""

    status: TaskStatus
    failures: int
    delay_ms: int | None = None
    """From now to the new `run_at`; None leaves `run_at` as it is."""
    result: str | None = None
    error: dict[str, Any] | None = None
    """The new last_error, without its instants; None leaves the old one."""
    facts: tuple[Fact, ...]


class Settled(msgspec.Struct, frozen=True, gc=False):
    """The store's word that this attempt's end is recorded; the same again for a repeated settle."""

    task_id: str
    attempt: int
    status: TaskStatus


class Change(StrEnum):
    """Acts of a person or a program on tasks that they need not own (contract section 8)."""

    CANCEL = "cancel"
    REQUEUE = "requeue"
    RELEASE = "release"
    DELETE = "delete"


class Amended(msgspec.Struct, frozen=True):
    """`status` is empty where the task is gone."""

    task_id: str
    status: TaskStatus | None
    changed: bool
