"""Leases that ran out while the file could not be written hold for one lease length more (contract C6.8).

The evidence is this engine's own: tries that failed or were kept waiting, with no success between them. Without it (a
clock that jumps, a process that was stopped) an expired lease stays lost. That nobody else wrote meanwhile is read from
holdfast_pulse.
"""

from __future__ import annotations

SHORTEST_MICROS = 1_000_000
"""Shorter spans are ordinary waiting."""
TRAIL_MICROS = 60_000_000
"""How long after the last failed try the file may have been away still; leases that ran out later stay lost."""

REPAIR = """
UPDATE holdfast_tasks SET lease_expires_at = :now + lease_length
WHERE status = 'running' AND lease_expires_at <= :until
  AND lease_expires_at > max(:since, (SELECT last_write_at FROM holdfast_pulse))
"""


class Outage:
    def __init__(self) -> None:
        self._since: int | None = None
        self._until = 0

    def seen(self, since: int, until: int) -> None:
        """A try that began at `since` had not succeeded by `until`."""
        self._since = since if self._since is None else self._since
        self._until = until

    def window(self, now: int) -> tuple[int, int] | None:
        """From when to when the file was away, as far as known, if it is back now."""
        if self._since is None or self._until - self._since < SHORTEST_MICROS:
            return None
        return self._since, min(now, self._until + TRAIL_MICROS)

    def over(self) -> None:
        self._since = None
