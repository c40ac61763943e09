"""Who may write, over all processes: one at a time, first come first served.

Every write transaction, every checkpoint and every closing of a connection of ours happens while this lock is held.
SQLite before 3.51.3 can lose a commit when a checkpoint runs beside a transaction that starts the journal anew; here
no checkpoint ever runs beside a commit (docs/adr/0002-sqlite-journal.md).

Two files beside the database, `-lock` and `-turn`, each under an exclusive flock. Whoever waits for the lock holds
the turn meanwhile, so a process that writes without pause cannot take the lock again past one that waits. Locks
vanish with their process. The files stay: removing a lock file that another process is opening makes two locks of it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from holdfast.errors import StoreUnavailable
from holdfast.stores.sqlite.patience import Patience


class WriteLock:
    def __init__(self, path: str) -> None:
        self._path = path
        self._threads = threading.Lock()
        self._lock_fd = -1
        self._turn_fd = -1

    @contextmanager
    def held(self, patience: Patience) -> Iterator[None]:
        while not self._threads.acquire(blocking=False):
            patience.wait()
        try:
            self._open()
            self._take(patience)
            try:
                yield
            finally:
                fcntl.flock(self._lock_fd, fcntl.LOCK_UN)
        finally:
            self._threads.release()

    def _take(self, patience: Patience) -> None:
        while not _locked(self._turn_fd):
            patience.wait()
        try:
            while not _locked(self._lock_fd):
                patience.wait()
        finally:
            fcntl.flock(self._turn_fd, fcntl.LOCK_UN)

    def _open(self) -> None:
        if self._turn_fd < 0:
            self._turn_fd = open_private(f"{self._path}-turn")
        if self._lock_fd < 0:
            self._lock_fd = open_private(f"{self._path}-lock")

    def close(self) -> None:
        with self._threads:
            self.drop()

    def drop(self) -> None:
        """In a forked child: close its copies of the files. The parent keeps its lock; unlocking here would end it."""
        for fd in (self._lock_fd, self._turn_fd):
            if fd >= 0:
                with suppress(OSError):
                    os.close(fd)
        self._lock_fd = self._turn_fd = -1


def open_private(path: str, *, new: bool = False) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_EXCL if new else 0)
    try:
        return os.open(path, flags, 0o600)
    except FileExistsError:
        raise
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be opened ({error.strerror}); Holdfast keeps its lock there: "
            "give this user the right to write the file and its folder"
        ) from error


def _locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
