"""Waiting for a file that somebody else is writing: short jittered pauses, one warning, a deadline.

`database is locked` never reaches a caller before the deadline.
"""

from __future__ import annotations

import logging
import threading

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StoreUnavailable

WARN_SECONDS = 20.0
"""A third of the usual lease: longer than this and heartbeats come late."""
_SHORTEST, _LONGEST = 0.0003, 0.005
_SUSPENDED_SECONDS = 1.0

log = logging.getLogger(__name__)


class Patience:
    """One wait. Real time, whatever clock the store was given: what is waited for is real."""

    def __init__(self, path: str, seconds: float, hurry: threading.Event | None = None) -> None:
        self._path = path
        self._seconds = seconds
        self._hurry = hurry or threading.Event()
        self._since: float | None = None
        self._pause = _SHORTEST
        self._warned = False
        self.suspended = False
        """This process itself stood still (SIGSTOP, a sleeping machine): a long wait proves nothing about the file."""

    @property
    def waited(self) -> bool:
        return self._since is not None

    def wait(self) -> None:
        """Pause a moment; StoreUnavailable once the deadline has passed."""
        before = SYSTEM_CLOCK.monotonic()
        self._since = before if self._since is None else self._since
        if before - self._since > self._seconds or self._hurry.is_set():
            raise StoreUnavailable(
                f"{self._path} was locked by somebody else for {before - self._since:.1f} s; find who keeps a write "
                "transaction open on it (another program, a forgotten shell), then try again"
            )
        if before - self._since > WARN_SECONDS and not self._warned:
            self._warned = True
            log.warning("store.locked path=%s waited_s=%.0f: somebody holds the write lock", self._path, WARN_SECONDS)
        self._hurry.wait(self._pause * (0.5 + ids.JITTER.random()))
        self._pause = min(_LONGEST, self._pause * 1.6)
        self.suspended |= SYSTEM_CLOCK.monotonic() - before > _SUSPENDED_SECONDS
