"""What all handles of one process on one NATS store share: a thread with an event loop, a connection, a replica.

    handle ─┐                      ┌─► wire.py      one connection
    handle ─┼─► Engine (per store) ┼─► replica.py   the live tasks, once per process
    handle ─┘                      └─► ledger.py    changes, planned one at a time

So heartbeats and maintenance, which have a loop of their own, see the same tasks as the claims, and do not compete with
them. An engine belongs to the process that made it; after a fork the child makes its own.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast.clock import Clock
from holdfast.errors import StoreClosed
from holdfast.policy.backoff import Rng
from holdfast.stores.nats.options import Options
from holdfast.stores.nats.store import NatsStore

P = ParamSpec("P")
T = TypeVar("T")
Key = tuple[int, Options, int]

CLOSE_SECONDS = 5.0


class Engine:
    def __init__(self, options: Options, clock: Clock, rng: Rng) -> None:
        self.holders: weakref.WeakSet[object] = weakref.WeakSet()
        """The handles that use it. Weak: a handle whose event loop has gone is dropped without being closed."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="holdfast-nats", daemon=True)
        self._thread.start()
        self.store = asyncio.run_coroutine_threadsafe(_made(options, clock, rng), self._loop).result()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def run(
        self,
        verb: Callable[Concatenate[NatsStore, P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        if self._loop.is_closed():
            raise StoreClosed("the store was closed; open it again to go on")
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(verb(self.store, *args, **kwargs), self._loop)
        )

    def shut(self) -> None:
        """Blocks until the connection is closed."""
        if self._loop.is_closed():
            return
        try:
            asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(CLOSE_SECONDS)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(CLOSE_SECONDS)
            if not self._thread.is_alive():
                self._loop.close()

    async def _end(self) -> None:
        await self.store.close()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def _made(options: Options, clock: Clock, rng: Rng) -> NatsStore:
    return NatsStore(options, clock, rng=rng)


_lock = threading.Lock()
_engines: dict[Key, Engine] = {}


def engine_for(options: Options, clock: Clock, rng: Rng, holder: object) -> Engine:
    with _lock:
        key = (os.getpid(), options, id(clock))
        engine = _engines.get(key)
        if engine is None:
            engine = _engines[key] = Engine(options, clock, rng)
        engine.holders.add(holder)
        return engine


def leave(engine: Engine, holder: object) -> None:
    """Blocks, if it was the last."""
    with _lock:
        engine.holders.discard(holder)
        if engine.holders:
            return
        for key in [key for key, known in _engines.items() if known is engine]:
            del _engines[key]
    engine.shut()


def _shut_all() -> None:
    with _lock:
        mine = [engine for (pid, *_), engine in _engines.items() if pid == os.getpid()]
        _engines.clear()
    for engine in mine:
        engine.shut()


def _renew_lock() -> None:
    """Another thread may have held it at the fork."""
    global _lock
    _lock = threading.Lock()


atexit.register(_shut_all)
os.register_at_fork(after_in_child=_renew_lock)
