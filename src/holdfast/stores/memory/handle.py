"""What every verb of the memory store begins with: the lock, the clock, and who may go on at all."""

from __future__ import annotations

import os

from holdfast import ids
from holdfast.errors import StoreClosed, StoreUnavailable
from holdfast.policy.backoff import Rng
from holdfast.stores.memory.acts import Acts
from holdfast.stores.memory.state import MemoryState


class Handle:
    def __init__(self, state: MemoryState, *, name: str = "", rng: Rng = ids.JITTER) -> None:
        self._state = state
        self._acts = Acts(state, rng)
        self._closed = False
        self.label = f"memory://{name}"
        self.wakeups = self.endings = (state.hub,)

    def _now(self) -> int:
        """Every verb starts here, with the lock held: may it go on, and what time is it?"""
        if self._closed:
            raise StoreClosed(f"{self.label} was closed; open it again to go on")
        if os.getpid() != self._state.pid:
            raise StoreUnavailable(
                f"{self.label} lives in process {self._state.pid} and this is process {os.getpid()}; "
                "use a SQLite or PostgreSQL URL to share tasks between processes"
            )
        self._state.ensure_here()
        return self._state.clock.micros()
