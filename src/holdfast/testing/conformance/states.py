"""Section 18: every verb in every state, as the contract's table has it, row by row.

A case per cell. Each cell is proved for every way in which a task gets into that state; a refusal has to be of the
named class and to leave every record and event as it was.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from holdfast import ids
from holdfast.errors import (
    HoldfastError,
    InvalidTask,
    LeaseLost,
    TaskAlreadyClaimed,
    TaskCanceled,
    TaskCompleted,
    TaskFailed,
    TaskNotClaimed,
    TaskNotFound,
    TaskNotReady,
)
from holdfast.model.backoff import IMMEDIATELY
from holdfast.model.claim import Claim, Lease
from holdfast.model.outcome import Canceled, Completed, ErrorInfo, Failed, Outcome, Released, Snoozed
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Amended, Change, Settled
from holdfast.testing.conformance.checks import equal
from holdfast.testing.conformance.registry import register
from holdfast.testing.conformance.subject import Subject, guessed

CANCELED, COMPLETED, QUEUED, RUNNING = TaskStatus.CANCELED, TaskStatus.COMPLETED, TaskStatus.QUEUED, TaskStatus.RUNNING


class Becomes(NamedTuple):
    """It works: the new status (None: gone), and the events written, in order."""

    status: TaskStatus | None
    kinds: tuple[str, ...] = ()


class Fenced(NamedTuple):
    """It works with the token of this attempt; else LeaseLost."""

    becomes: Becomes


class Replay(NamedTuple):
    """Answered as the first time, if it is the settle that ended the last attempt; else LeaseLost."""


class NoChange(NamedTuple):
    """Answered, not refused; nothing happens."""


Cell = type[HoldfastError] | Becomes | Fenced | Replay | NoChange

REPLAY, NO_CHANGE = Replay(), NoChange()
LOST = ("task.failed", "task.requeued")
CLAIMED = Becomes(RUNNING, ("task.running",))
CLAIMED_AGAIN = Becomes(RUNNING, (*LOST, "task.running"))
REAPED = Becomes(QUEUED, LOST)
REQUEUED = Becomes(QUEUED, ("task.requeued",))
GONE = Becomes(None, ("task.deleted",))
CANCELS = Becomes(CANCELED, ("task.canceled",))
ASKED = Becomes(RUNNING, ("task.cancel_requested",))
NO, LL = InvalidTask, LeaseLost

STATES = ("waiting", "queued", "running", "expired", "completed", "failed", "canceled")

TABLE: dict[str, tuple[Cell, Cell, Cell, Cell, Cell, Cell, Cell]] = {
    # claim by id
    "claim_by_id": (TaskNotReady, CLAIMED, TaskAlreadyClaimed, CLAIMED_AGAIN, TaskCompleted, TaskFailed, TaskCanceled),
    # heartbeat, progress
    "heartbeat": (LL, LL, Fenced(Becomes(RUNNING)), LL, LL, LL, LL),
    "progress": (LL, LL, Fenced(Becomes(RUNNING, ("task.progress",))), LL, LL, LL, LL),
    # complete, fail, snooze, release, settle canceled
    "complete": (LL, REPLAY, Fenced(Becomes(COMPLETED, ("task.completed",))), LL, REPLAY, REPLAY, REPLAY),
    "fail": (LL, REPLAY, Fenced(Becomes(QUEUED, LOST)), LL, REPLAY, REPLAY, REPLAY),
    "snooze": (LL, REPLAY, Fenced(Becomes(QUEUED, ("task.snoozed",))), LL, REPLAY, REPLAY, REPLAY),
    "release": (LL, REPLAY, Fenced(Becomes(QUEUED, ("task.released",))), LL, REPLAY, REPLAY, REPLAY),
    "settle_canceled": (LL, REPLAY, Fenced(CANCELS), LL, REPLAY, REPLAY, REPLAY),
    # cancel
    "cancel": (CANCELS, CANCELS, ASKED, CANCELS, TaskCompleted, TaskFailed, NO_CHANGE),
    # requeue
    "requeue": (TaskNotReady, NO_CHANGE, TaskAlreadyClaimed, REAPED, TaskCompleted, REQUEUED, REQUEUED),
    # release --force
    "release_by_force": (TaskNotClaimed, TaskNotClaimed, REQUEUED, REAPED, TaskCompleted, TaskFailed, TaskCanceled),
    # delete
    "delete": (NO, NO, NO, NO, GONE, GONE, GONE),
}
"""On an unknown id every verb is TaskNotFound."""


# How a task gets into a state


class Situation(NamedTuple):
    task_id: str
    lease: Lease
    """Of its last attempt; a guess, where it had none."""
    ended_as: str | None = None
    """The kind of settle that ended that attempt, if one did."""
    answer: Settled | None = None
    """What that settle was answered."""


Way = Callable[[Subject], Awaitable[Situation]]

BROKE, HOPELESS = Failed(ErrorInfo("it broke")), Failed(ErrorInfo("no such account"), unrecoverable=True)


def _unclaimed(task_id: str) -> Situation:
    return Situation(task_id, Lease(task_id, 1, ids.token()))


async def _unknown(subject: Subject) -> Situation:
    await subject.submit()
    return _unclaimed(ids.task_id())


def _arrived(status: TaskStatus) -> Way:
    async def way(subject: Subject) -> Situation:
        return _unclaimed(await subject.run_to(status))

    return way


async def _running(subject: Subject) -> Situation:
    task_id = await subject.submit(backoff=IMMEDIATELY)
    return Situation(task_id, (await subject.claim(task_id)).lease)


async def _expired(subject: Subject) -> Situation:
    situation = await _running(subject)
    await subject.expire(situation.task_id)
    return situation


def _settled(outcome: Outcome, *, asked: bool = False) -> Way:
    async def way(subject: Subject) -> Situation:
        task_id, lease, *_ = await _running(subject)
        if asked:
            await subject.amend(Change.CANCEL, task_id)
        return Situation(task_id, lease, outcome.kind, await subject.settle(lease, outcome))

    return way


def _reaped(*, max_attempts: int, asked: bool = False) -> Way:
    async def way(subject: Subject) -> Situation:
        task_id = await subject.submit(max_attempts=max_attempts)
        lease = (await subject.claim(task_id)).lease
        if asked:
            await subject.amend(Change.CANCEL, task_id)
        await subject.expire(task_id)
        await subject.reap()
        return Situation(task_id, lease)

    return way


async def _canceled_before_it_ran(subject: Subject) -> Situation:
    task_id = await subject.submit()
    await subject.amend(Change.CANCEL, task_id)
    return _unclaimed(task_id)


async def _released_by_force(subject: Subject) -> Situation:
    situation = await _running(subject)
    await subject.amend(Change.RELEASE, situation.task_id)
    return situation


WAYS: dict[str, tuple[Way, ...]] = {
    "unknown": (_unknown,),
    "waiting": (_arrived(TaskStatus.WAITING),),
    "queued": (
        _arrived(QUEUED),
        _settled(BROKE),
        _settled(Snoozed(0.0)),
        _settled(Released()),
        _reaped(max_attempts=2),
        _released_by_force,
    ),
    "running": (_running,),
    "expired": (_expired,),
    "completed": (_settled(Completed()), _settled(Completed(), asked=True)),
    "failed": (_settled(HOPELESS), _reaped(max_attempts=1)),
    "canceled": (
        _canceled_before_it_ran,
        _settled(Canceled()),
        _settled(BROKE, asked=True),
        _settled(Snoozed(9.0), asked=True),
        _settled(Released(), asked=True),
        _reaped(max_attempts=2, asked=True),
    ),
}


# The verbs

Verb = Callable[[Subject, str, Lease], Awaitable[Any]]


def _settling(outcome: Outcome) -> Verb:
    return lambda subject, _, lease: subject.settle(lease, outcome)


def _amending(change: Change) -> Verb:
    return lambda subject, task_id, _: subject.amend(change, task_id)


SETTLES: dict[str, Outcome] = {
    "complete": Completed(),
    "fail": BROKE,
    "snooze": Snoozed(9.0),
    "release": Released(),
    "settle_canceled": Canceled(),
}

VERBS: dict[str, Verb] = {
    "claim_by_id": lambda subject, task_id, _: subject.claim(task_id),
    "heartbeat": lambda subject, _, lease: subject.extend(lease),
    "progress": lambda subject, _, lease: subject.progress(lease),
    "cancel": _amending(Change.CANCEL),
    "requeue": _amending(Change.REQUEUE),
    "release_by_force": _amending(Change.RELEASE),
    "delete": _amending(Change.DELETE),
} | {verb: _settling(outcome) for verb, outcome in SETTLES.items()}


# The proof of a cell


async def _prove(subject: Subject, verb: str, cell: Cell, situation: Situation) -> None:
    task_id, lease, ended_as, answer = situation
    act = VERBS[verb]
    match cell:
        case Becomes():
            await _works(subject, verb, cell, situation)
        case Fenced(becomes):
            await subject.refuses(act(subject, task_id, guessed(lease)), LeaseLost)
            await subject.refuses(act(subject, task_id, Lease(task_id, lease.attempt + 1, lease.token)), LeaseLost)
            await _works(subject, verb, becomes, situation)
        case Replay() if ended_as == SETTLES[verb].kind:
            await subject.refuses(act(subject, task_id, guessed(lease)), LeaseLost)
            async with subject.unchanged():
                equal(await act(subject, task_id, lease), answer, "it answers as the first time")
        case Replay():
            await subject.refuses(act(subject, task_id, lease), LeaseLost)
        case NoChange():
            async with subject.unchanged():
                equal((await act(subject, task_id, lease)).changed, False, "it says that nothing changed")
        case refusal:
            await subject.refuses(act(subject, task_id, lease), refusal)


async def _works(subject: Subject, verb: str, becomes: Becomes, situation: Situation) -> None:
    task_id = situation.task_id
    before = await subject.snapshot()
    answer = await VERBS[verb](subject, task_id, situation.lease)
    after = await subject.snapshot()
    told = [event.kind for event in after.events if event not in before.events]
    equal(told, list(becomes.kinds), "its events, and no others")
    equal({event.task_id for event in after.events if event not in before.events} - {task_id}, set(), "of this task")
    record = await subject.store.get(task_id)
    equal(None if record is None else record.status, becomes.status, "the new status")
    others = [task for task in before.tasks if task.id != task_id]
    equal([task for task in after.tasks if task.id != task_id], others, "no other record changes")
    match answer:
        case Amended():
            equal(answer, Amended(task_id, becomes.status, changed=True), "the answer")
        case Settled():
            equal(answer, Settled(task_id, situation.lease.attempt, TaskStatus(str(becomes.status))), "the answer")
        case Claim():
            equal(answer.lease.attempt, 1 if record is None else record.attempt, "the answer")


def _register(verb: str, state: str, cell: Cell) -> None:
    async def prove(subject: Subject) -> None:
        for way in WAYS[state]:
            await _prove(subject, verb, cell, await way(subject))

    register(f"cell_{verb}_{state}", ("C18", "C3.1"), prove)


for _verb, _row in TABLE.items():
    for _state, _cell in zip(STATES, _row, strict=True):
        _register(_verb, _state, _cell)
    _register(_verb, "unknown", TaskNotFound)
