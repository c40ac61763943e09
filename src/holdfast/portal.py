"""The door from plain code into async code: one event loop on a thread of its own, made when first needed.

After a fork the child makes its own; it never touches its parent's loop, thread or connections.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Portal:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        _portals.add(self)

    def run(self, call: Callable[[], Coroutine[Any, Any, T]], *, plain: str) -> T:
        """Wait for `call()`. `plain` is the name of the method called: its async twin has an `a` in front."""
        if in_event_loop():
            raise RuntimeError(f"{plain}() would block the running event loop; use `await a{plain}(…)` here")
        return self.wait(call)

    def wait(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The same from anywhere, for a short call of somebody who blocks an event loop knowingly."""
        with self._lock:  # or a loop that is closed between the two calls would never look at this one
            future = asyncio.run_coroutine_threadsafe(call(), self._started())
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """Calls that are still under way in other threads are canceled."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None and self._pid == os.getpid():
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _started(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(self._loop,), name="holdfast-portal", daemon=True)
            self._thread.start()
            self._pid = os.getpid()
        return self._loop

    def forget(self) -> None:
        self._lock = threading.Lock()
        # The parent's loop is kept alive, unused: closing it here would close descriptors that the parent shares.
        _inherited.append(self._loop)
        self._loop = self._thread = None


_portals: weakref.WeakSet[Portal] = weakref.WeakSet()
_inherited: list[object] = []


def _forget_all() -> None:
    for portal in list(_portals):
        portal.forget()


os.register_at_fork(after_in_child=_forget_all)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        loop.run_until_complete(_cancel_the_rest())
    finally:
        loop.close()


async def _cancel_the_rest() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)


def in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
