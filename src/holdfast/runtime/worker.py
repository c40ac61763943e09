"""A worker, as people hold it: what `app.worker(…)` makes. Each of its runs is a Shift (runtime/shift.py)."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from holdfast import ids
from holdfast.events.bus import Bus
from holdfast.model.query import WorkerInfo
from holdfast.registry import Registry
from holdfast.runtime.shift import Shift, WorkerSettings
from holdfast.runtime.stop_signals import StopSignals
from holdfast.stores.protocol import Store, StoreFactory
from holdfast.version import __version__


class Worker:
    """Made by `app.worker(…)`. One run at a time."""

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        registry: Registry,
        open_store: StoreFactory,
        bus: Bus,
        countdown: Callable[[int, float], None] | None = None,
        give_up: Callable[[], None] | None = None,
        outside: bool = True,
    ) -> None:
        self.settings = settings
        self._registry = registry
        self._open_store = open_store
        self.bus = bus
        self.countdown = countdown
        """Told once a second, while stopping, how many tasks run and how many seconds are left."""
        self.give_up = give_up
        """Called from another thread when every slot is stuck and the loop is blocked: ends a process of our own."""
        self.outside = outside
        """False while under test: nothing leaves the process, and nobody outside is listened to."""
        self.loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None
        """What `run()` runs on; None: Python's own event loop."""
        self._stop_asked = False
        self._abort_asked = False
        self._nudge: Callable[[], object] = lambda: None

    @property
    def worker_id(self) -> str:
        return self.settings.worker_id

    def run(self, *, until_idle: bool = False) -> None:
        """Work until stopped: SIGTERM or Ctrl-C in the main thread, or `stop()` from anywhere."""
        with asyncio.Runner(loop_factory=self.loop_factory) as runner:
            runner.run(self.arun(until_idle=until_idle))

    async def arun(self, *, until_idle: bool = False) -> None:
        shift = Shift(self, self._open_store())
        self._nudge = shift.nudge
        try:
            with StopSignals(self.stop):
                await shift.work(until_idle=until_idle)
        finally:
            # Only now: a stop that came before the first line of this method must not be forgotten.
            self._stop_asked = self._abort_asked = False

    def stop(self) -> None:
        """Ask it to finish; asked again, it aborts. From any thread."""
        self._abort_asked = self._stop_asked
        self._stop_asked = True
        self._nudge()

    @property
    def stop_asked(self) -> bool:
        return self._stop_asked

    @property
    def abort_asked(self) -> bool:
        return self._abort_asked

    def info(self) -> WorkerInfo:
        queues = self.settings.queues
        return WorkerInfo(
            id=self.worker_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            queues=None if queues is None else list(queues),
            concurrency=self.settings.concurrency,
            version=__version__,
            names=sorted(definition.name for definition in self._registry),
        )

    def open_store(self) -> Store:
        return self._open_store()

    @property
    def registry(self) -> Registry:
        return self._registry


def new_worker_id() -> str:
    """Unique per process and worker, so that a restarted worker is another worker."""
    return f"{socket.gethostname()}-{os.getpid()}-{ids.nonce()}"
