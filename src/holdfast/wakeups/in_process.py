"""Wakes those who listen in this process the moment something in it has happened.

One hub per store, process and kind of news, whichever handle was used: stores announce on it after their commits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.wakeups.protocol import Wake


class Hub:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Wake, ...] = ()

    def listen(self, wake: Wake) -> Callable[[], None]:
        with self._lock:
            self._listeners = (*self._listeners, wake)

        def stop() -> None:
            with self._lock:
                self._listeners = tuple(other for other in self._listeners if other is not wake)

        return stop

    def idle(self) -> None:
        """Everybody who could announce here sees who listens."""

    def busy(self) -> None: ...

    def announce(self) -> None:
        for wake in self._listeners:
            wake()
