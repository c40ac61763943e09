"""What every verb of a SQLite handle begins with: this process's engine for the file."""

from __future__ import annotations

import os

from holdfast import ids
from holdfast.clock import Clock
from holdfast.errors import StoreClosed
from holdfast.policy.backoff import Rng
from holdfast.stores.sqlite import engine
from holdfast.stores.sqlite.options import Options


class Handle:
    def __init__(self, options: Options, clock: Clock, *, rng: Rng = ids.JITTER) -> None:
        self._options = options
        self._clock = clock
        self._rng = rng
        self._closed = False
        self._acquired: engine.Engine | None = None
        self.label = f"sqlite:///{options.path}"

    @property
    def _engine(self) -> engine.Engine:
        """This process's engine for the file: another one after a fork."""
        if self._closed:
            raise StoreClosed(f"{self.label} was closed; open it again to go on")
        if self._acquired is None or self._acquired.pid != os.getpid():
            self._acquired = engine.acquire(self._options, self._clock, self)
        return self._acquired
