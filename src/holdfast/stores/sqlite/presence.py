"""The evidence that a worker lives: a file that its process keeps locked (contract C6.7).

The kernel drops the lock with the process, however it ends, and keeps it while the process is merely slow or stopped.
Files stand in the folder `<database>-workers`, one per worker, named by a nonce that the worker's row repeats.
"""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import suppress

from holdfast import ids
from holdfast.errors import StoreUnavailable
from holdfast.stores.sqlite.write_lock import open_private


class Presence:
    def __init__(self, path: str) -> None:
        self._folder = f"{path}-workers"
        self._gate = threading.Lock()
        self._held: dict[str, tuple[str, int]] = {}

    def hold(self, worker_id: str) -> str:
        """The nonce of this worker's file, which is locked by this process from now on."""
        with self._gate:
            if worker_id not in self._held:
                self._make_folder()
                self._held[worker_id] = self._locked_file()
            return self._held[worker_id][0]

    def let_go(self, worker_id: str) -> None:
        with self._gate:
            nonce, fd = self._held.pop(worker_id, ("", -1))
            if fd >= 0:
                self.forget(nonce)
                os.close(fd)

    def here(self, worker_id: str) -> bool:
        return worker_id in self._held

    def gone(self, nonce: str) -> bool:
        """Does nobody hold this file any more?"""
        try:
            fd = os.open(self._file(nonce), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        finally:
            os.close(fd)
        return True

    def forget(self, nonce: str) -> None:
        with suppress(OSError):
            os.unlink(self._file(nonce))

    def drop(self) -> None:
        """Close every file: at the end of this process's engine, or of a child's copies, where it unlocks nothing."""
        for _, fd in self._held.values():
            with suppress(OSError):
                os.close(fd)
        self._held = {}

    def _locked_file(self) -> tuple[str, int]:
        while True:
            nonce = ids.nonce()
            fd = open_private(self._file(nonce), new=True)
            fcntl.flock(fd, fcntl.LOCK_EX)
            # Somebody who cleans up may have locked and removed it between the two calls above.
            with suppress(OSError):
                if os.fstat(fd).st_ino == os.stat(self._file(nonce)).st_ino:
                    return nonce, fd
            os.close(fd)

    def _make_folder(self) -> None:
        try:
            with suppress(FileExistsError):
                os.mkdir(self._folder, 0o700)
            self._clean_up()
        except OSError as error:
            raise StoreUnavailable(
                f"{self._folder} cannot be used ({error.strerror}); workers keep their proof of life there: "
                "give this user the right to write in its folder"
            ) from error

    def _clean_up(self) -> None:
        """Files that a killed worker left behind. One without a holder says the same as none."""
        for name in os.listdir(self._folder):
            nonce = name.removesuffix(".alive")
            if name != nonce and self.gone(nonce):
                self.forget(nonce)

    def _file(self, nonce: str) -> str:
        return os.path.join(self._folder, f"{os.path.basename(nonce)}.alive")
