"""What a stopping worker says: `finishing 3 tasks, 27 s left, Ctrl-C again to abort`.

Rewritten in place on a terminal; otherwise a line when the number of tasks has changed, and one now and then.
"""

from __future__ import annotations

import math
import sys

from holdfast.cli.output import Live, many
from holdfast.clock import SYSTEM_CLOCK

CHANGE_SECONDS, REPEAT_SECONDS = 1.0, 5.0


class Countdown:
    def __init__(self, *, in_place: bool = True) -> None:
        self._live = Live(sys.stderr)
        self._in_place = in_place and self._live.rewrites
        self._said: tuple[int, float] | None = None

    def __call__(self, running: int, left_seconds: float) -> None:
        text = f"finishing {many(running, 'task')}, {math.ceil(left_seconds)} s left, Ctrl-C again to abort"
        if self._in_place:
            self._live.status(text)
        elif self._worth_a_line(running):
            self._live.line(text)

    def _worth_a_line(self, running: int) -> bool:
        now = SYSTEM_CLOCK.monotonic()
        if self._said is not None:
            before, at = self._said
            if now - at < (REPEAT_SECONDS if before == running else CHANGE_SECONDS):
                return False
        self._said = running, now
        return True

    def close(self) -> None:
        self._live.close()
