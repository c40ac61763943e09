"""The one place that reads a clock.

A store's own clock decides everything about time; this is that clock for stores that live in this process. Tests
hand in a virtual one (testing/virtual_clock.py). Inside stores an instant is a whole number of microseconds since
1970 (exact, and cheap to compare); outside it is an aware datetime in UTC.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    def micros(self) -> int:
        """The wall clock, in microseconds since 1970."""

    def monotonic(self) -> float:
        """Seconds that never go back, for measuring spans within this process."""


class SystemClock:
    def micros(self) -> int:
        return time.time_ns() // 1000

    def monotonic(self) -> float:
        return time.monotonic()


SYSTEM_CLOCK = SystemClock()


def boot_seconds() -> float:
    """Monotonic, and goes on while the machine sleeps, where there is such a clock."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


def wall_nanos() -> int:
    """For what needs a time stamp but decides nothing by it: the time part of an id."""
    return time.time_ns()


def to_micros(instant: datetime) -> int:
    return (instant - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return EPOCH + timedelta(microseconds=micros)


def maybe_from_micros(micros: int | None) -> datetime | None:
    return None if micros is None else EPOCH + timedelta(microseconds=micros)


def span_micros(seconds: float) -> int:
    return round(seconds * 1_000_000)


def iso(micros: int) -> str:
    """ISO 8601 with Z, as instants look in JSON."""
    return from_micros(micros).isoformat().replace("+00:00", "Z")
