"""Functions of this process that are told events: what `@app.subscribe` declares.

They run apart from the loop that keeps leases alive: plain ones in threads, coroutines on a loop of their own.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Sequence
from concurrent.futures import CancelledError

from holdfast.model.event import Event
from holdfast.model.outbox import OutboxRow
from holdfast.portal import Portal
from holdfast.sinks.one_by_one import each
from holdfast.sinks.protocol import DELIVERED, Answer, Subscriber, described, unreached
from holdfast.sinks.threads import in_thread

AT_ONCE = 10
CALL_SECONDS = 20.0


class InProcess:
    def __init__(self, function: Subscriber, *, call_seconds: float = CALL_SECONDS) -> None:
        self._function = function
        self._call_seconds = call_seconds
        self._portal = Portal()

    async def tell(self, rows: Sequence[OutboxRow]) -> list[Answer]:
        return await each(rows, self._told, at_once=AT_ONCE)

    async def _told(self, row: OutboxRow) -> Answer:
        assert row.event is not None, "a subscriber is told events"
        event = row.event
        try:
            async with asyncio.timeout(self._call_seconds) as patience:
                await in_thread(lambda: self._call(event), name="holdfast-subscriber")
        except CancelledError:
            return unreached("this process is stopping")
        except Exception as error:
            late = patience.expired()
            return Answer(error=f"it did not return within {self._call_seconds:g} s" if late else described(error))
        return DELIVERED

    def _call(self, event: Event) -> None:
        """In a thread of its own."""
        if inspect.iscoroutinefunction(self._function):
            self._portal.wait(lambda: self._awaited(event))
        else:
            self._function(event)

    async def _awaited(self, event: Event) -> None:
        try:
            async with asyncio.timeout(self._call_seconds):
                await self._function(event)
        except (SystemExit, KeyboardInterrupt) as error:  # these would end the portal's loop
            raise RuntimeError(repr(error)) from None

    async def close(self) -> None:
        await in_thread(self._portal.close, name="holdfast-subscriber-close")
