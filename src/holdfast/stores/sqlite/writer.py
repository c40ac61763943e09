"""The one thread of this process that writes, and how many verbs share one commit.

    calls ──► drain what has queued up ──► BEGIN IMMEDIATE, each verb in a savepoint, COMMIT ──► answers
                                             └────────────── under the write lock ──────────────┘

An answer leaves only after the commit. A verb that is refused rolls back alone. If the transaction itself fails, every
verb in it fails with StoreUnavailable and may be made again. What verbs do stands in their own modules.
"""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.clock import Clock
from holdfast.errors import HoldfastError, StoreClosed, StoreUnavailable
from holdfast.policy import refusals
from holdfast.stores.sqlite import counts, faults
from holdfast.stores.sqlite.calls import Call, deliver, fail
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.journal import Journal
from holdfast.stores.sqlite.outage import REPAIR, Outage
from holdfast.stores.sqlite.patience import Patience
from holdfast.stores.sqlite.rest import Rest
from holdfast.stores.sqlite.tx import Tx

GROUP_LARGEST = 64
IDLE_SECONDS = 2.0
PULSE_MICROS = 1_000_000

log = logging.getLogger(__name__)


class Writer:
    def __init__(
        self, database: Database, clock: Clock, busy_seconds: float, announce: Callable[[Sequence[Tx]], None]
    ) -> None:
        self._database = database
        self._path = database.path
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._announce = announce
        self._calls: queue.SimpleQueue[Call | Rest | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._thread: threading.Thread | None = None
        self._stopped = False
        self._resting = False
        self._rests: list[Rest] = []
        self._hurry = threading.Event()
        self._outage = Outage()
        self._journal = Journal(database.path)
        self._known_queues: set[str] = set()
        self._pulse_at = 0

    # From any thread

    def put(self, call: Call) -> None:
        with self._gate:
            if self._stopped:
                raise StoreClosed(f"{self._path} was closed; open it again to go on")
            self._calls.put(call)
            self._start_if_needed()

    def stop(self, seconds: float) -> None:
        """Finish what was put, then end the thread; calls that wait for a lock are given up after `seconds`."""
        with self._gate:
            self._stopped = True
            thread = self._thread
        if thread is not None:
            self._calls.put(None)
            thread.join(seconds)
            self._hurry.set()
            thread.join(seconds)

    def rest(self) -> list[Rest]:
        """Before a fork: the thread closes its connection and waits, none is started. Undone by `resume`."""
        with self._gate:
            self._rests = [] if self._thread is None or self._stopped else [Rest()]
            self._resting = True
            for rest in self._rests:
                self._calls.put(rest)
            return self._rests

    def resume(self) -> None:
        with self._gate:
            self._resting = False
            for rest in self._rests:
                rest.end()
            self._start_if_needed()

    def _start_if_needed(self) -> None:
        if self._thread is None and not self._resting and not self._calls.empty():
            self._thread = threading.Thread(target=self._run, name="holdfast-sqlite-writer", daemon=True)
            self._thread.start()

    # The thread

    def _run(self) -> None:
        # The connection lives in this frame only: in a forked child, where this thread does not exist, and at the
        # end of the interpreter, nobody can finalise it, which would fold the journal back outside the write lock.
        conn: sqlite3.Connection | None = None
        while True:
            batch = self._drained()
            calls = [call for call in batch if isinstance(call, Call) and not call.future.cancelled()]
            if calls:
                conn = self._answered(conn, calls)
            elif conn is not None and not batch:
                self._tidied(conn)
            for rest in batch:
                if isinstance(rest, Rest):
                    if conn is not None:
                        self._database.close(conn)
                        conn = None
                    rest.take()
            if None in batch:
                break
        if conn is not None:
            self._database.close(conn)

    def _drained(self) -> list[Call | Rest | None]:
        """What has queued up; empty after a pause in which the journal should be folded back."""
        try:
            batch = [self._calls.get(timeout=IDLE_SECONDS if self._journal.pages else None)]
        except queue.Empty:
            return []
        with suppress(queue.Empty):
            while len(batch) < GROUP_LARGEST:
                batch.append(self._calls.get_nowait())
        return batch

    def _answered(self, conn: sqlite3.Connection | None, calls: list[Call]) -> sqlite3.Connection | None:
        """Every call is answered, whatever happens; the connection to go on with."""
        tried_at = self._clock.micros()
        try:
            conn = conn or self._opened()
            self._database.check_same()
            calls = self._peeked(conn, calls)
            if calls:
                self._transact(conn, calls, tried_at)
        except sqlite3.Error as error:
            self._outage.seen(tried_at, self._clock.micros())
            fail(calls, error if faults.is_bug(error) else faults.translated(error, self._path))
            if conn is not None and faults.code_of(error) not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_BUSY):
                self._database.close(conn)
                return None
        except HoldfastError as error:
            if isinstance(error, StoreUnavailable):
                self._outage.seen(tried_at, self._clock.micros())
            fail(calls, error)
        except Exception as error:
            log.exception("store.broke path=%s", self._path)
            fail(calls, StoreUnavailable(f"{self._path}: {error!r}"))
        return conn

    def _opened(self) -> sqlite3.Connection:
        patience = Patience(self._path, self._busy_seconds, self._hurry)
        conn = self._database.ready(patience, self._clock.micros(), writes=True)
        self._known_queues.clear()
        self._journal.opened(conn)
        return conn

    def _peeked(self, conn: sqlite3.Connection, calls: list[Call]) -> list[Call]:
        """Answer what needs no write; the calls that do."""
        if any(call.peek is None for call in calls):
            return calls
        answered: list[Call] = []
        left: list[Call] = []
        for call in calls:
            assert call.peek is not None
            try:
                call.answer = call.peek(conn, self._clock.micros())
            except sqlite3.OperationalError as error:
                if not faults.transient(error):
                    raise
            except UnicodeEncodeError:
                pass  # its work is refused for the same reason, alone
            (left if call.answer is None else answered).append(call)
        deliver(answered)
        return left

    def _transact(self, conn: sqlite3.Connection, calls: list[Call], tried_at: int) -> None:
        patience = Patience(self._path, self._busy_seconds, self._hurry)
        try:
            with self._database.lock.held(patience):
                self._begin(conn, patience)
                if patience.waited:
                    self._outage.seen(tried_at, self._clock.micros())
                if patience.suspended:
                    self._outage.over()
                self._commit(conn, calls)
                deliver(calls)
                if self._journal.full:
                    self._fold_back(conn)
        finally:
            if conn.in_transaction:
                with suppress(sqlite3.Error):
                    conn.execute("ROLLBACK")

    def _begin(self, conn: sqlite3.Connection, patience: Patience) -> None:
        while True:
            try:
                conn.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not faults.transient(error):
                    raise
                patience.wait()

    def _commit(self, conn: sqlite3.Connection, calls: list[Call]) -> None:
        now = self._clock.micros()
        window = self._outage.window(now)
        if window is not None:
            conn.execute(REPAIR, {"now": now, "since": window[0], "until": window[1]})
        alone = len(calls) == 1 and window is None
        done = [tx for tx in (self._ran(conn, call, alone=alone) for call in calls) if tx is not None]
        if conn.in_transaction:
            self._close_group(conn, done, now)
            conn.execute("COMMIT")
        self._outage.over()
        self._journal.committed(conn)
        for tx in done:
            self._known_queues |= tx.new_queues
        self._announce(done)

    def _ran(self, conn: sqlite3.Connection, call: Call, *, alone: bool) -> Tx | None:
        """Run one verb. One that raises is undone and gets its error; the others of its group go on."""
        tx = Tx(conn, self._clock.micros(), self._known_queues)
        if not alone:
            conn.execute("SAVEPOINT verb")
        try:
            call.answer = call.work(tx)
            tx.flush()
        except sqlite3.Error as error:
            if not faults.is_bug(error):
                raise
            call.error = error
        except UnicodeEncodeError:
            call.error = refusals.not_text()
        except Exception as error:
            call.error = error
        if call.error is not None:
            conn.execute("ROLLBACK" if alone else "ROLLBACK TO verb")
        if not alone:
            conn.execute("RELEASE verb")
        return tx if call.error is None else None

    def _close_group(self, conn: sqlite3.Connection, done: list[Tx], now: int) -> None:
        """Write what the verbs share: the counts, the pulse. Give up if the schema has moved on."""
        counts.write(conn, done, self._path)
        if any(tx.leases for tx in done) and not 0 <= now - self._pulse_at < PULSE_MICROS:
            conn.execute("UPDATE holdfast_pulse SET last_write_at = ?", (now,))
            self._pulse_at = now

    def _tidied(self, conn: sqlite3.Connection) -> None:
        with suppress(StoreUnavailable), self._database.lock.held(Patience(self._path, 1.0, self._hurry)):
            self._fold_back(conn)

    def _fold_back(self, conn: sqlite3.Connection) -> None:
        """Unless a caller's transaction is open: then later."""
        with self._database.writers_kept_out() as alone:
            if alone:
                self._journal.fold_back(conn)
