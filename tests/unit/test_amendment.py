"""What an operator's act does (contract sections 8 and 18), asked of the policy alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import (
    HoldfastError,
    InvalidTask,
    TaskAlreadyClaimed,
    TaskCanceled,
    TaskCompleted,
    TaskFailed,
    TaskNotClaimed,
    TaskNotReady,
)
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change, Transition
from holdfast.policy.amendment import amendment
from holdfast.policy.verdict import Facts
from tests.unit.strategies import facts

WAITING, QUEUED, RUNNING = TaskStatus.WAITING, TaskStatus.QUEUED, TaskStatus.RUNNING
COMPLETED, FAILED, CANCELED = TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELED

NOTHING = None

TABLE: dict[Change, dict[TaskStatus, type[HoldfastError] | TaskStatus | None]] = {
    Change.CANCEL: {
        WAITING: CANCELED,
        QUEUED: CANCELED,
        RUNNING: RUNNING,
        COMPLETED: TaskCompleted,
        FAILED: TaskFailed,
        CANCELED: NOTHING,
    },
    Change.REQUEUE: {
        WAITING: TaskNotReady,
        QUEUED: NOTHING,
        RUNNING: TaskAlreadyClaimed,
        COMPLETED: TaskCompleted,
        FAILED: QUEUED,
        CANCELED: QUEUED,
    },
    Change.RELEASE: {
        WAITING: TaskNotClaimed,
        QUEUED: TaskNotClaimed,
        RUNNING: QUEUED,
        COMPLETED: TaskCompleted,
        FAILED: TaskFailed,
        CANCELED: TaskCanceled,
    },
    Change.DELETE: {
        WAITING: InvalidTask,
        QUEUED: InvalidTask,
        RUNNING: InvalidTask,
        COMPLETED: NOTHING,
        FAILED: NOTHING,
        CANCELED: NOTHING,
    },
}


def unasked(known: Facts) -> Facts:
    return Facts(known.attempt, known.failures, known.max_attempts, known.backoff, False, known.last_error_code)


def asked(known: Facts) -> Facts:
    return Facts(known.attempt, known.failures, known.max_attempts, known.backoff, True, known.last_error_code)


@pytest.mark.parametrize("status", TaskStatus)
@pytest.mark.parametrize("change", Change)
@given(known=facts)
def test_an_act_does_what_the_table_says(change: Change, status: TaskStatus, known: Facts) -> None:
    answer = amendment(change, "an-id", status, unasked(known), "worker-1")
    expected = TABLE[change][status]
    if isinstance(expected, TaskStatus):
        assert isinstance(answer, Transition)
        assert answer.status is expected
    else:
        assert (None if answer is None else type(answer)) is expected


@pytest.mark.parametrize("status", [COMPLETED, FAILED])
@given(known=facts)
def test_an_ended_task_refuses_a_cancel_also_where_one_was_requested(status: TaskStatus, known: Facts) -> None:
    answer = amendment(Change.CANCEL, "an-id", status, asked(known), None)
    assert type(answer) is TABLE[Change.CANCEL][status]


@given(facts)
def test_asking_a_running_task_again_changes_nothing(known: Facts) -> None:
    assert amendment(Change.CANCEL, "an-id", RUNNING, asked(known), "worker-1") is None


@given(facts)
def test_a_release_of_a_task_asked_to_cancel_cancels_it(known: Facts) -> None:
    answer = amendment(Change.RELEASE, "an-id", RUNNING, asked(known), "worker-1")
    assert isinstance(answer, Transition)
    assert answer.status is CANCELED


@given(facts, st.sampled_from([FAILED, CANCELED]))
def test_a_requeue_gives_a_fresh_budget_at_once(known: Facts, status: TaskStatus) -> None:
    answer = amendment(Change.REQUEUE, "an-id", status, known, None)
    assert isinstance(answer, Transition)
    assert (answer.failures, answer.delay_ms) == (0, 0)


@given(facts, st.sampled_from(Change), st.sampled_from(TaskStatus))
def test_nothing_but_a_requeue_changes_failures(known: Facts, change: Change, status: TaskStatus) -> None:
    answer = amendment(change, "an-id", status, known, "worker-1")
    if isinstance(answer, Transition) and change is not Change.REQUEUE:
        assert answer.failures == known.failures


@given(facts, st.sampled_from(Change), st.sampled_from(TaskStatus))
def test_every_change_tells_one_event_and_every_refusal_its_task(
    known: Facts, change: Change, status: TaskStatus
) -> None:
    answer = amendment(change, "an-id", status, known, "worker-1")
    if isinstance(answer, Transition):
        assert len(answer.facts) == 1
        assert answer.facts[0].data["attempt"] == known.attempt
    elif answer is not None:
        assert "an-id" in str(answer)
