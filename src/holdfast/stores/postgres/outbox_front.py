"""Where takes from the outbox begin while a backlog is drained, so that they do not read through what is delivered.

While any transaction holds a snapshot open, PostgreSQL keeps the index entries of rows that were delivered long ago,
and a take that starts at the beginning reads them all. So after a take that was filled the next one begins where that
one ended. What may come below (a slow transaction, a row that another relay frees, one whose taker failed) is found by
a take from the beginning: at the latest after a second, and at once where else nothing is found. So no place can be
wrong, and none is kept longer than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from holdfast.clock import SYSTEM_CLOCK
from holdfast.model.outbox import OutboxRow

ANEW_SECONDS = 1.0
Place = tuple[datetime, int]
"""The time from which on a row may be taken, and its id: the order of takes."""
BEGINNING: Place = datetime(1, 1, 1, tzinfo=UTC), 0


class OutboxFront:
    """Of one handle."""

    def __init__(self) -> None:
        self._places: dict[str, Place] = {}
        self._anew_at = 0.0

    def places(self, sinks: Sequence[str]) -> list[Place]:
        """Where to begin for each."""
        if SYSTEM_CLOCK.monotonic() - self._anew_at >= ANEW_SECONDS:
            self.start_anew()
        return [self._places.get(sink, BEGINNING) for sink in sinks]

    def start_anew(self) -> None:
        self._places.clear()
        self._anew_at = SYSTEM_CLOCK.monotonic()

    def filled_by(self, rows: Sequence[OutboxRow]) -> None:
        """What was left is due after the last of these, for they were chosen by that; and a row is free when it is
        due, or later.
        """
        for row in rows:
            place = row.due_at, row.id
            self._places[row.sink] = max(self._places.get(row.sink, place), place)

    def freed(self, sink: str, place: Place) -> None:
        """A row may be taken there now."""
        if sink in self._places:
            self._places[sink] = min(self._places[sink], place)
