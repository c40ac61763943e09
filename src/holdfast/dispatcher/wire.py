"""The bodies of calls and answers, as JSON: what the dispatcher and its clients agree on, and nothing else.

JSON values of users (payloads, results, meta, rows) are `msgspec.Raw`. What callers send, admission.py checks and
writes anew; what they get is as it is stored. Here are only forms. Records that people read (Task, Event, QueueInfo, …)
are those of the model, so they have no second form.

Calls refuse fields that they do not know: a misspelt option must not be ignored. Answers may grow: clients ignore
fields that they do not know. So dispatchers are upgraded before those who call them.

Where a call names several things, the answer has one item each, in order: its value, or `error`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.model.backoff import Backoff
from holdfast.model.event import Event
from holdfast.model.limits import Rate
from holdfast.model.outbox import Effect, OutboxRow, Sink
from holdfast.model.output import DatasetInfo, DatasetVersion, Mode
from holdfast.model.query import QueueInfo, WorkerInfo
from holdfast.model.schedule import Timing
from holdfast.model.task import Task, TaskStatus
from holdfast.model.transition import Change
from holdfast.model.workflow import RunInfo
from holdfast.policy.admission import (
    MAX_ATTEMPTS_HIGHEST,
    PRIORITY_HIGHEST,
    PRIORITY_LOWEST,
    SPAN_LONGEST,
    WORKFLOW_TASKS,
)
from holdfast.policy.firing import MISSED_MOST
from holdfast.policy.limits import MOST
from holdfast.stores.protocol import Capabilities

PAGE_MOST = 1000
"""Records per page."""
CLAIMS_MOST = 1000
BATCH_MOST = 10_000
"""Leases, settlements, ids per call."""
TASKS_MOST = WORKFLOW_TASKS
"""Tasks per submit; a body is bounded as well (bodies.py)."""
WAIT_LONGEST_SECONDS = 60.0

Id = Annotated[
    str,
    Meta(max_length=36, pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$", description="A UUID in lower case."),
]
Key = Annotated[
    str, Meta(max_length=512, description="What something is looked up by; what is not there is not found.")
]
Name = Annotated[str, Meta(min_length=1, max_length=512, pattern="^[^\\x00-\\x1f\\x7f-\\x9f]*$(?!\\n)")]
"""Without the last part a line break would pass at the end: `$` matches before it."""
Attempt = Annotated[int, Meta(ge=0, le=2**31 - 1)]
Instant = Annotated[datetime, Meta(tz=True)]
Span = Annotated[float, Meta(ge=0, le=SPAN_LONGEST, description="Seconds.")]
Millis = Annotated[float, Meta(ge=0, le=1000 * SPAN_LONGEST)]
Length = Annotated[float, Meta(ge=0.001, le=SPAN_LONGEST, description="Seconds.")]
Priority = Annotated[int, Meta(ge=PRIORITY_LOWEST, le=PRIORITY_HIGHEST)]
Budget = Annotated[int, Meta(ge=0, le=MAX_ATTEMPTS_HIGHEST)]
Count = Annotated[int, Meta(ge=1, le=MOST)]


class Call(msgspec.Struct, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is sent."""


class Answer(msgspec.Struct, kw_only=True):
    """What comes back."""


class Problem(Answer, kw_only=True, omit_defaults=True):
    """An error, as application/problem+json (RFC 9457) with our code."""

    type: str
    title: str
    status: int
    code: str
    detail: str


class Refused(Answer, kw_only=True):
    """Why one item of several was refused."""

    code: str
    detail: str


class Done(Answer, kw_only=True):
    """Nothing more to say."""


# Submit


class NewTaskIn(Call, kw_only=True, gc=False):
    """A task to be submitted. Without an `id` the dispatcher makes one: then a call whose answer was lost is only safe
    to repeat with an `idempotency_key`.
    """

    name: Name
    payload: Raw
    id: Id | None = None
    queue: Name = "default"
    priority: Priority = 0
    run_at: Instant | None = None
    delay_seconds: Span = 0.0
    max_attempts: Budget | None = None
    backoff: Backoff | None = None
    timeout: Length | None = None
    lease: Length | None = None
    idempotency_key: Name | None = None
    concurrency_key: Name | None = None
    run_id: Name | None = None
    parents: list[Id] = []
    on_parent_failure: Literal["cancel", "run"] = "cancel"
    fail_fast: Name | None = None
    meta: Raw | UnsetType = UNSET
    inputs: dict[str, int | str] = {}


