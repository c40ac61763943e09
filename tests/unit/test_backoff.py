"""Delays before the next attempt (contract C7.5)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidTask
from holdfast.model.backoff import (
    DEFAULT_BACKOFF,
    Backoff,
    DelayList,
    Delays,
    Exponential,
    Fixed,
    Linear,
    backoff_from_text,
    backoff_text,
)
from holdfast.policy.backoff import EVALUATED_FAILURES, LONGEST_SECONDS, Rng, as_backoff, delay_ms
from tests.unit.strategies import FixedRng, backoffs, failure_counts, jitters, rngs, spans

MIDDLE = FixedRng(0.5)
"""Leaves a delay where it is."""


@given(spans, spans, jitters, failure_counts, rngs)
def test_jitter_stays_within_its_share(base: float, cap: float, jitter: float, failures: int, rng: Rng) -> None:
    plain = min(cap, base * 2.0 ** min(failures - 1, 1000), LONGEST_SECONDS) * 1000
    spread = delay_ms(Exponential(base, cap, jitter), failures, rng)
    rounding = 0.5 + plain * 1e-12
    assert plain * (1 - jitter) - rounding <= spread <= plain * (1 + jitter) + rounding


@given(failure_counts, rngs)
def test_the_default_is_spread_by_thirty_percent_of_a_doubling_delay(failures: int, rng: Rng) -> None:
    plain = min(60_000, 1500 * 2 ** min(failures - 1, 20))
    assert 0.7 * plain - 1 <= delay_ms(DEFAULT_BACKOFF, failures, rng) <= 1.3 * plain + 1


def test_the_edges_of_the_jitter_are_reached() -> None:
    assert delay_ms(DEFAULT_BACKOFF, 1, FixedRng(0.0)) == 1050
    assert delay_ms(DEFAULT_BACKOFF, 1, MIDDLE) == 1500
    assert delay_ms(DEFAULT_BACKOFF, 1, FixedRng(1 - 2**-53)) == 1950


@given(spans, spans, failure_counts)
def test_no_undisturbed_delay_exceeds_its_cap(first: float, cap: float, failures: int) -> None:
    for backoff in (Exponential(first, cap, 0.0), Linear(first, cap)):
        assert delay_ms(backoff, failures, MIDDLE) <= round(cap * 1000)


@given(spans, spans, failure_counts)
def test_an_undisturbed_delay_never_shrinks_with_more_failures(first: float, cap: float, failures: int) -> None:
    for backoff in (Exponential(first, cap, 0.0), Linear(first, cap), Fixed(first)):
        assert delay_ms(backoff, failures, MIDDLE) <= delay_ms(backoff, failures + 1, MIDDLE)


@given(backoffs, failure_counts, rngs)
def test_every_delay_is_a_whole_bounded_number_of_milliseconds(backoff: Backoff, failures: int, rng: Rng) -> None:
    delay = delay_ms(backoff, failures, rng)
    assert type(delay) is int
    assert 0 <= delay <= LONGEST_SECONDS * 1000


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        (Exponential(1.5, 60.0, 0.0), [1500, 3000, 6000, 12000, 24000, 48000, 60000, 60000]),
        (Fixed(5), [5000, 5000, 5000]),
        (Linear(5, 12), [5000, 10000, 12000, 12000]),
        (Delays(1, 5, 30), [1000, 5000, 30000, 30000]),
        (Fixed(0.0004), [0]),
    ],
)
def test_the_curves_are_those_of_the_contract(backoff: Backoff, delays: list[int]) -> None:
    assert [delay_ms(backoff, failures, MIDDLE) for failures in range(1, len(delays) + 1)] == delays


def test_very_many_failures_do_not_overflow() -> None:
    assert delay_ms(Exponential(1.5, 60.0, 0.0), 10**9, MIDDLE) == 60_000


# A policy that travels


@given(backoffs)
def test_a_backoff_comes_back_from_its_text(backoff: Backoff) -> None:
    assert backoff_from_text(backoff_text(backoff)) == backoff


@given(backoffs, st.integers(0, 100))
def test_a_policy_that_is_data_stays_as_it_is(backoff: Backoff, max_attempts: int) -> None:
    assert as_backoff(backoff, max_attempts) is backoff


@given(st.integers(2, 150), failure_counts)
def test_a_function_is_evaluated_at_submit(max_attempts: int, failures: int) -> None:
    evaluated = as_backoff(lambda count: count * 2, max_attempts)
    assert isinstance(evaluated, DelayList)
    assert len(evaluated.delays) == min(max_attempts - 1, EVALUATED_FAILURES)
    assert delay_ms(evaluated, failures, MIDDLE) == 2000 * min(failures, max_attempts - 1, EVALUATED_FAILURES)


def test_a_function_is_evaluated_for_unlimited_and_for_single_attempts() -> None:
    for max_attempts, count in ((0, EVALUATED_FAILURES), (1, 1)):
        evaluated = as_backoff(lambda _: 1.0, max_attempts)
        assert isinstance(evaluated, DelayList)
        assert len(evaluated.delays) == count


def _raises(_: int) -> float:
    raise ZeroDivisionError


REFUSED: list[Any] = [
    Fixed(-1),
    Fixed(float("nan")),
    Fixed(LONGEST_SECONDS + 1),
    Fixed("5"),  # type: ignore[arg-type]
    Exponential(base=float("inf")),
    Exponential(cap=-1),
    Exponential(jitter=1.5),
    Exponential(jitter=float("nan")),
    Exponential(jitter="x"),  # type: ignore[arg-type]
    Linear(1, cap=float("inf")),
    Delays(),
    Delays(1, -1),
    DelayList(("x",)),  # type: ignore[arg-type]
    DelayList(5),  # type: ignore[arg-type]
    lambda _: -1,
    lambda _: float("nan"),
    lambda _: "soon",
    lambda _: None,
    "fixed",
    5,
    None,
]


@pytest.mark.parametrize("policy", REFUSED, ids=range(len(REFUSED)))
def test_a_policy_that_cannot_be_kept_is_refused(policy: Any) -> None:
    with pytest.raises(InvalidTask):
        as_backoff(policy, 5)


def test_what_a_function_raises_is_its_callers_to_see() -> None:
    with pytest.raises(ZeroDivisionError):
        as_backoff(_raises, 5)
