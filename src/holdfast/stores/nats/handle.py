"""What every verb of the NATS store begins with."""

from __future__ import annotations

from typing import TypeVar

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.policy.backoff import Rng
from holdfast.stores.nats.ledger import Ledger
from holdfast.stores.nats.options import Options

T = TypeVar("T")


class Handle:
    def __init__(self, options: Options, clock: Clock = SYSTEM_CLOCK, *, rng: Rng = ids.JITTER) -> None:
        self._ledger = Ledger(options, clock, rng)
        self._queues: set[str] = set()
        """Queues that are known to be in the stream."""
        self.label = options.label
