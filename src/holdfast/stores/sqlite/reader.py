"""The threads that read. In WAL mode a reader waits for nobody and nobody waits for it, as long as it is short."""

from __future__ import annotations

import queue
import sqlite3
import threading
from contextlib import suppress

from holdfast.clock import Clock
from holdfast.errors import StoreClosed
from holdfast.stores.sqlite import faults
from holdfast.stores.sqlite.calls import Call, deliver, fail
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.patience import Patience
from holdfast.stores.sqlite.rest import Rest

THREADS = 2
"""So that one slow listing does not hold up the reads of single records."""


class Reader:
    def __init__(self, database: Database, clock: Clock, busy_seconds: float) -> None:
        self._database = database
        self._path = database.path
        self._clock = clock
        self._busy_seconds = busy_seconds
        self._calls: queue.SimpleQueue[Call | Rest | None] = queue.SimpleQueue()
        self._gate = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._stopped = False
        self._asked = 0
        self._resting = False
        self._rests: list[Rest] = []
        self._hurry = threading.Event()

    def put(self, call: Call) -> None:
        with self._gate:
            if self._stopped:
                raise StoreClosed(f"{self._path} was closed; open it again to go on")
            self._asked += 1
            self._calls.put(call)
            self._start_if_needed()

    def stop(self, seconds: float) -> None:
        with self._gate:
            self._stopped = True
        for _ in self._threads:
            self._calls.put(None)
        for thread in self._threads:
            thread.join(seconds)
        self._hurry.set()

    def rest(self) -> list[Rest]:
        """As in writer.py; a thread that rests takes no second one, so each gets its own."""
        with self._gate:
            self._rests = [] if self._stopped else [Rest() for _ in self._threads]
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
        if len(self._threads) < min(THREADS, self._asked) and not self._resting:
            thread = threading.Thread(target=self._run, name="holdfast-sqlite-reader", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        conn: sqlite3.Connection | None = None  # only in this frame, as in writer.py
        while True:
            call = self._calls.get()
            if call is None:
                break
            if isinstance(call, Rest):
                if conn is not None:
                    self._database.close(conn)
                    conn = None
                call.take()
                continue
            if not call.future.cancelled():
                conn = self._answered(conn, call)
            with self._gate:
                self._asked -= 1
        if conn is not None:
            self._database.close(conn)

    def _answered(self, conn: sqlite3.Connection | None, call: Call) -> sqlite3.Connection | None:
        patience = Patience(self._path, self._busy_seconds, self._hurry)
        try:
            conn = conn or self._database.ready(patience, self._clock.micros(), writes=False)
            self._database.check_same()
            call.answer = self._read(conn, call, patience)
        except sqlite3.Error as error:
            fail([call], error if faults.is_bug(error) else faults.translated(error, self._path))
            if conn is not None:
                self._database.close(conn)
            return None
        except Exception as error:
            call.error = error
            deliver([call])
        else:
            deliver([call])
        return conn

    def _read(self, conn: sqlite3.Connection, call: Call, patience: Patience) -> object:
        """One snapshot for all statements of a read."""
        while True:
            try:
                conn.execute("BEGIN")
                return call.work(conn)
            except sqlite3.OperationalError as error:
                if not faults.transient(error):
                    raise
                patience.wait()
            finally:
                with suppress(sqlite3.Error):
                    conn.execute("ROLLBACK")
