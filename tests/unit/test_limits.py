"""The arithmetic of limits: rates over any span of time, what may be asked for, what one claim may take."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidTask
from holdfast.model.limits import NO_LIMITS, WHOLE_STORE, Limits, Rate
from holdfast.policy import limits
from holdfast.policy.limits import Room, Usage

RATES = st.builds(Rate, st.integers(1, 5000), st.sampled_from([0.001, 0.7, 1.0, 3.0, 60.0, 86400.0]))


def drained(made: Limits, pauses: list[int], most: int) -> list[tuple[int, int]]:
    """(instant, how many started), for a claimer that takes all it may, `most` at a time."""
    now, tat, starts = 1_000_000, 0, []
    for pause in pauses:
        now += pause
        taken = min(Usage(made, 0, tat).room(now), most)
        tat = limits.spent(made, tat, now, taken)
        starts.append((now, taken))
    return starts


@given(RATES, st.integers(1, 50), st.lists(st.integers(0, 3_000_000), max_size=40), st.integers(1, 100))
def test_over_any_span_no_more_start_than_the_burst_and_the_rate(
    rate: Rate, burst: int, pauses: list[int], most: int
) -> None:
    starts = drained(Limits(rate=rate, burst=burst), pauses, most)
    for n, (since, _) in enumerate(starts):
        total = 0
        for upto, taken in starts[n:]:
            total += taken
            assert total <= burst + rate.count * (upto - since) / (rate.period * 1e6) + 1e-9


@given(RATES, st.integers(1, 50))
def test_who_waits_as_long_as_he_is_told_may_start_one(rate: Rate, burst: int) -> None:
    made = Limits(rate=rate, burst=burst)
    now, tat = 5_000_000, 0
    tat = limits.spent(made, tat, now, Usage(made, 0, tat).room(now))
    soonest = Usage(made, 0, tat).next_token(now)
    assert soonest is not None
    assert soonest > now
    assert Usage(made, 0, tat).room(soonest) >= 1
    assert Usage(made, 0, tat).room(soonest - 2) == 0


def test_a_clock_that_was_set_back_does_not_stop_a_queue() -> None:
    made = Limits(rate=Rate(1, 1.0), burst=2)
    tat = limits.spent(made, 0, 10_000_000_000, 2)
    starts = []
    for now in range(1_000_000, 6_000_000, 500_000):
        starts.append(Usage(made, 0, tat).room(now))
        tat = limits.spent(made, tat, now, starts[-1]) if starts[-1] else tat
    assert starts == [1, 0, 1, 0, 1, 0, 1, 0, 1, 0]


@given(RATES, st.integers(1, 50), st.integers(0, 59_000_000))
def test_a_clock_that_is_a_little_behind_lets_nothing_more_start(rate: Rate, burst: int, behind: int) -> None:
    made = Limits(rate=rate, burst=burst)
    tat = limits.spent(made, 0, 100_000_000, Usage(made, 0, 0).room(100_000_000))
    assert Usage(made, 0, tat).room(100_000_000 - behind) == 0


@given(RATES, RATES, st.integers(1, 50))
def test_a_changed_rate_begins_with_an_empty_bucket_at_the_worst(before: Rate, after: Rate, burst: int) -> None:
    now = 5_000_000
    tat = limits.spent(Limits(rate=before, burst=burst), 0, now, burst)
    made = Limits(rate=after, burst=burst)
    tat = limits.carried_over(made, tat, now)
    soonest = Usage(made, 0, tat).next_token(now) or now
    assert soonest - now <= 1_000_000 * after.period / after.count + 2  # both ends are rounded against the claimer
    assert limits.carried_over(NO_LIMITS, tat, now) == tat


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("100/s", Rate(100, 1.0)),
        (" 10 / min ", Rate(10, 60.0)),
        ("500/15m", Rate(500, 900.0)),
        ("3/2 hours", Rate(3, 7200.0)),
        ("1/day", Rate(1, 86400.0)),
    ],
)
def test_rates_are_written_as_people_write_them(text: str, rate: Rate) -> None:
    assert limits.rate_of(text) == rate


ENDLESS = "9" * 5000


@pytest.mark.parametrize(
    "text", ["", "fast", "1/fortnight", "1/s/s", "-1/s", "1.5/s", "0/s", "1/0s", f"{ENDLESS}/s", None, 7]
)
def test_other_rates_are_refused(text: object) -> None:
    with pytest.raises(InvalidTask):
        limits.rate_of(text)


def test_a_change_names_what_it_changes() -> None:
    made = limits.changed("mail", NO_LIMITS, {"max_running": 3, "rate": "1/s"})
    assert made == Limits(max_running=3, rate=Rate(1, 1.0))
    assert limits.changed("mail", made, {"rate": None}) == Limits(max_running=3)
    with pytest.raises(InvalidTask, match="max_speed"):
        limits.changed("mail", NO_LIMITS, {"max_speed": 3})
    with pytest.raises(InvalidTask, match="whole store"):
        limits.changed(WHOLE_STORE, NO_LIMITS, {"max_running_per_key": 3})


def test_a_claim_takes_no_more_than_every_limit_leaves() -> None:
    usages = {
        WHOLE_STORE: Usage(Limits(max_running=10), 4),
        "mail": Usage(Limits(max_running=3, max_running_per_key=2), 1),
    }
    room = Room(100, usages, 0)
    assert room.left == 6
    assert [room.take("mail", "x", 1), room.take("mail", "x", 1), room.take("mail", None, 0)] == [True, False, True]
    assert not room.take("mail", "y", 2), "the queue is full"
    assert [room.take("other", "x", 0) for _ in range(5)] == [True] * 4 + [False]


def test_a_hold_is_told_in_words() -> None:
    assert Usage(Limits(max_running=3), 3).holds("mail", 0) == (
        "queue 'mail' runs as many tasks as it may (max_running=3)"
    )
    assert str(Usage(Limits(rate=Rate(1, 60.0)), 0, 60_000_000).holds(WHOLE_STORE, 0)).startswith(
        "the whole store may start 1 per 60 s, the next one at 1970-01-01T00:01:00"
    )
    assert Usage(Limits(max_running=3), 2).holds("mail", 0) is None
