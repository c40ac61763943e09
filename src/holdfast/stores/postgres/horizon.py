"""How far the log of all events can be read on without ever missing one (contract C11.1).

Ids are drawn in another order than transactions commit: 1. A slow one draws id 110. 2. A quick one draws 120 and
commits. 3. A reader who took 120 and went on from there would never see 110. So nothing is shown above the horizon: the
last event that was there at a moment of which every writer has ended. Who writes events takes the table's lock before
it draws an id, so `pg_locks` names them all, and who is not among them draws higher ids than were there.
"""

from __future__ import annotations

import asyncio

from holdfast.stores.postgres.pool import Session

LOOKS, PAUSE_SECONDS = 20, 0.005
"""Writers of ours end within milliseconds; for a caller's long transaction the reader comes again."""


class Horizon:
    """As far as one handle has come. It rises, until the log is found to be shorter than it was."""

    def __init__(self) -> None:
        self._next: tuple[int, frozenset[str]] | None = None
        self.id = 0

    def saw(self, last: int, writers: frozenset[str]) -> bool:
        """Who wrote when, or after, `last` was the last event. Is the horizon as new as it can be?"""
        if not writers:
            self.id, self._next = max(self.id, last), None
            return True
        if self._next is None:
            self._next = last, writers
            return False
        then, their_writers = self._next
        if their_writers & writers:
            return False
        self.id, self._next = max(self.id, then), (last, writers)
        return True

    def start_anew(self) -> None:
        """The last events were deleted with their task, or, after a failover, have never been."""
        self.id, self._next = 0, None


async def reached(session: Session, horizon: Horizon) -> int:
    for _ in range(LOOKS):
        last, writers = await session.row("written", session.table("events"))
        if last < horizon.id:
            horizon.start_anew()
        if horizon.saw(last, frozenset(writers)):
            break
        await asyncio.sleep(PAUSE_SECONDS)
    return horizon.id
