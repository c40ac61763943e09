"""Leases that ran out while the servers were away hold for one lease length more (contract C6.8).

The evidence are tries of this handle that failed, and a connection that broke, with no success between them. Without
evidence (a clock that jumps, a process that was stopped) an expired lease stays lost. What is found is written, so that
reapers that saw nothing find it too; one that is faster than the first handle to come back is not held up.
"""

from __future__ import annotations

SHORTEST_MICROS = 1_000_000
"""Shorter spans are ordinary waiting."""


class Outage:
    """Instants are microseconds of the store's clock, which goes on without the servers."""

    def __init__(self) -> None:
        self._since: int | None = None

    @property
    def suspected(self) -> bool:
        return self._since is not None

    def failed(self, now: int) -> None:
        if self._since is None:
            self._since = now

    def window(self, now: int) -> tuple[int, int] | None:
        """From when to when they were away; asked once they are back."""
        if self._since is None or now - self._since < SHORTEST_MICROS:
            return None
        return self._since, now

    def well(self) -> None:
        """They are back, and what follows from it is written."""
        self._since = None
