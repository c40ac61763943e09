"""What a wake-up transport answers for (contract C12.1)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Wake = Callable[[], None]
"""Called from any thread, at any time, any number of times; it must not block."""


class Wakeup(Protocol):
    def listen(self, wake: Wake) -> Callable[[], None]:
        """Call `wake` whenever there may be something new, until the returned function is called."""

    def idle(self) -> None:
        """A listener has nothing to do until it is woken: those who could wake it should know. A `busy` follows.

        Where that takes a while, `wake` is called once they know: of what happened before, nobody has told.
        """

    def busy(self) -> None:
        """A listener that was idle goes on."""
