"""What a queue, or the whole store, may do at once (contract section 9). The arithmetic is in policy/limits.py."""

from __future__ import annotations

import msgspec

WHOLE_STORE = "*"
"""The queue's name under which limits hold for all queues together."""


class Rate(msgspec.Struct, frozen=True):
    """`count` tasks per `period` seconds."""

    count: int
    period: float


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """None: no limit of this kind."""

    max_running: int | None = None
    rate: Rate | None = None
    burst: int = 1
    """How many may start at once, where a rate is set."""
    max_running_per_key: int | None = None
    """1 also means: in order, one after the other, per (queue, key)."""

    @property
    def some(self) -> bool:
        return any(limit is not None for limit in (self.max_running, self.rate, self.max_running_per_key))


NO_LIMITS = Limits()
