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

Handles = weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Store]


class Connections:
    def __init__(self, factory: StoreFactory) -> None:
        self.factory = factory
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._handles: Handles = weakref.WeakKeyDictionary()

    def store(self) -> Store:
        """The handle of the running loop, opened at its first use."""
        loop = asyncio.get_running_loop()
        if self._pid != os.getpid():
            self._lock = threading.Lock()
            self._handles = weakref.WeakKeyDictionary()
            self._pid = os.getpid()
        with self._lock:
            handle = self._handles.get(loop)
            if handle is None:
                handle = self._handles[loop] = self.factory()
            return handle

    def exchange(self, factory: StoreFactory) -> tuple[StoreFactory, Handles]:
        """Use another store from now on, for a test; what was used before, to be given to `restore`."""
        with self._lock:
            before = self.factory, self._handles
            self.factory, self._handles = factory, weakref.WeakKeyDictionary()
        return before

    def restore(self, before: tuple[StoreFactory, Handles]) -> None:
        with self._lock:
            self.factory, self._handles = before

    async def close(self) -> None:
        """Close every handle; the next use opens new ones."""
        with self._lock:
            handles = list(self._handles.values()) if self._pid == os.getpid() else []
            self._handles = weakref.WeakKeyDictionary()
        for handle in handles:
            await handle.close()
