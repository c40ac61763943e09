"""Leases that ran out while the server was away hold for one lease length more (contract C6.8).

Three kinds of evidence. Every new connection looks for two of them (sql/back.sql): the server has started after they
ran out; or it has taken over from another, whose last commit it has replayed, and nothing of ours was written since.
The third are tries of this handle that failed, with no success between them, whatever they failed of. That others wrote
meanwhile shows in the last event. Without evidence (a clock that jumps, a process that was stopped) an expired lease
stays lost.
"""

from __future__ import annotations

from datetime import datetime, timedelta

SHORTEST_SECONDS = 1.0
"""Shorter spans are ordinary waiting."""
TRAIL_SECONDS = 60.0
"""How long after the last failed try the server may have been away still; leases that ran out later stay lost."""

NOW = "SELECT pg_catalog.clock_timestamp()"


class Outage:
    """Instants are monotonic seconds of this process: the server's own clock could not be read."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._until = 0.0

    @property
    def began(self) -> bool:
        return self._since is not None

    def seen(self, since: float, until: float) -> None:
        """A try that began at `since` had failed by `until`."""
        self._since = since if self._since is None else self._since
        self._until = until

    def window(self, here: float, there: datetime) -> tuple[datetime, datetime] | None:
        """From when to when it was away, by the server's clock, which shows `there` when our own shows `here`."""
        if self._since is None or self._until - self._since < SHORTEST_SECONDS:
            return None
        since = there - timedelta(seconds=here - self._since)
        return since, min(there, there - timedelta(seconds=here - self._until - TRAIL_SECONDS))

    def over(self) -> None:
        self._since = None