class SubmitCall(Call, kw_only=True):
    tasks: Annotated[list[NewTaskIn], Meta(max_length=TASKS_MOST)]


class SubmittedOut(Answer, kw_only=True, gc=False):
    id: str
    created: bool


class SubmitAnswer(Answer, kw_only=True):
    tasks: list[SubmittedOut]


# Claim


class TaskClaimCall(Call, kw_only=True):
    """The source document's claim: one task by its id."""

    task_id: Key
    worker_id: Name
    claim_id: Id | None = None
    lease_seconds: Length = 60.0


class ClaimCall(Call, kw_only=True):
    """`claim_id`: the same call again, after a lost answer, gets the same leases."""

    worker_id: Name
    claim_id: Id | None = None
    queues: list[Name] | None = None
    limit: Annotated[int, Meta(ge=1, le=CLAIMS_MOST)] = 1
    lease_seconds: Length = 60.0
    task_id: Key | None = None
    wait_seconds: Annotated[float, Meta(ge=0, le=WAIT_LONGEST_SECONDS)] = 0.0


class ClaimOut(Answer, kw_only=True, gc=False):
    """A lease, and what the handler needs of its task."""

    task_id: str
    attempt: int
    lease_token: str
    lease_expires_at: datetime
    lease_seconds: float
    worker_id: str
    name: str
    queue: str
    payload: Raw
    priority: int
    failures: int
    max_attempts: int
    timeout: float | None
    run_id: str | None
    meta: Raw
    created_at: datetime
    claimed_at: datetime


class ClaimAnswer(Answer, kw_only=True):
    claims: list[ClaimOut]
    next_due_at: datetime | None
    """When the next task of these queues falls due; only where fewer than `limit` were claimable."""
    more: bool


# Keep, report, settle


class LeaseIn(Call, kw_only=True, gc=False):
    task_id: Key
    attempt: Attempt
    lease_token: Key


class ExtendCall(Call, kw_only=True):
    leases: Annotated[list[LeaseIn], Meta(max_length=BATCH_MOST)]


class ExtendedOut(Answer, kw_only=True):
    lease_expires_at: datetime
    cancel_requested: bool


class ExtendedItem(Answer, kw_only=True, omit_defaults=True):
    lease_expires_at: datetime | None = None
    cancel_requested: bool = False
    error: Refused | None = None


class ExtendAnswer(Answer, kw_only=True):
    leases: list[ExtendedItem]


class ErrorIn(Call, kw_only=True):
    message: str
    code: str | None = None
    stack: str | None = None
    unrecoverable: bool = False
    retry_after_ms: Millis | None = None


class OutputRowIn(Call, kw_only=True, gc=False):
    key: Name
    value: Raw


class OutputIn(Call, kw_only=True):
    dataset: Name
    mode: Mode = Mode.APPEND
    rows: list[OutputRowIn]


class EmittedIn(Call, kw_only=True):
    kind: Name
    payload: Raw


class SettlementIn(LeaseIn, kw_only=True):
    """How an attempt ended. What follows is not the caller's to say: the store reaches the verdict."""

    status: Literal["completed", "failed", "canceled", "snoozed", "released"]
    result: Raw | UnsetType = UNSET
    error: ErrorIn | None = None
    delay_ms: Millis | None = None
    outputs: list[OutputIn] = []
    events: list[EmittedIn] = []
    follow_ups: list[NewTaskIn] = []


class SettleCall(Call, kw_only=True):
    settlements: Annotated[list[SettlementIn], Meta(max_length=BATCH_MOST)]


class SettledOut(Answer, kw_only=True):
    task_id: str
    attempt: int
    status: TaskStatus
    """Of the task now."""


class SettledItem(Answer, kw_only=True, omit_defaults=True):
    task_id: str | None = None
    attempt: int | None = None
    status: TaskStatus | None = None
    error: Refused | None = None


class SettleAnswer(Answer, kw_only=True):
    settlements: list[SettledItem]


class ReportCall(LeaseIn, kw_only=True):
    kind: Name
    data: Raw


