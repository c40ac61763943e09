"""What all handles of one process on one file share: a writer, readers, a watch, the proof that workers live.

    handle ─┐                    ┌─► writer.py   one thread, one connection, group commits
    handle ─┼─► Engine (per file)┼─► reader.py   two threads, never behind a write
    handle ─┘                    └─► watch.py    wakes workers when another process commits

An engine belongs to the process that made it. A forked child forgets its parent's engines without touching their
connections, and its first call makes an engine of its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from holdfast.clock import Clock
from holdfast.stores.sqlite.calls import Call
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.presence import Presence
from holdfast.stores.sqlite.reader import Reader
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
        self.presence = Presence(options.path)
        self.claims_find_work = False
        """The last claim filled its batch: the next one need not look first whether there is anything."""
        self._database = Database(options)
        self._writer = Writer(self._database, clock, options.busy_seconds, self.hub.announce)
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

    def abandon(self) -> None:
        """In a forked child: give up the copies of the lock files, touch nothing else."""
        self.presence.drop()
        self._database.lock.drop()


_gate = threading.Lock()
_engines: dict[Key, Engine] = {}


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


def _forget_parents_engines() -> None:
    global _gate
    _gate = threading.Lock()
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


os.register_at_fork(after_in_child=_forget_parents_engines)
atexit.register(_shut_all)
