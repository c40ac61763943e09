"""What all calls share, and what each brings: the two values that every handler gets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from holdfast.client import Client
from holdfast.clock import SYSTEM_CLOCK
from holdfast.connections import Connections
from holdfast.dispatcher.admission import Terms
from holdfast.dispatcher.bodies import Receive
from holdfast.dispatcher.claiming import Lines
from holdfast.dispatcher.guard import Caller
from holdfast.dispatcher.hints import Hints
from holdfast.dispatcher.metrics import Counters
from holdfast.stores.protocol import Store


class Hall:
    """One per service, on its event loop."""

    def __init__(self, store: Store, terms: Terms) -> None:
        self.store = store
        self.terms = terms
        self.client = Client(Connections(lambda: store), actor="http")
        self.work = Hints(store.wakeups)
        self.ends = Hints(store.endings)
        self.counters = Counters()
        self.document = b"{}"
        """The OpenAPI document."""
        self.streams = 0
        """How many there are now."""
        self._reached_at = float("-inf")
        self.closing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the service is asked to stop: who waits is answered, who streams ends."""
        self.lines = Lines(store, self.work, self.closing)

    @contextmanager
    def streaming(self) -> Iterator[None]:
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1

    @property
    def draining(self) -> bool:
        return self.closing.done()

    def drain(self) -> None:
        if not self.closing.done():
            self.closing.set_result(None)

    async def reachable(self) -> None:
        """Raises what the store raises. Anybody may ask: so it is asked once a second at most."""
        if SYSTEM_CLOCK.monotonic() - self._reached_at > 1.0:
            await self.store.now()
            self._reached_at = SYSTEM_CLOCK.monotonic()

    async def close(self) -> None:
        self.work.close()
        self.ends.close()
        await self.store.close()


class Asked:
    """One call."""

    def __init__(
        self,
        caller: Caller,
        body: Any,
        query: Any,
        path: Mapping[str, str],
        headers: Mapping[bytes, bytes],
        *,
        receive: Receive,
    ) -> None:
        self.caller = caller
        self.body = body
        self.query = query
        self.path = path
        self.headers = headers
        self._receive = receive
        self._gone: asyncio.Task[None] | None = None

    @property
    def task_id(self) -> str:
        return self.path["task_id"]

    @property
    def gone(self) -> asyncio.Task[None]:
        """Done when the caller has hung up. For calls that wait: watched from the first time that it is asked."""
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_task(self._hung_up(), name="holdfast-gone")
        return self._gone

    async def _hung_up(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def over(self) -> None:
        if self._gone is not None:
            self._gone.cancel()


class Stream(msgspec.Struct):
    """An answer that goes on."""

    parts: AsyncGenerator[bytes, None]


class Text(msgspec.Struct):
    """An answer that is no JSON, or JSON that is ready."""

    text: bytes
    media: str
