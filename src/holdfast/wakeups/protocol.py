"""What a wake-up transport answers for (contract C12.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


class Transport(Wakeup, Protocol):
    """A wake-up that comes from outside, by messages about single tasks. It works between `start` and `close`.

    Messages never lead to anything but a claim. A worker says what it asked for and what it got, so that a message is
    kept while its task runs here, and is out of the world once it is settled or not to be had.
    """

    def start(self) -> None: ...

    def asking(self) -> int:
        """A claim is about to be made; the number by which its answer is told."""

    def answered(self, asked: int, task_ids: Sequence[str], *, short: bool) -> None:
        """What that claim got; `short`: there was no more to be had."""

    def settled(self, task_id: str) -> None:
        """This worker no longer holds that task."""

    def close(self) -> None:
        """May block for a second or two."""
