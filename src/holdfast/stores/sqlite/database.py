"""The file: how it is made, opened, set up and closed, and whether it is still the same one.

A connection is handed out only when it is in WAL mode and its schema is the one this version knows. What runs on it
is not decided here.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import quote

from holdfast.errors import NotSupported, StoreUnavailable
from holdfast.stores.sqlite import schema
from holdfast.stores.sqlite.faults import code_of, transient, translated
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.patience import Patience
from holdfast.stores.sqlite.write_lock import WriteLock

OLDEST = (3, 38, 0)
"""The first SQLite with the `->>` operator."""
_CACHE_KIB = 16 * 1024
_JOURNAL_LIMIT_BYTES = 256 << 20

abandoned: list[sqlite3.Connection] = []
"""Connections whose closing could not be guarded; they stay open until their process ends."""

_counting = threading.Lock()
_open: Counter[str] = Counter()
"""How many connections this process has, per file."""
_open_at_fork: set[str] = set()
"""Files that could not be closed in the parent before this process was forked (rest.py)."""


def _count(path: str, change: int) -> None:
    with _counting:
        _open[path] += change


def any_open() -> bool:
    return any(_open.values())


def forked() -> None:
    """In the child: what the parent had open is out of bounds."""
    global _counting
    _counting = threading.Lock()
    _open_at_fork.update(path for path, connections in _open.items() if connections)
    _open.clear()


class Database:
    def __init__(self, options: Options) -> None:
        self.path = options.path
        self.lock = WriteLock(options.path)
        self._synchronous = "FULL" if options.synchronous == "full" else "NORMAL"
        self._identity: tuple[int, int] | None = None

    def connect(self) -> sqlite3.Connection:
        """A bare connection; it makes no file and writes nothing."""
        if sqlite3.sqlite_version_info < OLDEST:
            raise NotSupported(f"this Python has SQLite {sqlite3.sqlite_version}; Holdfast needs 3.38 or newer")
        if self.path in _open_at_fork:
            raise StoreUnavailable(
                f"{self.path} was in use in the parent when this process was forked, and SQLite cannot open it here "
                "without damage; start processes with the spawn method, or close the app before the fork"
            )
        _count(self.path, 1)
        try:
            conn = self._connected()
        except BaseException:
            _count(self.path, -1)
            raise
        try:
            conn.execute("PRAGMA wal_autocheckpoint = 0")
            conn.execute(f"PRAGMA synchronous = {self._synchronous}")
            conn.execute("PRAGMA temp_store = MEMORY")
            conn.execute("PRAGMA trusted_schema = OFF")
            conn.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
            conn.execute(f"PRAGMA journal_size_limit = {_JOURNAL_LIMIT_BYTES}")
        except sqlite3.Error as error:
            self._close_after(error, conn)
            raise
        return conn

    def _connected(self) -> sqlite3.Connection:
        # Any thread may close it (after its own has ended); each is used by one thread only.
        return sqlite3.connect(
            f"file:{quote(self.path)}?mode=rw",
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=128,
        )

    def ready(self, patience: Patience, now: int, *, writes: bool) -> sqlite3.Connection:
        """A connection to a database that has our tables; they are made or brought up to date on the way."""
        if self._identity is None:
            create(self.path)
        else:
            self.check_same()
        while True:
            try:
                conn = self._prepared(patience, now, writes=writes)
                break
            except sqlite3.Error as error:
                # Even looking at a file can meet somebody who is just turning it into a write-ahead log.
                if not transient(error):
                    raise translated(error, self.path) from error
                patience.wait()
        self._identity = self._identity or _identity(self.path)
        return conn

    def check_same(self) -> None:
        """A file that was moved away or replaced would go on taking writes that nobody else sees."""
        if _identity(self.path) != self._identity:
            raise StoreUnavailable(
                f"{self.path} was removed or replaced while it was open; put it back, or restart this process"
            )

    def close(self, conn: sqlite3.Connection, seconds: float = 5.0) -> None:
        """Close under the write lock: the last connection to close folds the journal back, which is a checkpoint."""
        try:
            with self.lock.held(Patience(self.path, seconds)):
                conn.close()
            _count(self.path, -1)
        except StoreUnavailable:
            abandoned.append(conn)

    @contextmanager
    def writers_kept_out(self) -> Iterator[bool]:
        """Under our write lock: also those who do not know it, the callers of joined.py, cannot commit meanwhile.

        False where one of them is writing now. It takes another connection: a transaction cannot checkpoint.
        """
        conn = self.connect()
        try:
            try:
                conn.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as error:
                if not transient(error):
                    raise
                yield False
            else:
                yield True
        finally:
            conn.close()
            _count(self.path, -1)

    def pending(self) -> list[str]:
        """The names of the migrations that opening would do. Makes no file, writes nothing."""
        if not os.path.exists(self.path):
            return [step.name for step in schema.steps()]
        try:
            conn = self.connect()
            try:
                schema.current(conn, self.path)
                names = [step.name for step in schema.pending(conn)]
            except BaseException as error:
                self._close_after(error, conn)
                raise
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
        self.close(conn)
        return names

    def _prepared(self, patience: Patience, now: int, *, writes: bool) -> sqlite3.Connection:
        conn = self.connect()
        try:
            if not schema.current(conn, self.path) or _journal_mode(conn) != "wal":
                with self.lock.held(patience):
                    self._turn_to_wal(conn)
                    schema.migrate(conn, self.path, now)
            conn.execute(f"PRAGMA query_only = {'OFF' if writes else 'ON'}")
        except BaseException as error:
            self._close_after(error, conn)
            raise
        return conn

    def _close_after(self, error: BaseException, conn: sqlite3.Connection) -> None:
        if isinstance(error, sqlite3.Error) and code_of(error) == sqlite3.SQLITE_NOTADB:
            conn.close()  # not ours: leave no lock files beside it
            _count(self.path, -1)
        else:
            self.close(conn)

    def _turn_to_wal(self, conn: sqlite3.Connection) -> None:
        if conn.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise StoreUnavailable(
                f"{self.path} cannot have a write-ahead log there; put it on a local disk, not on a network share"
            )


def create(path: str) -> None:
    """Make the file if there is none, for this user's eyes only. SQLite gives its other files the same mode."""
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise StoreUnavailable(f"{path} cannot be opened: there is no folder {folder}; make it with: mkdir -p {folder}")
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        # Never open an existing database by hand: closing that descriptor would drop SQLite's own locks on it.
        return
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be made ({error.strerror}); give this user the right to write in {folder}"
        ) from error


def _identity(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _journal_mode(conn: sqlite3.Connection) -> str:
    return str(conn.execute("PRAGMA journal_mode").fetchone()[0]).lower()
