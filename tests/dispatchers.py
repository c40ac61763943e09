"""Dispatchers for tests: the real service with uvicorn on a free port of this machine, all on one thread.

By default without upkeep, so that nothing happens which a test did not ask for; time may be virtual.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import cache

from holdfast.dispatcher.service import Dispatcher
from holdfast.dispatcher.serving import Address, Server
from holdfast.dispatcher.upkeep import Upkeep
from holdfast.events.bus import Bus
from holdfast.model.query import Retention
from holdfast.stores.protocol import Capabilities, StoreFactory

PATIENCE_SECONDS = 10.0


class NoUpkeep(Upkeep):
    def __init__(self) -> None:
        super().__init__("nobody", Bus())

    async def start(self, open_store: StoreFactory, capabilities: Capabilities) -> None:
        pass


def upkeep() -> Upkeep:
    """As `holdfast serve` has it, but that it forgets nothing."""
    return Upkeep("dispatcher-test", Bus(), retention=Retention(None, None, None))


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="dispatchers", daemon=True).start()
    return loop


class Prompt(Server):
    """Stops at once when told; the real one looks ten times a second."""

    def __init__(self, dispatcher: Dispatcher, address: Address) -> None:
        super().__init__(dispatcher, address)
        self._told = asyncio.Event()

    async def main_loop(self) -> None:
        await self._told.wait()

    def stop(self) -> None:
        super().stop()
        self._told.set()


class Serving:
    """One service while the block lasts; with a given port, where another one has been."""

    def __init__(self, open_store: StoreFactory, *, port: int = 0, upkeep: Callable[[], Upkeep] = NoUpkeep) -> None:
        self._open_store = open_store
        self._port = port
        self._upkeep = upkeep
        self.url = ""

    def __enter__(self) -> Serving:
        address = Address(port=self._port)
        socket = address.listen()
        self.url = address.url(socket)
        started = threading.Event()

        async def serve() -> None:
            dispatcher = Dispatcher(self._open_store, upkeep=self._upkeep(), always_tokens=False)
            self._server = Prompt(dispatcher, address)
            serving = asyncio.ensure_future(self._server.serve(sockets=[socket]))
            while not self._server.started and not serving.done():  # noqa: ASYNC110  uvicorn tells in no other way
                await asyncio.sleep(0.001)
            started.set()
            await serving

        self._served = asyncio.run_coroutine_threadsafe(serve(), _loop())
        assert started.wait(PATIENCE_SECONDS), self._served
        return self

    def __exit__(self, *_: object) -> None:
        _loop().call_soon_threadsafe(self._server.stop)
        self._served.result(PATIENCE_SECONDS)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])
