"""A task's life replayed from its events alone (contract C11.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from holdfast.model.event import Event
from holdfast.model.task import TaskStatus


class Folded(NamedTuple):
    """What the record shows at that point; `status` is None before the first event, and once the task is deleted."""

    status: TaskStatus | None
    attempt: int
    failures: int


UNBORN = Folded(None, 0, 0)

_BECOMES = {
    "task.ready": TaskStatus.QUEUED,
    "task.rearmed": TaskStatus.WAITING,
    "task.running": TaskStatus.RUNNING,
    "task.completed": TaskStatus.COMPLETED,
    "task.requeued": TaskStatus.QUEUED,
    "task.snoozed": TaskStatus.QUEUED,
    "task.released": TaskStatus.QUEUED,
    "task.canceled": TaskStatus.CANCELED,
    "task.deleted": None,
}


def fold(events: Iterable[Event]) -> Folded:
    """Status, attempt and failures after these events of one task, in their order."""
    folded = UNBORN
    for folded in stages(events):  # noqa: B007  the last one is the answer
        pass
    return folded


def stages(events: Iterable[Event]) -> Iterator[Folded]:
    """The same after each event."""
    folded = UNBORN
    for event in events:
        folded = _after(folded, event)
        yield folded


def _after(before: Folded, event: Event) -> Folded:
    payload = event.payload
    if event.kind == "task.enqueued":
        return Folded(TaskStatus(payload["status"]), 0, 0)
    if event.kind == "task.failed":
        status = TaskStatus.FAILED if payload["terminal"] else before.status
        return before._replace(status=status, failures=payload["failures"])
    if event.kind not in _BECOMES:
        return before
    attempt = payload["attempt"] if event.kind == "task.running" else before.attempt
    failures = payload["failures"] if event.kind == "task.requeued" else before.failures
    return Folded(_BECOMES[event.kind], attempt, failures)
