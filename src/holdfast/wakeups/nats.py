"""Listens on NATS, on a thread with an event loop of its own: every message rings, and means no more than that.

Messages are not kept by the server: what was sent while nobody listened is gone, and repeated within a minute by the
relay. So it rings once whenever it has (again) begun to listen. A dead connection is reported, and made anew.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

from holdfast.model.outbox import NewSink
from holdfast.transports.nats import connect, parsed
from holdfast.wakeups.protocol import Wake
from holdfast.wakeups.reports import Reports

CLOSE_SECONDS = 2.0


class NatsWakeup:
    def __init__(self, sink: NewSink, queues: Sequence[str] | None, reports: Reports) -> None:
        self._address = parsed(sink.url, sink.secret)
        prefix = self._address.prefix
        self._subjects = [f"{prefix}.*"] if queues is None else [self._address.subject(queue) for queue in queues]
        self._reports = reports
        self._wake: Wake = lambda: None
        self._thread = threading.Thread(target=self._serve, name="holdfast-nats", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._closed = False

    def start(self) -> None:
        self._thread.start()

    def listen(self, wake: Wake) -> Callable[[], None]:
        self._wake = wake

        def stop() -> None:
            self._wake = lambda: None

        return stop

    def idle(self) -> None:
        """Messages are for all who listen: to take one keeps it from nobody."""

    def busy(self) -> None: ...

    def asking(self) -> int:
        return 0

    def answered(self, asked: int, task_ids: Sequence[str], *, short: bool) -> None: ...

    def settled(self, task_id: str) -> None: ...

    def close(self) -> None:
        self._closed = True
        if self._loop is not None and self._stopping is not None:
            with suppress(RuntimeError):  # the loop has closed already
                self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread.is_alive():
            self._thread.join(CLOSE_SECONDS)

    def _serve(self) -> None:
        asyncio.run(self._main())

    async def _main(self) -> None:
        self._stopping = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        while not self._closed and not self._stopping.is_set():
            try:
                await self._listen(self._stopping)
            except Exception as error:
                await _either(self._stopping, self._reports.failed(error))

    async def _listen(self, stopping: asyncio.Event) -> None:
        """Until it is stopped, or the connection ends, which is an error."""
        ended = asyncio.Event()
        client = await connect(self._address, closed=ended.set)
        try:
            for subject in self._subjects:
                await client.subscribe(subject, cb=self._rung)
            await client.flush()
            self._reports.works()
            self._wake()
            waits = [asyncio.create_task(event.wait()) for event in (stopping, ended)]
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            for wait in waits:
                wait.cancel()
            if not stopping.is_set():
                raise ConnectionError("the connection has ended")
        finally:
            await client.close()

    async def _rung(self, _message: object) -> None:
        self._wake()


async def _either(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
