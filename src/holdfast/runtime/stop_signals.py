"""SIGTERM and Ctrl-C mean: finish. Installed only where Python allows it, in the main thread."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable

STOPPING = (signal.SIGINT, signal.SIGTERM)


class StopSignals:
    def __init__(self, stop: Callable[[], None]) -> None:
        self._stop = stop
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            self._before[number] = signal.getsignal(number)
            loop.add_signal_handler(number, self._stop)

    def __exit__(self, *_: object) -> None:
        loop = asyncio.get_running_loop()
        for number, handler in self._before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)  # type: ignore[arg-type]
