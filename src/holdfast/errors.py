"""Every error of Holdfast, each with a stable code.

    HoldfastError
    ├── TaskNotFound, RunNotFound, ScheduleNotFound, DatasetNotFound      it does not exist
    ├── TaskAlreadyClaimed, TaskNotClaimed, TaskNotReady                  refused by state
    ├── TaskCompleted, TaskFailed, TaskCanceled, MaxAttemptsReached       refused by a terminal state
    ├── LeaseLost, WrongWorker                                            refused by the fence
    ├── InvalidTask ── PayloadTooLarge, InvalidWorkerID, CycleError       refused input
    ├── IdempotencyConflict, TaskNotRegistered
    ├── StoreUnavailable ── StoreClosed; SchemaMismatch; NotSupported     the store
    └── Unauthorized, Forbidden                                           the dispatcher

The same error and code come from every store and through HTTP. A message says what happened, to which thing, and
what to do next.
"""

from __future__ import annotations

from typing import ClassVar


class HoldfastError(Exception):
    """The base of every error that Holdfast raises on purpose."""

    code: ClassVar[str] = "holdfast_error"


class TaskNotFound(HoldfastError):
    code = "task_not_found"


class RunNotFound(HoldfastError):
    code = "run_not_found"


class ScheduleNotFound(HoldfastError):
    code = "schedule_not_found"


class DatasetNotFound(HoldfastError):
    code = "dataset_not_found"


class TaskAlreadyClaimed(HoldfastError):
    code = "task_already_claimed"


class TaskNotClaimed(HoldfastError):
    code = "task_not_claimed"


class TaskNotReady(HoldfastError):
    code = "task_not_ready"


class TaskCompleted(HoldfastError):
    code = "task_completed"


class TaskFailed(HoldfastError):
    """The task ended as a dead letter; `error` is its last_error where the raiser knows it."""

    code = "task_failed"

    def __init__(self, message: str, error: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.error = error


class TaskCanceled(HoldfastError):
    code = "task_canceled"


class MaxAttemptsReached(HoldfastError):
    code = "max_attempts_reached"


class InvalidTask(HoldfastError, ValueError):
    code = "invalid_task"


class PayloadTooLarge(InvalidTask):
    code = "payload_too_large"


class InvalidWorkerID(InvalidTask):
    code = "invalid_worker_id"


class CycleError(InvalidTask):
    code = "cycle_error"


class IdempotencyConflict(HoldfastError):
    code = "idempotency_conflict"


class WrongWorker(HoldfastError):
    code = "wrong_worker"


class LeaseLost(HoldfastError):
    code = "lease_lost"


class StoreUnavailable(HoldfastError):
    """`lasting`: waiting does not heal it, such as a wrong password; somebody has to change something."""

    code = "store_unavailable"

    def __init__(self, message: str = "", *, lasting: bool = False) -> None:
        super().__init__(message)
        self.lasting = lasting


class StoreClosed(StoreUnavailable):
    code = "store_closed"


class SchemaMismatch(HoldfastError):
    code = "schema_mismatch"


class NotSupported(HoldfastError):
    code = "not_supported"


class TaskNotRegistered(HoldfastError):
    code = "task_not_registered"


class Unauthorized(HoldfastError):
    code = "unauthorized"


class Forbidden(HoldfastError):
    code = "forbidden"
