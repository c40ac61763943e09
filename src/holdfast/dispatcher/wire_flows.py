"""The forms of on_flows.py: queues and their limits, runs, schedules. What holds for all forms is said in wire.py."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.dispatcher.wire import (
    PAGE_MOST,
    Answer,
    Call,
    Count,
    Instant,
    Name,
    NewTaskIn,
    Span,
)
from holdfast.model.backoff import Backoff
from holdfast.model.limits import Rate
from holdfast.model.query import QueueInfo
from holdfast.model.schedule import Timing
from holdfast.model.workflow import RunInfo
from holdfast.policy.firing import MISSED_MOST


class QueuesAnswer(Answer, kw_only=True):
    queues: list[QueueInfo]
    oldest_due: dict[str, datetime] = {}
    """By queue, since when the task is due that has waited longest; without those where none is."""


class PauseQueueCall(Call, kw_only=True):
    queue: Name
    paused: bool = True


class LimitCall(Call, kw_only=True):
    """What is absent stays; null clears it."""

    queue: Name
    max_running: Count | UnsetType | None = UNSET
    rate: str | Rate | UnsetType | None = UNSET
    """`"100/s"`, `"500/15m"`; or a count per period in seconds."""
    burst: Count | UnsetType | None = UNSET
    max_running_per_key: Count | UnsetType | None = UNSET


class RunsAnswer(Answer, kw_only=True):
    runs: list[RunInfo]


class RunLivesAnswer(Answer, kw_only=True):
    lives: bool


class RunCall(Call, kw_only=True):
    run_id: Name


class AdvanceCall(Call, kw_only=True):
    limit: Annotated[int, Meta(ge=1, le=PAGE_MOST)] = 500


class TimingIn(Call, kw_only=True):
    cron: str | None = None
    timezone: str = "UTC"
    every: Span | None = None
    jitter: Span = 0.0
    missed: Literal["skip", "once", "all"] = "once"
    missed_most: Annotated[int, Meta(ge=1, le=MISSED_MOST)] = 100


class DeclareScheduleCall(Call, kw_only=True):
    """`task` without id, key and time: those are the schedule's."""

    name: Name
    timing: TimingIn
    task: NewTaskIn
    declared: bool = False


class TemplateOut(Answer, kw_only=True):
    """The task of a schedule: what a NewTaskIn would say."""

    name: str
    payload: Raw
    queue: str
    priority: int
    max_attempts: int
    backoff: Backoff
    timeout: float | None
    lease: float | None
    concurrency_key: str | None
    run_id: str | None
    meta: Raw
    inputs: dict[str, int | str]


class ScheduleOut(Answer, kw_only=True):
    name: str
    timing: Timing
    task: TemplateOut
    paused: bool
    created_at: datetime
    last_fired_at: datetime
    declared_at: datetime | None


class SchedulesAnswer(Answer, kw_only=True):
    schedules: list[ScheduleOut]


class FireCall(Call, kw_only=True):
    name: Name
    last_fired_at: Instant
    upto: Instant
    tasks: Annotated[list[NewTaskIn], Meta(max_length=1000)]


class FiredAnswer(Answer, kw_only=True):
    fired: bool


class PauseScheduleCall(Call, kw_only=True):
    name: Name
    paused: bool = True
