"""The errors with which every store refuses, in one wording (contract sections 15 and 18)."""

from __future__ import annotations

from holdfast.clock import iso
from holdfast.errors import (
    DatasetNotFound,
    HoldfastError,
    IdempotencyConflict,
    InvalidTask,
    LeaseLost,
    RunNotFound,
    ScheduleNotFound,
    TaskAlreadyClaimed,
    TaskCanceled,
    TaskCompleted,
    TaskFailed,
    TaskNotClaimed,
    TaskNotFound,
    TaskNotReady,
)
from holdfast.model.claim import Lease
from holdfast.model.task import TaskStatus


def not_found(task_id: str) -> TaskNotFound:
    return TaskNotFound(f"there is no task {task_id}; it was never submitted here, or has been deleted or pruned")


def key_not_found(key: str) -> TaskNotFound:
    return TaskNotFound(f"there is no task with the idempotency key {key!r}")


def run_not_found(run_id: str) -> RunNotFound:
    return RunNotFound(
        f"there is no run {run_id}; it was never submitted here, or its tasks have been deleted or pruned"
    )


def dataset_not_found(dataset: str, version: int | None) -> DatasetNotFound:
    if version is None:
        return DatasetNotFound(f"there is no dataset {dataset!r}; `holdfast datasets list` shows those that there are")
    return DatasetNotFound(
        f"there is no version {version} of dataset {dataset!r}; it was never written, or has been pruned"
    )


def lease_lost(lease: Lease, why: str) -> LeaseLost:
    return LeaseLost(
        f"attempt {lease.attempt} of task {lease.task_id} does not hold its lease: {why}; nothing was changed"
    )


def why_lost(lease: Lease, *, status: TaskStatus, attempt: int) -> str:
    """In words, for a lease that is not current."""
    if status is not TaskStatus.RUNNING:
        return f"the task is {status.value}"
    if attempt != lease.attempt:
        return f"attempt {attempt} is running"
    return "the token is not that of this attempt, or the lease has expired"


def ended(task_id: str, status: TaskStatus) -> HoldfastError:
    """For a verb that a terminal task refuses."""
    if status is TaskStatus.COMPLETED:
        return TaskCompleted(f"task {task_id} is completed")
    if status is TaskStatus.FAILED:
        return TaskFailed(
            f"task {task_id} has failed and is a dead letter; requeue it with `holdfast dlq requeue {task_id}`"
        )
    return TaskCanceled(f"task {task_id} is canceled; requeue it with `holdfast tasks retry {task_id}`")


def already_claimed(task_id: str, worker_id: str | None) -> TaskAlreadyClaimed:
    return TaskAlreadyClaimed(f"task {task_id} is running on worker {worker_id}; cancel it, or release it by force")


def not_claimed(task_id: str, status: TaskStatus) -> TaskNotClaimed:
    return TaskNotClaimed(f"task {task_id} is {status.value}; nobody holds a lease on it")


def not_due(task_id: str, run_at: int) -> TaskNotReady:
    return TaskNotReady(f"task {task_id} is not due before {iso(run_at)}")


def waiting(task_id: str) -> TaskNotReady:
    return TaskNotReady(f"task {task_id} waits for its parents")


def paused(task_id: str, queue: str) -> TaskNotReady:
    return TaskNotReady(
        f"task {task_id} is held: queue {queue!r} is paused; resume it with `holdfast queues resume {queue}`"
    )


def parent_ended(task_id: str, parent_id: str) -> TaskNotReady:
    return TaskNotReady(
        f"task {task_id} waits for task {parent_id}, which has ended without a result; requeue that one with "
        f"`holdfast tasks retry {parent_id}`, and this one follows"
    )


def held(task_id: str, why: str) -> TaskNotReady:
    """By a limit; `why` is from policy/limits.py."""
    return TaskNotReady(f"task {task_id} is held: {why}")


def not_terminal(task_id: str, status: TaskStatus) -> InvalidTask:
    return InvalidTask(f"task {task_id} is {status.value}; only an ended task can be deleted: cancel it first")


def live_run(task_id: str, run_id: str) -> InvalidTask:
    return InvalidTask(
        f"task {task_id} belongs to run {run_id}, of which a task is still live; delete it once the run has ended"
    )


def other_content(task_id: str) -> InvalidTask:
    return InvalidTask(f"task {task_id} was submitted before with other content; make a new id for a new task")


def not_text() -> InvalidTask:
    return InvalidTask("a name, key or id of this call holds a lone surrogate, which is not text; nothing was changed")


def known_parent(task_id: str, parent_id: str) -> InvalidTask:
    return InvalidTask(
        f"task {task_id} waits for {parent_id}, which was submitted before; submit a workflow at once, or let the "
        "handler of the task that exists enqueue what follows"
    )


def key_conflict(key: str, task_id: str, theirs: str, ours: str) -> IdempotencyConflict:
    return IdempotencyConflict(
        f"idempotency key {key!r} belongs to task {task_id} named {theirs!r}, not {ours!r}; "
        "use another key for another task"
    )


def schedule_not_found(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(f"there is no schedule {name!r}; `holdfast schedules list` shows those that there are")
