"""What follows from an outcome (contract section 7, C6.5, C8.2). The heart of the system.

Decided from the record's own facts, so that a worker, the reaper and a dispatcher reach the same verdict without the
handler's code. Stores write the answer atomically, with its facts as events; none of them repeats a rule of this page.

    cancel requested, and anything but completed ──► canceled
    completed ──► completed
    recorded, but it is not ──► as failed: what the handler wrote with it was rolled back
    failed, expired ──► queued after its backoff, while failures + 1 < max_attempts; else failed
    snoozed, released ──► queued, nothing counted
    canceled ──► canceled
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.backoff import Backoff
from holdfast.model.outcome import (
    Canceled,
    Completed,
    ErrorInfo,
    Expired,
    Failed,
    Outcome,
    Recorded,
    Released,
    Snoozed,
)
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Fact, Transition
from holdfast.policy.backoff import Rng, delay_ms

LEASE_EXPIRED = "lease_expired"
UNDONE = ErrorInfo("the transaction in which the handler completed the task was not committed", "completion_undone")


class Facts(msgspec.Struct, frozen=True, gc=False):
    """What of a running record matters for its verdict."""

    attempt: int
    failures: int
    max_attempts: int
    backoff: Backoff
    cancel_requested: bool
    last_error_code: str | None


def verdict(facts: Facts, outcome: Outcome | Expired, rng: Rng) -> Transition:
    if facts.cancel_requested and not isinstance(outcome, Completed):
        return _canceled(facts)
    match outcome:
        case Completed(result):
            return Transition(
                status=TaskStatus.COMPLETED,
                failures=facts.failures,
                result=result,
                facts=(Fact("task.completed", {"attempt": facts.attempt}),),
            )
        case Recorded():
            return verdict(facts, Failed(UNDONE), rng)
        case Failed(error, unrecoverable, retry_after):
            if unrecoverable or _spent(facts):
                return _dead(facts, error)
            if retry_after is not None:
                return _retry(facts, error, round(retry_after * 1000))
            return _retry(facts, error, delay_ms(facts.backoff, facts.failures + 1, rng))
        case Expired():
            error = ErrorInfo("the lease expired before the attempt was settled", LEASE_EXPIRED)
            if _spent(facts):
                return _dead(facts, error)
            in_a_row = facts.failures > 0 and facts.last_error_code == LEASE_EXPIRED
            return _retry(facts, error, delay_ms(facts.backoff, facts.failures + 1, rng) if in_a_row else 0)
        case Snoozed(delay_seconds):
            delay = round(delay_seconds * 1000)
            return _back(facts, "task.snoozed", delay)
        case Released():
            return _back(facts, "task.released", None)
        case Canceled():
            return _canceled(facts)


def _spent(facts: Facts) -> bool:
    return facts.max_attempts != 0 and facts.failures + 1 >= facts.max_attempts


def _retry(facts: Facts, error: ErrorInfo, delay: int) -> Transition:
    counted = {"attempt": facts.attempt, "max_attempts": facts.max_attempts, "failures": facts.failures + 1}
    return Transition(
        status=TaskStatus.QUEUED,
        failures=facts.failures + 1,
        delay_ms=delay,
        error=_last_error(facts, error, terminal=False) | {"backoff_ms": delay},
        facts=(
            Fact("task.failed", counted | {"terminal": False, "backoff_ms": delay, "error": _short(error)}),
            Fact("task.requeued", counted | {"delay_ms": delay, "reason": "retry"}),
        ),
    )


def _dead(facts: Facts, error: ErrorInfo) -> Transition:
    counted = {"attempt": facts.attempt, "max_attempts": facts.max_attempts, "failures": facts.failures + 1}
    return Transition(
        status=TaskStatus.FAILED,
        failures=facts.failures + 1,
        error=_last_error(facts, error, terminal=True),
        facts=(Fact("task.failed", counted | {"terminal": True, "error": _short(error)}),),
    )


def _back(facts: Facts, kind: str, delay: int | None) -> Transition:
    data: dict[str, Any] = {"attempt": facts.attempt}
    if delay is not None:
        data["delay_ms"] = delay
    return Transition(status=TaskStatus.QUEUED, failures=facts.failures, delay_ms=delay, facts=(Fact(kind, data),))


def _canceled(facts: Facts) -> Transition:
    return Transition(
        status=TaskStatus.CANCELED,
        failures=facts.failures,
        facts=(Fact("task.canceled", {"attempt": facts.attempt}),),
    )


def _last_error(facts: Facts, error: ErrorInfo, *, terminal: bool) -> dict[str, Any]:
    known = {"message": error.message, "code": error.code, "stack": error.stack}
    return {key: text for key, text in known.items() if text is not None} | {
        "attempt": facts.attempt,
        "max_attempts": facts.max_attempts,
        "terminal": terminal,
    }


def _short(error: ErrorInfo) -> dict[str, str]:
    return {"message": error.message} | ({"code": error.code} if error.code is not None else {})
