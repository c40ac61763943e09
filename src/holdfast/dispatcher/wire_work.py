"""The forms of on_work.py: claims, leases, settlements, steps, workers. What holds for all forms is said in wire.py."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.dispatcher.wire import (
    BATCH_MOST,
    CLAIMS_MOST,
    WAIT_LONGEST_SECONDS,
    Answer,
    Attempt,
    Call,
    Id,
    Key,
    Length,
    Millis,
    Name,
    NewTaskIn,
    Refused,
)
from holdfast.model.output import Mode
from holdfast.model.query import WorkerInfo
from holdfast.model.task import TaskStatus


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


class WakeupsAnswer(Answer, kw_only=True):
    woken: bool
    seen: str
    """Say it with the next call, and nothing that happens between the two is missed."""


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
