"""How an attempt ended, in the words of the one who ran it. What follows from it is decided in policy/verdict.py."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from holdfast.model.claim import Lease
from holdfast.model.output import Output
from holdfast.model.task import NewTask


class ErrorInfo(msgspec.Struct, frozen=True):
    """What went wrong: sanitised and bounded (see policy/error_text.py)."""

    message: str
    code: str | None = None
    stack: str | None = None


class Completed(msgspec.Struct, frozen=True, gc=False, tag="completed"):
    kind: ClassVar[str] = "completed"
    result: str = "null"


class Recorded(msgspec.Struct, frozen=True, tag="recorded"):
    """Completed already, by the handler itself, in a transaction of its own (C7.6).

    To a store that has recorded it this is the completion once more. To one that has not, it says that the transaction
    was never committed.
    """

    kind: ClassVar[str] = "completed"


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    kind: ClassVar[str] = "failed"
    error: ErrorInfo
    unrecoverable: bool = False
    retry_after_seconds: float | None = None


class Snoozed(msgspec.Struct, frozen=True, tag="snoozed"):
    kind: ClassVar[str] = "snoozed"
    delay_seconds: float


class Released(msgspec.Struct, frozen=True, tag="released"):
    """Given back unfinished, by a worker that shuts down."""

    kind: ClassVar[str] = "released"


class Canceled(msgspec.Struct, frozen=True, tag="canceled"):
    kind: ClassVar[str] = "canceled"


class Expired(msgspec.Struct, frozen=True, tag="expired"):
    """Said by the reaper, of an attempt whose lease ran out. The only outcome that needs an expired lease."""

    kind: ClassVar[str] = "expired"


Outcome = Completed | Recorded | Failed | Snoozed | Released | Canceled
"""What the owner of a lease can say."""


class Emitted(msgspec.Struct, frozen=True):
    """An event of the handler's own, recorded with the settle."""

    kind: str
    data: Any


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """One attempt's end, with what is to be recorded in the same atomic step."""

    lease: Lease
    outcome: Outcome
    emitted: tuple[Emitted, ...] = ()
    follow_ups: tuple[NewTask, ...] = ()
    outputs: tuple[Output, ...] = ()
    """One per dataset, by name; written only with a completion."""
