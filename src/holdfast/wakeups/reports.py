"""What a transport tells of its own state: that it is gone, that it is back, that strangers write to it. Each once, and
while it lasts at most once a minute.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
TELL_AGAIN_SECONDS = 60.0


class Reports:
    def __init__(
        self,
        *,
        away: Callable[[str], None],
        back: Callable[[], None],
        refused: Callable[[int], None],
    ) -> None:
        self._away = away
        self._back = back
        self._refused = refused
        self._pause = 0.0
        self._told_away_at: float | None = None
        self._told_refused_at: float | None = None
        self.refused_number = 0

    def failed(self, error: BaseException) -> float:
        """It does not work; how many seconds to wait before it is tried again."""
        now = SYSTEM_CLOCK.monotonic()
        if self._told_away_at is None or now - self._told_away_at >= TELL_AGAIN_SECONDS:
            self._told_away_at = now
            self._away(f"{type(error).__name__}: {error}"[:500])
        self._pause = min(max(2 * self._pause, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
        return self._pause * (0.5 + 0.5 * ids.JITTER.random())

    def works(self) -> None:
        if self._told_away_at is not None:
            self._told_away_at, self._pause = None, 0.0
            self._back()

    def refuse(self, number: int) -> None:
        """So many messages were none of ours."""
        self.refused_number += number
        now = SYSTEM_CLOCK.monotonic()
        if number and (self._told_refused_at is None or now - self._told_refused_at >= TELL_AGAIN_SECONDS):
            self._told_refused_at = now
            self._refused(self.refused_number)
