"""What an operator's act does to a task, or why it is refused: table 18 of the contract, for everything but settles.

Asked about records whose lease, if any, is valid: a store reaps an expired attempt first, then asks about what that
left.
"""

from __future__ import annotations

from typing import Any

from holdfast.errors import HoldfastError
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change, Fact, Transition
from holdfast.policy import refusals, workflow
from holdfast.policy.verdict import Facts

Amendment = Transition | HoldfastError | None
"""A change to write, a refusal, or nothing to do. A transition that stays `running` records a cancel request."""


def amendment(
    change: Change,
    task_id: str,
    status: TaskStatus,
    facts: Facts,
    claimed_by: str | None,
    *,
    pending: int = 0,
    blocked_by: str | None = None,
) -> Amendment:
    """`pending`: how many parents it still waits for; `blocked_by`: one of them that failed or was canceled."""
    match change:
        case Change.CANCEL:
            return _cancel(task_id, status, facts)
        case Change.REQUEUE:
            return _requeue(task_id, status, facts, claimed_by, pending, blocked_by)
        case Change.RELEASE:
            return _release(task_id, status, facts)
        case Change.DELETE:
            return None if status.terminal else refusals.not_terminal(task_id, status)


def _cancel(task_id: str, status: TaskStatus, facts: Facts) -> Amendment:
    if status is TaskStatus.CANCELED:
        return None
    if status.terminal:
        return refusals.ended(task_id, status)
    if status is TaskStatus.RUNNING:
        return None if facts.cancel_requested else _to(TaskStatus.RUNNING, facts, "task.cancel_requested")
    return _to(TaskStatus.CANCELED, facts, "task.canceled")


def _requeue(
    task_id: str, status: TaskStatus, facts: Facts, claimed_by: str | None, pending: int, blocked_by: str | None
) -> Amendment:
    match status:
        case TaskStatus.QUEUED:
            return None
        case TaskStatus.WAITING:
            return refusals.waiting(task_id)
        case TaskStatus.RUNNING:
            return refusals.already_claimed(task_id, claimed_by)
        case TaskStatus.COMPLETED:
            return refusals.ended(task_id, status)
        case _ if blocked_by is not None:
            return refusals.parent_ended(task_id, blocked_by)
        case _ if pending:
            return workflow.rearmed(facts.attempt, facts.max_attempts, pending=pending)
        case _:
            return _back(facts, failures=0, reason="requeue")


def _release(task_id: str, status: TaskStatus, facts: Facts) -> Amendment:
    if status.terminal:
        return refusals.ended(task_id, status)
    if status is not TaskStatus.RUNNING:
        return refusals.not_claimed(task_id, status)
    if facts.cancel_requested:
        return _to(TaskStatus.CANCELED, facts, "task.canceled")
    return _back(facts, failures=facts.failures, reason="operator")


def _to(status: TaskStatus, facts: Facts, kind: str) -> Transition:
    return Transition(status=status, failures=facts.failures, facts=(Fact(kind, {"attempt": facts.attempt}),))


def _back(facts: Facts, *, failures: int, reason: str) -> Transition:
    data: dict[str, Any] = {
        "attempt": facts.attempt,
        "max_attempts": facts.max_attempts,
        "failures": failures,
        "delay_ms": 0,
        "reason": reason,
    }
    return Transition(status=TaskStatus.QUEUED, failures=failures, delay_ms=0, facts=(Fact("task.requeued", data),))
