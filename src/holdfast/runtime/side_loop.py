"""A thread with an event loop and a store handle of its own.

For what must go on while handlers block the worker's loop: heartbeats, the watchdog, the crew that keeps the store
going, and the worker's own entry.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from holdfast.events.bus import Bus
from holdfast.events.facts import PartFailed
from holdfast.health import StoreHealth
from holdfast.stores.protocol import Store, StoreFactory

Part = Callable[[Store, StoreHealth], Awaitable[None]]

REST_SECONDS = 1.0


class SideLoop:
    def __init__(
        self,
        factory: StoreFactory,
        bus: Bus,
        health: StoreHealth,
        *,
        enter: Part,
        parts: Sequence[Part],
        leave: Part,
    ) -> None:
        self._factory = factory
        self._bus = bus
        self._health = health
        self._enter = enter
        self._parts = parts
        self._leave = leave
        self._thread = threading.Thread(target=self._serve, name="holdfast-keeper", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._tell_entered: Callable[[BaseException | None], object] = lambda _error: None
        self._stop_asked = False

    async def start(self) -> None:
        """Returns once `enter` is done; raises what it raised."""
        caller = asyncio.get_running_loop()
        entered = caller.create_future()

        def tell(error: BaseException | None) -> None:
            if not entered.done():
                entered.set_exception(error) if error is not None else entered.set_result(None)

        self._tell_entered = lambda error: caller.call_soon_threadsafe(tell, error)
        self._thread.start()
        await entered

    async def stop(self, timeout: float) -> None:
        """Ask it to leave and wait, `timeout` seconds at most: the store may be away."""
        self._stop_asked = True  # first: a thread that has only just started looks here once it has a loop
        if self._thread.is_alive():
            if self._loop is not None and self._stopping is not None:
                with suppress(RuntimeError):  # the loop has closed: the thread is about to end
                    self._loop.call_soon_threadsafe(self._stopping.set)
            await asyncio.to_thread(self._thread.join, timeout)

    def _serve(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        if self._stop_asked:
            self._stopping.set()
        store: Store | None = None
        try:
            store = self._factory()
            await self._enter_unless_stopped(store, self._stopping)
        except BaseException as error:
            self._tell_entered(error)
            if store is not None:
                await store.close()
            return
        self._tell_entered(None)
        tasks = [asyncio.create_task(self._forever(part, store, self._health)) for part in self._parts]
        await self._stopping.wait()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._leave(store, self._health)
        await store.close()

    async def _enter_unless_stopped(self, store: Store, stopping: asyncio.Event) -> None:
        """`enter` waits for a store that is away; a worker that is told to stop meanwhile does not."""
        entering = asyncio.ensure_future(self._enter(store, self._health))
        stopped = asyncio.ensure_future(stopping.wait())
        await asyncio.wait({entering, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if entering.done():
            entering.result()
        else:
            entering.cancel()

    async def _forever(self, part: Part, store: Store, health: StoreHealth) -> None:
        """No part may die silently: an error that is nobody's is told, and the part starts again."""
        while True:
            try:
                await part(store, health)
            except Exception as error:
                self._bus.publish(
                    PartFailed(getattr(part, "__qualname__", repr(part)), f"{type(error).__name__}: {error}")
                )
            await asyncio.sleep(REST_SECONDS)
