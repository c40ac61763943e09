"""What a GET may ask for: the parameters behind the `?`, by route. Read strictly: an unknown one is refused."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from holdfast.dispatcher.wire import PAGE_MOST, WAIT_LONGEST_SECONDS, Key, Name
from holdfast.model.outbox import OutboxState
from holdfast.model.task import TaskStatus

InstantText = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
"""A text until it is read: a bare number is no instant, as it would be where texts become what they look like."""
Limit = Annotated[int, Meta(ge=1, le=PAGE_MOST)]
Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Version = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Wait = Annotated[float, Meta(ge=0, le=WAIT_LONGEST_SECONDS)]


class Query(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The parameters of one GET."""


class TasksQuery(Query, kw_only=True):
    status: TaskStatus | None = None
    queue: Name | None = None
    name: Name | None = None
    run_id: Name | None = None
    last: bool = False
    """Only tasks that no other waits for."""
    finished_before: InstantText | None = None
    limit: Limit = 100
    after: Key | None = None


class KeyQuery(Query, kw_only=True):
    key: Name


class EventsQuery(Query, kw_only=True):
    """`follow=true`, or `Accept: text/event-stream`: as a stream of server-sent events. `after=now`: those that are
    recorded from now on.
    """

    after: Number | Literal["now"] = 0
    limit: Limit = 100
    follow: bool = False


class OffsetQuery(Query, kw_only=True):
    after: Number = 0
    limit: Limit = 100


class WakeupsQuery(Query, kw_only=True):
    """`kind=work`: something may be claimable; `kind=ends`: some task has ended."""

    kind: Literal["work", "ends"] = "work"
    seen: Key | None = None
    wait: Wait = 20.0


class RunsQuery(Query, kw_only=True):
    limit: Limit = 100
    after: Name | None = None


class RunQuery(Query, kw_only=True):
    run_id: Name


class DatasetsQuery(Query, kw_only=True):
    limit: Limit = 100
    after: Name | None = None


class VersionsQuery(Query, kw_only=True):
    dataset: Name
    limit: Limit = 100
    before: Version | None = None


class VersionQuery(Query, kw_only=True):
    dataset: Name
    version: Version | None = None


class RowsQuery(Query, kw_only=True):
    dataset: Name
    version: Version
    after: Name | None = None
    limit: Limit = 100


class OutboxQuery(Query, kw_only=True):
    sink: Name | None = None
    state: OutboxState | None = None
    limit: Limit = 100
    after: Number = 0
