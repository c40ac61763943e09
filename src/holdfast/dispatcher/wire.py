"""The bodies of calls and answers, as JSON: what the dispatcher and its clients agree on, and nothing else.

JSON values of users (payloads, results, meta, rows) are `msgspec.Raw`. What callers send, admission.py checks and
writes anew; what they get is as it is stored. Here are only forms. Records that people read (Task, Event, QueueInfo, …)
are those of the model, so they have no second form.

Calls refuse fields that they do not know: a misspelt option must not be ignored. Answers may grow: clients ignore
fields that they do not know. So dispatchers are upgraded before those who call them.

Those that only one room needs stand beside it: wire_work.py, wire_flows.py, wire_data.py. Here is what they share, and
the forms of on_tasks.py and on_service.py.

Where a call names several things, the answer has one item each, in order: its value, or `error`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from holdfast.model.backoff import Backoff
from holdfast.model.event import Event
from holdfast.model.task import Task, TaskStatus
from holdfast.model.transition import Change
from holdfast.policy.admission import (
    MAX_ATTEMPTS_HIGHEST,
    PRIORITY_HIGHEST,
    PRIORITY_LOWEST,
    SPAN_LONGEST,
    WORKFLOW_TASKS,
)
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


# Tasks


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


# The service


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


# In several places


class CountAnswer(Answer, kw_only=True):
    count: int


class NameCall(Call, kw_only=True):
    name: Name


class DeletedAnswer(Answer, kw_only=True):
    deleted: bool
