"""When the journal (SQLite's write-ahead log) is folded back into the file.

Always by the writer, under the write lock, never by SQLite itself: automatic checkpoints are off on every connection.
SQLite does not tell how long the journal is without a checkpoint, so its growth is estimated from what was changed.
"""

from __future__ import annotations

import logging
import sqlite3

CHECKPOINT_PAGES = 4000
_WARN_PAGES = 250_000

log = logging.getLogger(__name__)


class Journal:
    def __init__(self, path: str) -> None:
        self._path = path
        self._changes = 0
        self._limit = CHECKPOINT_PAGES
        self._warned = False
        self.pages = 0
        """Estimated, not folded back yet."""

    def opened(self, conn: sqlite3.Connection) -> None:
        """A journal may have been left behind by others: look soon."""
        self._changes = conn.total_changes
        self.pages = 1

    def committed(self, conn: sqlite3.Connection) -> None:
        changes = conn.total_changes
        if changes != self._changes:
            # A lone change touches a page of each index; the rows of a batch share theirs, about eight to one.
            self.pages += 6 + (changes - self._changes) // 8
            self._changes = changes

    @property
    def full(self) -> bool:
        return self.pages >= self._limit

    def fold_back(self, conn: sqlite3.Connection) -> None:
        """A checkpoint. Readers are not waited for: what they still need stays until the next time."""
        try:
            _, length, folded = conn.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except sqlite3.Error as error:
            # Nothing is lost: the journal keeps everything until a later checkpoint succeeds.
            log.warning("journal.kept path=%s error=%s", self._path, error)
            length, folded = self.pages, 0
        left = max(0, length - folded)
        self._limit = left + CHECKPOINT_PAGES
        self.pages = left
        if left > _WARN_PAGES and not self._warned:
            self._warned = True
            log.warning("journal.grown path=%s pages=%d: somebody reads in one long transaction", self._path, left)
