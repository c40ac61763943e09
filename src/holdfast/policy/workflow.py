"""What the end of a task means for those that wait for it, and what a workflow may look like (contract section 10).

Stores keep the edges and the numbers; docs/adr/0012-workflows.md says how they count.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum, auto

from holdfast.errors import InvalidTask
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Fact, Transition
from holdfast.model.workflow import RunInfo, RunStatus

INLINE_EACH = 100
"""So many dependents of one ended task are advanced with its settle; more are left to advance()."""
INLINE_ALL = 1000
"""And so many in one settle."""
BUCKETS_FROM = 65
"""A task with so many parents or more counts them in buckets, where one row must not be written by every settle."""
RUNS_ANYWAY = "run"
LIVE = (TaskStatus.WAITING, TaskStatus.QUEUED, TaskStatus.RUNNING)


def check(tasks: Sequence[NewTask]) -> None:
    """Every parent stands before its child in the same submit and in the same run; or InvalidTask."""
    if not any(new.parents or new.fail_fast or new.inputs for new in tasks):
        return
    seen: dict[str, NewTask] = {}
    for new in tasks:
        if not new.parents and any(pin.version is None for pin in new.inputs):
            raise InvalidTask(f"{new.name} reads what a parent writes (inputs={{…: 'parent'}}), but has no parent")
        for parent in new.parents:
            _check_edge(seen.get(parent), parent, new)
        if new.fail_fast is not None and new.run_id is None:
            raise InvalidTask(f"task {new.id} ({new.name}) fails fast but belongs to no run")
        if new.on_parent_failure not in ("cancel", RUNS_ANYWAY):
            raise InvalidTask(f"on_parent_failure is {new.on_parent_failure!r}; give 'cancel' or 'run'")
        seen[new.id] = new


def _check_edge(parent: NewTask | None, parent_id: str, child: NewTask) -> None:
    if parent is None:
        raise InvalidTask(
            f"task {child.id} ({child.name}) waits for {parent_id}, which does not stand before it in the same submit"
        )
    if child.run_id is None or parent.run_id != child.run_id:
        raise InvalidTask(f"task {child.id} ({child.name}) and its parent {parent_id} do not belong to the same run")


def dependents(tasks: Sequence[NewTask]) -> dict[str, int]:
    """How many edges leave each task of a submit; those without any are missing."""
    numbers: dict[str, int] = {}
    for new in tasks:
        for parent in new.parents:
            numbers[parent] = numbers.get(parent, 0) + 1
    return numbers


def bucket_size(parents: int) -> int:
    """How many parents share a bucket; 0: they are counted one by one."""
    return math.isqrt(parents - 1) + 1 if parents >= BUCKETS_FROM else 0


class Effect(Enum):
    """What the end of a parent does to one child."""

    COUNT = auto()
    """One less to wait for; the child is ready when it was the last."""
    CANCEL = auto()
    NOTHING = auto()


def effect(parent: TaskStatus, child: TaskStatus, on_parent_failure: str, *, counted: bool) -> Effect:
    """`counted`: this edge was, at an earlier end of the parent."""
    if parent not in (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELED):
        return Effect.NOTHING
    if parent is TaskStatus.COMPLETED or on_parent_failure == RUNS_ANYWAY:
        return Effect.NOTHING if counted else Effect.COUNT
    return Effect.CANCEL if child is TaskStatus.WAITING else Effect.NOTHING


def cause(task_id: str, canceled_because: str | None) -> str:
    """What those that depend on this ended task are canceled because of: the root.

    A member that still runs when what it was asked to stop for is requeued may have been told already, and end
    canceled. It then ends because of itself: what depends on it is canceled with it and comes back with it, but it does
    not make the others fail fast once more.
    """
    return canceled_because or task_id


def ready() -> Transition:
    """The last parent has ended. When it is due: due_at()."""
    return Transition(status=TaskStatus.QUEUED, failures=0, facts=(Fact("task.ready", {"attempt": 0}),))


def due_at(now: int, run_at: int, delay: int, *, given: bool) -> int:
    """A delay is counted from the promotion; a time that was `given` holds, unless it is over. Microseconds."""
    return max(now, run_at) if given else now + delay


def canceled(attempt: int, failures: int, because: str) -> Transition:
    return Transition(
        status=TaskStatus.CANCELED,
        failures=failures,
        facts=(Fact("task.canceled", {"attempt": attempt, "because": because}),),
    )


def asked(attempt: int, failures: int, because: str) -> Transition:
    """A running member of a run that fails fast."""
    fact = Fact("task.cancel_requested", {"attempt": attempt, "because": because})
    return Transition(status=TaskStatus.RUNNING, failures=failures, facts=(fact,))


def rearmed(attempt: int, max_attempts: int, *, pending: int) -> Transition:
    """What had canceled this task is undone. It waits again, or, where it waited for nothing, is queued again."""
    if pending:
        return Transition(status=TaskStatus.WAITING, failures=0, facts=(Fact("task.rearmed", {"attempt": attempt}),))
    data = {"attempt": attempt, "max_attempts": max_attempts, "failures": 0, "delay_ms": 0, "reason": "rearm"}
    return Transition(status=TaskStatus.QUEUED, failures=0, delay_ms=0, facts=(Fact("task.requeued", data),))


def run_info(
    run_id: str, counts: Mapping[str, int], last: Mapping[str, int], *, began_at: datetime, ended_at: datetime | None
) -> RunInfo:
    """`counts` and `last` as for run_status(); `ended_at`: of the task that ended last so far."""
    status = run_status(counts, last)
    return RunInfo(
        id=run_id,
        status=status,
        counts={name: number for name, number in counts.items() if number},
        created_at=began_at,
        finished_at=None if status is RunStatus.RUNNING else ended_at,
    )


def run_status(counts: Mapping[str, int], last: Mapping[str, int]) -> RunStatus:
    """`counts`: all tasks of a run by status; `last`: those that nobody waits for. A failure that the last ones have
    outlived (`on_parent_failure="run"`) is not the run's.
    """
    if any(counts.get(status.value) for status in LIVE):
        return RunStatus.RUNNING
    if not any(number for status, number in last.items() if status != TaskStatus.COMPLETED.value):
        return RunStatus.COMPLETED
    return RunStatus.FAILED if counts.get(TaskStatus.FAILED.value) else RunStatus.CANCELED
