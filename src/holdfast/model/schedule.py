"""Tasks that are submitted again and again (contract C10.8). When they fire is decided in policy/firing.py."""

from __future__ import annotations

from datetime import datetime

import msgspec

from holdfast.model.task import NewTask


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """When it fires: by a cron expression in a time zone, or at an interval. Spans are seconds."""

    cron: str | None = None
    timezone: str = "UTC"
    every: float | None = None
    jitter: float = 0.0
    """Each task is due up to so much later than its firing: by chance, but the same for everybody who asks."""
    missed: str = "once"
    """What becomes of firings while nothing ran: `skip` them, run `once` for all of them, or `all`."""
    missed_most: int = 100
    """With `all`: at most so many, the latest ones."""


class NewSchedule(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    timing: Timing
    task: NewTask
    """What is submitted at every firing, but for its id, key and time."""
    declared: bool = True
    """By a worker, because its code has it; else a person put it there at run time."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The record, as people read it."""

    name: str
    timing: Timing
    task: NewTask
    paused: bool
    created_at: datetime
    last_fired_at: datetime
    """The last instant that was dealt with, fired or passed over; at first when it was made."""
    declared_at: datetime | None
    """When a worker last said that its code has it; empty where a person put it there."""
