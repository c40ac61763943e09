"""Instants, spans, and the virtual clock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.clock import (
    SYSTEM_CLOCK,
    Clock,
    from_micros,
    iso,
    maybe_from_micros,
    span_micros,
    to_micros,
    wall_nanos,
)
from holdfast.testing import VirtualClock
from holdfast.testing.virtual_clock import START

instants = st.datetimes(datetime(1970, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001
offsets = st.integers(-720, 720).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(instants)
def test_an_instant_comes_back_to_the_microsecond(instant: datetime) -> None:
    assert from_micros(to_micros(instant)) == instant
    assert from_micros(to_micros(instant)).utcoffset() == timedelta(0)


@given(instants, offsets)
def test_an_instant_of_another_zone_is_the_same_instant(instant: datetime, zone: timezone) -> None:
    assert to_micros(instant.astimezone(zone)) == to_micros(instant)


@given(instants)
def test_iso_is_utc_with_a_z_and_comes_back(instant: datetime) -> None:
    text = iso(to_micros(instant))
    assert text.endswith("Z")
    assert datetime.fromisoformat(text) == instant


@given(st.integers(0, 10**15))
def test_micros_come_back_from_the_instant(micros: int) -> None:
    assert to_micros(from_micros(micros)) == micros
    assert maybe_from_micros(micros) == from_micros(micros)


def test_no_instant_is_none() -> None:
    assert maybe_from_micros(None) is None


@given(st.integers(0, 10**13))
def test_a_span_is_rounded_to_the_microsecond(micros: int) -> None:
    assert span_micros(micros / 1_000_000) == micros


def test_the_system_clock_tells_the_wall_time_and_a_time_that_never_goes_back() -> None:
    first = SYSTEM_CLOCK.micros(), SYSTEM_CLOCK.monotonic()
    assert abs(from_micros(first[0]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert SYSTEM_CLOCK.monotonic() >= first[1]
    assert abs(wall_nanos() // 1000 - SYSTEM_CLOCK.micros()) < 60_000_000


# The virtual clock


def test_a_virtual_clock_stands_still_until_it_is_told() -> None:
    clock = VirtualClock()
    as_protocol: Clock = clock
    assert (as_protocol.micros(), as_protocol.monotonic(), clock.now()) == (to_micros(START), 0.0, START)
    assert clock.micros() == clock.micros()


@given(st.lists(st.integers(0, 10**12)))
def test_a_virtual_clock_moves_by_exactly_what_it_is_told(spans: list[int]) -> None:
    clock = VirtualClock()
    for span in spans:
        clock.advance(timedelta(microseconds=span))
    assert clock.micros() - to_micros(START) == sum(spans)
    assert clock.monotonic() == sum(spans) / 1_000_000


def test_a_virtual_clock_takes_seconds_as_well() -> None:
    clock = VirtualClock(datetime(2024, 2, 29, tzinfo=UTC))
    clock.advance(seconds=1.5)
    assert clock.now() == datetime(2024, 2, 29, 0, 0, 1, 500_000, tzinfo=UTC)


def test_a_virtual_clock_never_goes_back() -> None:
    clock = VirtualClock()
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(timedelta(microseconds=-1))
    clock.advance_to(START - timedelta(days=1))
    assert clock.now() == START
    clock.advance_to(START + timedelta(days=1))
    assert clock.now() == START + timedelta(days=1)


def test_a_virtual_clock_loses_no_step_of_many_threads() -> None:
    clock = VirtualClock()

    def step() -> None:
        for _ in range(1000):
            clock.advance(timedelta(microseconds=1))

    threads = [threading.Thread(target=step) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.micros() - to_micros(START) == 4000
