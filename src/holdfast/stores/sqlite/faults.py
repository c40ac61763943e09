"""SQLite's errors in Holdfast's words: what happened, to which file, what to do next.

Mistakes of this store's own SQL are not translated: they are bugs and look like bugs.
"""

from __future__ import annotations

import sqlite3

from holdfast.errors import HoldfastError, SchemaMismatch, StoreUnavailable

_TRANSIENT = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL})
_BUGS = (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.IntegrityError, sqlite3.DataError)

_WORDS = {
    sqlite3.SQLITE_FULL: "the disk is full (or the file's page limit is reached); free some space, then try again",
    sqlite3.SQLITE_READONLY: "it cannot be written; give this user the right to write the file and its folder",
    sqlite3.SQLITE_PERM: "access is denied; give this user the right to read and write the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened; check that the file and its folder exist and may be written",
    sqlite3.SQLITE_IOERR: "the disk reported an error; look into the system's log, then try again",
    sqlite3.SQLITE_CORRUPT: "it is damaged; stop all workers, run `holdfast doctor`, restore a backup",
    sqlite3.SQLITE_NOMEM: "there is not enough memory",
}


def code_of(error: sqlite3.Error) -> int:
    """The primary result code; 0 where the error comes from Python's own module."""
    return int(getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def transient(error: sqlite3.Error) -> bool:
    """Somebody else is at the file; waiting helps."""
    return code_of(error) in _TRANSIENT


def is_bug(error: sqlite3.Error) -> bool:
    return isinstance(error, _BUGS)


def translated(error: sqlite3.Error, path: str) -> HoldfastError:
    code = code_of(error)
    if code == sqlite3.SQLITE_NOTADB:
        return SchemaMismatch(f"{path} is not a SQLite database; nothing was written to it: name another file")
    words = _WORDS.get(code, "nothing of this call was recorded, or its reply was lost; it can be made again")
    return StoreUnavailable(f"SQLite answered {str(error)!r} for {path}: {words}")
