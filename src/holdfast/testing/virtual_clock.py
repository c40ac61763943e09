"""A clock that moves only when it is told to, so that a test can live through a week in a moment.

It implements clock.Clock. Any number of threads may read and move it; it never goes back.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

from holdfast.clock import from_micros, span_micros, to_micros

START = datetime(2030, 1, 1, tzinfo=UTC)


class VirtualClock:
    def __init__(self, start: datetime = START) -> None:
        self._lock = threading.Lock()
        self._start = self._now = to_micros(start)

    def micros(self) -> int:
        with self._lock:
            return self._now

    def monotonic(self) -> float:
        with self._lock:
            return (self._now - self._start) / 1_000_000

    def now(self) -> datetime:
        return from_micros(self.micros())

    def advance(self, seconds: float | timedelta) -> None:
        """Let this much time pass, to the microsecond."""
        span = seconds // timedelta(microseconds=1) if isinstance(seconds, timedelta) else span_micros(seconds)
        if span < 0:
            raise ValueError(f"a clock cannot go back by {-span} microseconds; make a new one that starts earlier")
        with self._lock:
            self._now += span

    def advance_to(self, instant: datetime) -> None:
        """Let time pass until `instant`; nothing happens where that is over already."""
        with self._lock:
            self._now = max(self._now, to_micros(instant))
