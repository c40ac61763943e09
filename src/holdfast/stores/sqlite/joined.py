"""Submits and completions inside somebody else's transaction (contract C4.4, C7.6).

The verbs are the writer's own; only the connection is the caller's. It must be open on the store's file. Its write
transaction keeps out all other writers until it ends. Automatic checkpoints are switched off on it, because here only
the writer folds the journal back (journal.py).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, InvalidTask, SchemaMismatch, StoreUnavailable
from holdfast.model.outcome import Settlement
from holdfast.model.task import NewTask, Submitted
from holdfast.model.transition import Settled
from holdfast.policy import refusals
from holdfast.policy.backoff import Rng
from holdfast.stores.joined.callers import SQLITE
from holdfast.stores.joined.recognise import caller_of
from holdfast.stores.sqlite import counts, faults, schema, settle, submit
from holdfast.stores.sqlite.tx import Tx

T = TypeVar("T")

_LEGACY = -1
"""Of a connection's `autocommit`: transactions begin with the first change, as `isolation_level` says."""
_TAKE_THE_LOCK = "UPDATE holdfast_pulse SET last_write_at = last_write_at WHERE 0"
_PULSE = "UPDATE holdfast_pulse SET last_write_at = ?"


class Joining:
    """What has to be known of a store to write in the transactions of others."""

    def __init__(self, path: str, clock: Clock, rng: Rng) -> None:
        self.path = path
        self.clock = clock
        self.rng = rng

    def into(self, connection: object) -> Joined:
        caller = caller_of(connection)
        if caller.dialect != SQLITE:
            raise InvalidTask(f"the connection leads to {caller.dialect} and the tasks are in {self.path}")
        return Joined(self, Borrowed(caller.sqlite()))


class Borrowed:
    """The caller's connection, answering us in plain tuples and texts, whatever it is set to answer its owner."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection

    @property
    def in_transaction(self) -> bool:
        return self.connection.in_transaction

    @property
    def begins_by_itself(self) -> bool:
        """Its owner commits, and leaves the beginning to the driver."""
        legacy = getattr(self.connection, "autocommit", _LEGACY) == _LEGACY
        return legacy and self.connection.isolation_level is not None

    def execute(self, sql: str, values: Any = ()) -> sqlite3.Cursor:
        return self._cursor().execute(sql, values)

    def executemany(self, sql: str, rows: Any) -> sqlite3.Cursor:
        return self._cursor().executemany(sql, rows)

    @contextmanager
    def in_plain_text(self) -> Iterator[None]:
        before, self.connection.text_factory = self.connection.text_factory, str
        try:
            yield
        finally:
            self.connection.text_factory = before

    def _cursor(self) -> sqlite3.Cursor:
        cursor = sqlite3.Cursor(self.connection)
        cursor.row_factory = None
        return cursor


class Joined:
    """One caller's transaction."""

    awaited = False

    def __init__(self, joining: Joining, borrowed: Borrowed) -> None:
        self._joining = joining
        self._path = joining.path
        self._borrowed = borrowed

    def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        return self._write(lambda tx: submit.submit(tx, tasks))

    async def asubmit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        return self.submit(tasks)

    def complete(self, settlement: Settlement) -> Settled:
        def work(tx: Tx) -> Settled:
            (answer,) = settle.settle(tx, [settlement], self._joining.rng)
            if isinstance(answer, HoldfastError):
                raise answer
            tx.conn.execute(_PULSE, (tx.now,))
            return answer

        return self._write(work)

    async def acomplete(self, settlement: Settlement) -> Settled:
        return self.complete(settlement)

    def _write(self, work: Callable[[Tx], T]) -> T:
        """Done in the caller's transaction, or undone to the last bit; the transaction itself stays open."""
        try:
            with self._borrowed.in_plain_text():
                self._check_file()
                began = self._begun()
                try:
                    return self._in_savepoint(work)
                except BaseException:
                    if began:
                        self._borrowed.execute("ROLLBACK")
                    raise
        except UnicodeEncodeError:
            raise refusals.not_text() from None
        except sqlite3.Error as error:
            if faults.is_bug(error):
                raise
            raise self._translated(error) from error

    def _check_file(self) -> None:
        path = self._borrowed.execute("PRAGMA database_list").fetchone()[2]
        if not path or not os.path.exists(self._path) or not os.path.samefile(path, self._path):
            raise InvalidTask(
                f"the connection is open on {path or 'a database in memory'} and the tasks are in {self._path}; "
                "nothing was written"
            )

    def _begun(self) -> bool:
        """A transaction is open. True where it was begun here."""
        borrowed = self._borrowed
        borrowed.execute("PRAGMA wal_autocheckpoint = 0")
        if borrowed.in_transaction:
            return False
        if not borrowed.begins_by_itself:
            raise InvalidTask(
                "the connection has no transaction open, so there is none to join; begin one first (sqlite3: "
                "`connection.execute('BEGIN IMMEDIATE')`, Django: `with transaction.atomic()`); nothing was written"
            )
        borrowed.execute("BEGIN IMMEDIATE")
        return True

    def _lock_tables(self) -> None:
        """Nobody else writes from here on. A file without our tables gets them, if the caller commits."""
        version = schema.version_of(self._conn)
        if version == 0:
            schema.make(self._conn, self._joining.clock.micros())
        elif schema.current(self._conn, self._path):
            self._borrowed.execute(_TAKE_THE_LOCK)
        else:
            raise SchemaMismatch(
                f"{self._path} has schema version {version} and this Holdfast wants {schema.newest()}; run "
                "`holdfast migrate` first; nothing was written"
            )

    def _in_savepoint(self, work: Callable[[Tx], T]) -> T:
        borrowed = self._borrowed
        borrowed.execute("SAVEPOINT holdfast")
        try:
            self._lock_tables()
            tx = Tx(self._conn, self._joining.clock.micros(), set())
            answer = work(tx)
            tx.flush()
            counts.write(self._conn, [tx], self._path)
        except BaseException:
            borrowed.execute("ROLLBACK TO holdfast")
            raise
        finally:
            borrowed.execute("RELEASE holdfast")
        return answer

    @property
    def _conn(self) -> sqlite3.Connection:
        """To the verbs a borrowed connection is as good as their own."""
        return cast(sqlite3.Connection, self._borrowed)

    def _translated(self, error: sqlite3.Error) -> HoldfastError:
        if faults.transient(error):
            return StoreUnavailable(
                f"{self._path} is being written by somebody else ({error}); nothing was written: roll back and run the "
                "transaction again, begun with BEGIN IMMEDIATE and with a longer `timeout` on the connection"
            )
        return faults.translated(error, self._path)
