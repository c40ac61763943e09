"""How long a lease is (contract C5.3, C6.2, C7.7). Spans in microseconds."""

from __future__ import annotations

from holdfast.clock import span_micros

TIMEOUT_GRACE_SECONDS = 30.0


def lease_length(*, worker_seconds: float, task_seconds: float | None) -> int:
    """The task's own, else the worker's."""
    return span_micros(worker_seconds if task_seconds is None else task_seconds)


def extended_until(now: int, *, length: int, expires_at: int, claimed_at: int, timeout: float | None) -> int:
    """By its length from now, but not past claim + timeout + grace: a worker that cannot end its handler cannot keep
    the task either. A first lease that reaches further is left as it is."""
    if timeout is None:
        return now + length
    return max(expires_at, min(now + length, claimed_at + span_micros(timeout + TIMEOUT_GRACE_SECONDS)))
