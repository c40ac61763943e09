"""From what a handler returned or raised to the outcome of its attempt."""

from __future__ import annotations

from typing import Any

from holdfast.errors import InvalidTask, PayloadTooLarge
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Outcome, Snoozed
from holdfast.policy.admission import json_text
from holdfast.policy.error_text import error_info
from holdfast.registry import Definition
from holdfast.signals import Retry, Sleeping, Snooze, Unrecoverable

_NOTHING = Completed("null")


def returned(definition: Definition, value: Any) -> Outcome:
    if value is None:
        return _NOTHING
    try:
        return Completed(json_text(value, what=f"the result of {definition.name!r}"))
    except PayloadTooLarge as refused:
        return Failed(ErrorInfo(str(refused), "result_too_large"), unrecoverable=True)
    except InvalidTask as refused:
        return Failed(ErrorInfo(str(refused), "result_not_json"), unrecoverable=True)


def raised(definition: Definition, error: BaseException) -> Outcome:
    match error:
        case Snooze():
            return Snoozed(error.delay_seconds)
        case Sleeping():
            return Snoozed(error.left_seconds)
        case Retry():
            return Failed(error_info(error, code="retry"), retry_after_seconds=error.after_seconds)
        case Unrecoverable():
            return Failed(error_info(error, code="unrecoverable"), unrecoverable=True)
    hopeless = isinstance(error, definition.give_up_on) or (
        bool(definition.retry_on) and not isinstance(error, definition.retry_on)
    )
    return Failed(error_info(error), unrecoverable=hopeless)