class StepCall(LeaseIn, kw_only=True):
    name: Name
    result: Raw


class StepOut(Answer, kw_only=True):
    name: str
    result: Raw
    at: datetime


class StepsAnswer(Answer, kw_only=True):
    steps: list[StepOut]


# Read


class TasksAnswer(Answer, kw_only=True):
    tasks: list[Task]
    after: str | None
    """Where the next page begins; None: this was the last."""


class EndedCall(Call, kw_only=True):
    ids: Annotated[list[Key], Meta(max_length=TASKS_MOST)]
    limit: Annotated[int, Meta(ge=1, le=PAGE_MOST)] = 100


class EndedAnswer(Answer, kw_only=True):
    tasks: dict[str, Task | None]


class EventsAnswer(Answer, kw_only=True):
    events: list[Event]
    after: int
    """The next page begins here, also where this one is empty."""


class ParentOut(Answer, kw_only=True):
    task_id: str
    name: str
    status: TaskStatus
    result: Raw
    """Of a completed one; else null."""
    error: dict[str, Any] | None


class ParentsAnswer(Answer, kw_only=True):
    parents: list[ParentOut]


class PinnedAnswer(Answer, kw_only=True):
    inputs: dict[str, int | None]


class WakeupsAnswer(Answer, kw_only=True):
    woken: bool
    seen: str
    """Say it with the next call, and nothing that happens between the two is missed."""


class NowAnswer(Answer, kw_only=True):
    now: datetime


class StoreAnswer(Answer, kw_only=True):
    label: str
    version: str
    capabilities: Capabilities
    now: datetime


class CheckOut(Answer, kw_only=True):
    question: str
    well: bool | None
    words: str


class CheckAnswer(Answer, kw_only=True):
    checks: list[CheckOut]


# Acts


class AmendCall(Call, kw_only=True):
    change: Change
    ids: Annotated[list[Key], Meta(max_length=BATCH_MOST)]
    actor: Name | None = None


class AmendedOut(Answer, kw_only=True):
    task_id: str
    status: TaskStatus | None
    changed: bool


class AmendedItem(Answer, kw_only=True, omit_defaults=True):
    task_id: str | None = None
    status: TaskStatus | None = None
    changed: bool = False
    error: Refused | None = None


class AmendAnswer(Answer, kw_only=True):
    tasks: list[AmendedItem]


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


class CountAnswer(Answer, kw_only=True):
    count: int


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


class NameCall(Call, kw_only=True):
    name: Name


class DeletedAnswer(Answer, kw_only=True):
    deleted: bool


class EnrollCall(Call, kw_only=True):
    """A worker says that it is there; again every ten seconds or so."""

    id: Name
    host: Key = ""
    pid: Annotated[int, Meta(ge=0, le=2**31 - 1)] = 0
    queues: list[Name] | None = None
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] = 1
    version: Key = ""
    names: list[Name] = []


class LeaveCall(Call, kw_only=True):
    """A worker says that it goes. `leases`: what it still holds, which is ended; without them it runs out by itself."""

    worker_id: Name
    leases: Annotated[list[LeaseIn], Meta(max_length=BATCH_MOST)] = []


class WorkersAnswer(Answer, kw_only=True):
    workers: list[WorkerInfo]


class DatasetsAnswer(Answer, kw_only=True):
    datasets: list[DatasetInfo]


class VersionsAnswer(Answer, kw_only=True):
    versions: list[DatasetVersion]


class RowOut(Answer, kw_only=True, gc=False):
    key: str
    value: Raw


class RowsAnswer(Answer, kw_only=True):
    rows: list[RowOut]


class SinkCall(Call, kw_only=True):
    name: Name
    url: Name
    effect: Effect
    kinds: list[Name] | None = None
    queues: list[Name] | None = None
    secret: Name | None = None
    private: bool = False


class SinksAnswer(Answer, kw_only=True):
    sinks: list[Sink]


class OutboxAnswer(Answer, kw_only=True):
    rows: list[OutboxRow]
    after: int


class RowsCall(Call, kw_only=True):
    ids: Annotated[list[Annotated[int, Meta(ge=0, le=2**63 - 1)]], Meta(max_length=BATCH_MOST)]
