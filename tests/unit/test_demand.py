"""How many tasks a worker asks for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.policy.demand import AHEAD_SECONDS, BATCH_LARGEST, demand

counts = st.integers(0, 3000)
slot_counts = st.integers(1, 2000)
rates = st.floats(0, 1e6, allow_nan=False)


@given(slot_counts, counts, counts, rates)
def test_a_claim_is_bounded_and_never_negative(slots: int, running: int, buffered: int, rate: float) -> None:
    assert 0 <= demand(slots=slots, running=running, buffered=buffered, started_per_second=rate) <= BATCH_LARGEST


@given(slot_counts, counts, counts, rates)
def test_a_worker_never_holds_more_than_slots_and_a_moments_work(
    slots: int, running: int, buffered: int, rate: float
) -> None:
    asked = demand(slots=slots, running=running, buffered=buffered, started_per_second=rate)
    ahead = min(int(rate * AHEAD_SECONDS), BATCH_LARGEST)
    assert asked == 0 or running + buffered + asked <= slots + ahead


@given(slot_counts, rates, st.data())
def test_a_free_slot_that_nothing_waits_for_is_always_asked_for(slots: int, rate: float, data: st.DataObject) -> None:
    held = data.draw(st.integers(0, slots - 1))
    running = data.draw(st.integers(0, held))
    assert demand(slots=slots, running=running, buffered=held - running, started_per_second=rate) > 0


@given(slot_counts, counts)
def test_long_tasks_are_not_hoarded(slots: int, buffered: int) -> None:
    assert demand(slots=slots, running=slots, buffered=buffered, started_per_second=0.0) == 0


@given(slot_counts, rates)
def test_a_full_worker_waits_for_the_low_water_mark(slots: int, rate: float) -> None:
    ahead = min(int(rate * AHEAD_SECONDS), BATCH_LARGEST)
    assert demand(slots=slots, running=slots, buffered=ahead, started_per_second=rate) == 0


def test_short_tasks_travel_in_large_batches() -> None:
    assert demand(slots=10, running=0, buffered=0, started_per_second=20_000) == BATCH_LARGEST
    assert demand(slots=10, running=10, buffered=490, started_per_second=10_000) == 510
    assert demand(slots=10, running=10, buffered=600, started_per_second=10_000) == 0
