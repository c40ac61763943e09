"""What follows from an outcome (contract section 7, C6.5, C8.2)."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.backoff import Fixed
from holdfast.model.outcome import Canceled, Completed, ErrorInfo, Expired, Failed, Outcome, Released, Snoozed
from holdfast.model.task import TaskStatus
from holdfast.policy.backoff import Rng, delay_ms
from holdfast.policy.verdict import LEASE_EXPIRED, Facts, verdict
from tests.unit.strategies import FixedRng, errors, facts, failed, outcomes, rngs, spans

RNG = FixedRng(0.5)
FROM_RUNNING = {TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.QUEUED, TaskStatus.CANCELED}


def plain(**changes: Any) -> Facts:
    base = Facts(1, 0, 5, Fixed(7.0), cancel_requested=False, last_error_code=None)
    return msgspec.structs.replace(base, **changes)


def uncanceled(given_facts: Facts) -> Facts:
    return msgspec.structs.replace(given_facts, cancel_requested=False)


@given(facts, outcomes, rngs)
def test_every_transition_is_one_that_the_contract_draws(known: Facts, outcome: Outcome | Expired, rng: Rng) -> None:
    assert verdict(known, outcome, rng).status in FROM_RUNNING


@given(facts, outcomes, rngs)
def test_failures_grow_by_one_or_not_at_all(known: Facts, outcome: Outcome | Expired, rng: Rng) -> None:
    transition = verdict(known, outcome, rng)
    counts = isinstance(outcome, Failed | Expired) and not known.cancel_requested
    assert transition.failures == known.failures + counts


@given(facts, outcomes, rngs)
def test_a_cancel_request_wins_over_everything_but_completed(
    known: Facts, outcome: Outcome | Expired, rng: Rng
) -> None:
    transition = verdict(msgspec.structs.replace(known, cancel_requested=True), outcome, rng)
    expected = TaskStatus.COMPLETED if isinstance(outcome, Completed) else TaskStatus.CANCELED
    assert transition.status is expected


@given(facts, failed | st.just(Expired()), rngs)
def test_a_budget_of_nought_is_unlimited(known: Facts, outcome: Outcome | Expired, rng: Rng) -> None:
    unlimited = msgspec.structs.replace(uncanceled(known), max_attempts=0)
    hopeless = isinstance(outcome, Failed) and outcome.unrecoverable
    assert verdict(unlimited, outcome, rng).status is (TaskStatus.FAILED if hopeless else TaskStatus.QUEUED)


@given(st.integers(1, 30), st.lists(st.sampled_from(["raised", "lost"]), min_size=30, max_size=30), rngs)
def test_exactly_max_attempts_failures_lead_to_failed(budget: int, ends: list[str], rng: Rng) -> None:
    known = plain(max_attempts=budget)
    for count, end in enumerate(ends, start=1):
        outcome = Expired() if end == "lost" else Failed(ErrorInfo("it broke", "Broken"))
        transition = verdict(known, outcome, rng)
        if transition.status is TaskStatus.FAILED:
            assert count == budget
            return
        code = LEASE_EXPIRED if end == "lost" else "Broken"
        known = msgspec.structs.replace(
            known, attempt=known.attempt + 1, failures=transition.failures, last_error_code=code
        )
    raise AssertionError("the budget was never spent")


@given(facts, errors, rngs)
def test_an_unrecoverable_failure_is_terminal_whatever_is_left(known: Facts, error: ErrorInfo, rng: Rng) -> None:
    transition = verdict(uncanceled(known), Failed(error, unrecoverable=True), rng)
    assert transition.status is TaskStatus.FAILED
    assert transition.error is not None
    assert transition.error["terminal"] is True
    assert "backoff_ms" not in transition.error


@given(facts, failed, rngs)
def test_a_retry_waits_for_its_own_delay_or_its_tasks_backoff(known: Facts, outcome: Failed, rng: Rng) -> None:
    transition = verdict(uncanceled(known), outcome, rng)
    if transition.status is TaskStatus.FAILED:
        assert transition.delay_ms is None
    elif outcome.retry_after_seconds is not None:
        assert transition.delay_ms == round(outcome.retry_after_seconds * 1000)
    else:
        assert transition.delay_ms == delay_ms(known.backoff, known.failures + 1, rng)


@given(facts, rngs)
def test_only_the_first_loss_in_a_row_is_free_of_backoff(known: Facts, rng: Rng) -> None:
    unspent = msgspec.structs.replace(uncanceled(known), max_attempts=0)
    in_a_row = unspent.failures > 0 and unspent.last_error_code == LEASE_EXPIRED
    expected = delay_ms(unspent.backoff, unspent.failures + 1, rng) if in_a_row else 0
    assert verdict(unspent, Expired(), rng).delay_ms == expected


def test_a_loss_after_a_requeue_is_a_first_one() -> None:
    assert verdict(plain(failures=0, last_error_code=LEASE_EXPIRED), Expired(), RNG).delay_ms == 0


@given(facts, spans, rngs)
def test_a_snooze_moves_run_at_and_a_release_does_not(known: Facts, delay: float, rng: Rng) -> None:
    snoozed = verdict(uncanceled(known), Snoozed(delay), rng)
    released = verdict(uncanceled(known), Released(), rng)
    assert (snoozed.status, snoozed.delay_ms) == (TaskStatus.QUEUED, round(delay * 1000))
    assert (released.status, released.delay_ms) == (TaskStatus.QUEUED, None)
    assert snoozed.error is released.error is None


@given(facts, outcomes, rngs)
def test_the_events_tell_what_the_transition_does(known: Facts, outcome: Outcome | Expired, rng: Rng) -> None:
    transition = verdict(known, outcome, rng)
    kinds = [fact.kind for fact in transition.facts]
    match transition.status:
        case TaskStatus.QUEUED if transition.error is not None:
            assert kinds == ["task.failed", "task.requeued"]
            assert transition.facts[0].data["backoff_ms"] == transition.facts[1].data["delay_ms"] == transition.delay_ms
        case TaskStatus.QUEUED:
            assert kinds == [f"task.{outcome.kind}"]
        case status:
            assert kinds == [f"task.{status.value}"]
    assert all(fact.data["attempt"] == known.attempt for fact in transition.facts)


@given(facts, outcomes, rngs)
def test_a_result_belongs_to_completed_alone(known: Facts, outcome: Outcome | Expired, rng: Rng) -> None:
    transition = verdict(known, outcome, rng)
    assert (transition.result is not None) == (transition.status is TaskStatus.COMPLETED)


@given(facts, failed | st.just(Expired()), rngs)
def test_last_error_tells_whether_it_was_the_last(known: Facts, outcome: Outcome | Expired, rng: Rng) -> None:
    transition = verdict(uncanceled(known), outcome, rng)
    assert transition.error is not None
    assert transition.error["terminal"] == (transition.status is TaskStatus.FAILED)
    assert transition.error.get("backoff_ms") == transition.delay_ms
    assert transition.error["attempt"] == known.attempt


@given(facts, rngs)
def test_canceled_is_canceled_without_a_failure(known: Facts, rng: Rng) -> None:
    transition = verdict(known, Canceled(), rng)
    assert (transition.status, transition.failures, transition.error) == (TaskStatus.CANCELED, known.failures, None)
