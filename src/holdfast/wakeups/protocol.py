"""What a wake-up transport answers for (contract C12.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Wake = Callable[[], None]
"""Called from any thread, at any time, any number of times; it must not block."""


class Wakeup(Protocol):
    def listen(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` whenever work may have become claimable, until the returned function is called."""
