"""The pause that threads with a connection make while their process forks.

SQLite keeps one list of open files and locks per process, and a forked child inherits it: a connection that the child
opens would count on locks that only its parent has, and lose what it commits. So no connection is open during a fork.
"""

from __future__ import annotations

import threading

LONGEST_SECONDS = 10.0


class Rest:
    """One pause of one thread: it says that its connection is closed, then waits to be let on."""

    def __init__(self) -> None:
        self._closed = threading.Event()
        self._over = threading.Event()

    def take(self) -> None:
        self._closed.set()
        self._over.wait()

    def wait_until_taken(self, seconds: float) -> None:
        self._closed.wait(seconds)

    def end(self) -> None:
        self._over.set()
