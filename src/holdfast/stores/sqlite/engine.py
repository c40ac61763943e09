"""What all handles of one process on one file share: a writer, readers, a watch, the proof that workers live.

    handle ─┐                    ┌─► writer.py   one thread, one connection, group commits
    handle ─┼─► Engine (per file)┼─► reader.py   two threads, never behind a write
    handle ─┘                    └─► watch.py    wakes workers when another process commits

An engine belongs to the process that made it. Its connections are closed while the process forks (rest.py); the child
forgets its parent's engines, and its first call makes an engine of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.stores.sqlite import claim, database, rest
from holdfast.stores.sqlite.calls import Call
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.own_transaction import OwnTransaction
from holdfast.stores.sqlite.presence import Presence
from holdfast.stores.sqlite.reader import Reader
from holdfast.stores.sqlite.rest import Rest
from holdfast.stores.sqlite.tx import Tx
from holdfast.stores.sqlite.watch import Watch
from holdfast.stores.sqlite.writer import Writer
from holdfast.wakeups.in_process import Hub

T = TypeVar("T")
Key = tuple[Options, int]

CLOSE_SECONDS = 5.0


class Engine:
    def __init__(self, options: Options, clock: Clock) -> None:
        self.options = options
        self.clock = clock
        self.pid = os.getpid()
        self.holders: weakref.WeakSet[object] = weakref.WeakSet()
        """The handles that use it. Weak: a handle whose event loop has gone is dropped without being closed."""
        self.hub = Hub()
        self.ends = Hub()
        self.presence = Presence(options.path)
        self.claims_find_work = False
        """The last claim filled its batch: the next one need not look first whether there is anything."""
        self.rounds = claim.Rounds()
        """For the writer's thread."""
        self._database = Database(options)
        self._writer = Writer(self._database, clock, options.busy_seconds, self._announce)
        self._reader = Reader(self._database, clock, options.busy_seconds)
        self.watch = Watch(self._database, self.hub)

    async def write(
        self, work: Callable[[Tx], T], *, peek: Callable[[sqlite3.Connection, int], T | None] | None = None
    ) -> T:
        """Run `work` in a write transaction; durable when this returns.

        `peek` looks first, without one; where it has the answer (not None), nothing is written.
        """
        call = Call(work, peek)
        self._writer.put(call)
        answer: T = await call.future
        return answer

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        call = Call(work)
        self._reader.put(call)
        answer: T = await call.future
        return answer

    def _announce(self, done: Sequence[Tx]) -> None:
        if any(tx.wakes for tx in done):
            self.hub.announce()
        if any(tx.ends for tx in done):
            self.ends.announce()

    def _announce_own(self) -> None:
        """A handler's transaction may hold anything."""
        self.hub.announce()
        self.ends.announce()

    def own_transaction(self) -> OwnTransaction:
        return OwnTransaction(self._database, self.clock, self.options.busy_seconds, self._announce_own)

    def pending(self) -> list[str]:
        """Blocks: the migrations that the first use would do."""
        return self._database.pending()

    def shut(self) -> None:
        """Blocks until everything that was asked is answered and every connection is closed."""
        self.watch.stop(CLOSE_SECONDS)
        self._reader.stop(CLOSE_SECONDS)
        self._writer.stop(CLOSE_SECONDS)
        self.presence.drop()
        self._database.lock.close()

    def rest(self) -> list[Rest]:
        self.watch.rest()
        return [*self._writer.rest(), *self._reader.rest()]

    def resume(self) -> None:
        self.watch.resume()
        self._writer.resume()
        self._reader.resume()

    def abandon(self) -> None:
        """In a forked child: give up the copies of the lock files, touch nothing else."""
        self.presence.drop()
        self._database.lock.drop()


_gate = threading.Lock()
_engines: dict[Key, Engine] = {}
_moment = threading.Event()


def acquire(options: Options, clock: Clock, holder: object) -> Engine:
    """The engine for this file in this process. Opens nothing yet; the holder releases it once."""
    options = replace(options, path=os.path.realpath(options.path))
    key = (options, id(clock))
    with _gate:
        engine = _engines.get(key)
        if engine is None:
            engine = _engines[key] = Engine(options, clock)
        engine.holders.add(holder)
        return engine


async def release(engine: Engine, holder: object) -> None:
    if engine.pid != os.getpid():
        return
    with _gate:
        engine.holders.discard(holder)
        if engine.holders:
            return
        _engines.pop((engine.options, id(engine.clock)), None)
    await asyncio.to_thread(engine.shut)


def _close_all_for_a_fork() -> None:
    """Holds the gate until the fork is done, so that nobody opens another."""
    _gate.acquire()
    ends_at = SYSTEM_CLOCK.monotonic() + rest.LONGEST_SECONDS
    for pause in [pause for engine in _engines.values() for pause in engine.rest()]:
        pause.wait_until_taken(max(0.0, ends_at - SYSTEM_CLOCK.monotonic()))
    while database.any_open() and SYSTEM_CLOCK.monotonic() < ends_at:
        _moment.wait(0.001)  # one that is being closed on a thread of its own
    # What is still open now (another process sits on the write lock) the child will refuse to use.


def _go_on_after_a_fork() -> None:
    for engine in _engines.values():
        engine.resume()
    _gate.release()


def _forget_parents_engines() -> None:
    global _gate
    _gate = threading.Lock()
    database.forked()
    for engine in _engines.values():
        engine.abandon()  # its connections are safe in the frames of threads that do not run here (see writer.py)
    _engines.clear()


def _shut_all() -> None:
    """At exit, for programs that close nothing: the last one to go folds the journal back."""
    with _gate:
        left = list(_engines.values())
        _engines.clear()
    for engine in left:
        engine.shut()


os.register_at_fork(
    before=_close_all_for_a_fork, after_in_parent=_go_on_after_a_fork, after_in_child=_forget_parents_engines
)
atexit.register(_shut_all)
