"""Store handles, one per event loop of this process: the worker's, the web server's, the portal's.

Handles of one store share what is costly (see stores/), so a handle per loop is cheap; and a store whose connections
are bound to a loop needs no further care. After a fork the child starts with none.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref

from holdfast.stores.protocol import Store, StoreFactory


class Handles:
    """The open ones. A handle goes with its loop; the latest is kept, so that `close` still reaches what they share."""

    def __init__(self) -> None:
        self._by_loop: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Store] = weakref.WeakKeyDictionary()
        self._latest: Store | None = None

    def of(self, loop: asyncio.AbstractEventLoop, factory: StoreFactory) -> Store:
        handle = self._by_loop.get(loop)
        if handle is None:
            handle = self._by_loop[loop] = self._latest = factory()
        return handle

    def all(self) -> list[Store]:
        found = list(self._by_loop.values())
        return found if self._latest is None or self._latest in found else [*found, self._latest]


class Connections:
    def __init__(self, factory: StoreFactory) -> None:
        self.factory = factory
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._handles = Handles()

    def store(self) -> Store:
        """The handle of the running loop, opened at its first use."""
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            self._handles = Handles()
            self._pid = os.getpid()
        with self._lock:
            return self._handles.of(loop, self.factory)

    def exchange(self, factory: StoreFactory) -> tuple[StoreFactory, Handles]:
        """Use another store from now on, for a test; what was used before, to be given to `restore`."""
        with self._lock:
            before = self.factory, self._handles
            self.factory, self._handles = factory, Handles()
        return before

    def restore(self, before: tuple[StoreFactory, Handles]) -> None:
        with self._lock:
            self.factory, self._handles = before

    async def close(self) -> None:
        """Close every handle; the next use opens new ones."""
        with self._lock:
            handles = self._handles.all() if self._pid == os.getpid() else []
            self._handles = Handles()
        for handle in handles:
            await handle.close()
