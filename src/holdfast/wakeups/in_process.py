"""Wakes the workers of this process the moment something in it makes work claimable.

One hub per store and process, whichever handle was used: stores announce on it after their commits.
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

    def announce(self) -> None:
        for wake in self._listeners:
            wake()
