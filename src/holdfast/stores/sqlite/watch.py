"""Notices what other processes commit, and wakes the workers of this one.

One thread, only while somebody listens, asks SQLite for its data version, which needs no disk.
Commits of this process change it too; such a wake-up is spurious and costs one look at the ready index.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable

from holdfast.errors import HoldfastError
from holdfast.stores.sqlite.database import Database
from holdfast.wakeups.in_process import Hub
from holdfast.wakeups.protocol import Wake

LOOK_SECONDS = 0.04
"""Each look wakes a sleeping processor, which costs about 0.1 ms: at 25 looks a second 0.3 % of a core."""
_RETRY_SECONDS = 1.0


class Watch:
    """The store's wake-up: this process's own announcements through the hub, other processes' through the file."""

    def __init__(self, database: Database, hub: Hub) -> None:
        self._database = database
        self._hub = hub
        self._gate = threading.Lock()
        self._listeners = 0
        self._thread: threading.Thread | None = None
        self._ended: list[threading.Thread] = []
        self._watching = threading.Lock()
        self._resting = False

    def listen(self, wake: Wake) -> Callable[[], None]:
        unlisten = self._hub.listen(wake)
        with self._gate:
            self._listeners += 1
            self._start_if_needed()

        stopped = False

        def stop() -> None:
            nonlocal stopped
            unlisten()
            with self._gate:
                if not stopped:
                    stopped = True
                    self._listeners -= 1
                    if not self._listeners:
                        self._end()

        return stop

    def idle(self) -> None:
        """The file is looked at in any case while somebody listens."""

    def busy(self) -> None: ...

    def stop(self, seconds: float) -> None:
        with self._gate:
            self._end()
        for thread in self._ended:
            thread.join(seconds)

    def rest(self) -> None:
        """Before a fork: the thread ends, which closes its connection. Undone by `resume`."""
        with self._gate:
            self._resting = True
            self._end()

    def resume(self) -> None:
        with self._gate:
            self._resting = False
            self._start_if_needed()

    def _start_if_needed(self) -> None:
        if self._thread is None and self._listeners and not self._resting:
            # Held while there is somebody to watch for. To wait for a lock costs half of waiting for an Event,
            # and waiting is most of what watching costs.
            self._watching = threading.Lock()
            self._watching.acquire()
            self._thread = threading.Thread(
                target=self._run, args=(self._watching,), name="holdfast-sqlite-watch", daemon=True
            )
            self._thread.start()

    def _end(self) -> None:
        if self._thread is not None:
            self._watching.release()
            self._ended = [thread for thread in (*self._ended, self._thread) if thread.is_alive()]
            self._thread = None

    def _run(self, watching: threading.Lock) -> None:
        while True:
            try:
                conn = self._database.connect()  # only in this frame, as in writer.py
            except (sqlite3.Error, HoldfastError):
                pass  # not made yet, or away: whoever uses the store hears of it
            else:
                try:
                    self._look(conn, watching)
                    return
                except sqlite3.Error:
                    pass
                finally:
                    self._database.close(conn)
            if watching.acquire(timeout=_RETRY_SECONDS):
                return

    def _look(self, conn: sqlite3.Connection, watching: threading.Lock) -> None:
        seen = None
        while not watching.acquire(timeout=LOOK_SECONDS):
            version = conn.execute("PRAGMA data_version").fetchone()[0]
            if version != seen:
                seen = version
                self._hub.announce()
