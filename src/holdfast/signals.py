"""What a handler can raise to say how its attempt ends.

They are BaseExceptions (but for Unrecoverable, which is an error), so that a handler's `except Exception` does not
swallow them.
"""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.settings import Span, seconds


class Snooze(BaseException):
    """Later: the task runs again after `delay`, and nothing is counted."""

    def __init__(self, delay: Span) -> None:
        self.delay_seconds = seconds(delay, what="the delay of Snooze")
        super().__init__(f"snoozed for {self.delay_seconds:g} s")


class Sleeping(BaseException):
    """The attempt ends here; the handler starts anew when the sleep is over. Raised by `ctx.sleep(…)`, not by you."""

    def __init__(self, left_seconds: float) -> None:
        self.left_seconds = left_seconds
        super().__init__(f"asleep for another {left_seconds:g} s")


class Retry(BaseException):
    """This attempt failed; try again after `after`, if the budget allows, instead of the task's own backoff."""

    def __init__(self, message: str = "the handler asked for a retry", *, after: Span | None = None) -> None:
        self.after_seconds = None if after is None else seconds(after, what="`after` of Retry")
        super().__init__(message)


class Unrecoverable(HoldfastError):
    """This can never work: the task becomes a dead letter now."""

    code = "unrecoverable"
