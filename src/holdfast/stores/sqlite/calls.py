"""A verb on its way from an event loop to a thread, and its answer on the way back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any


class Call:
    """`work` is run by the thread; `peek`, where given, may answer without a write transaction."""

    __slots__ = ("answer", "error", "future", "loop", "peek", "work")

    def __init__(self, work: Callable[..., Any], peek: Callable[..., Any] | None = None) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.work = work
        self.peek = peek
        self.answer: Any = None
        self.error: BaseException | None = None


def deliver(calls: Iterable[Call]) -> None:
    """Hand the answers back, with one wake-up per event loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[Call]] = {}
    for call in calls:
        by_loop.setdefault(call.loop, []).append(call)
    for loop, theirs in by_loop.items():
        with suppress(RuntimeError):  # the loop was closed while its call was under way: nobody waits any more
            loop.call_soon_threadsafe(_resolve, theirs)


def fail(calls: list[Call], error: BaseException) -> None:
    for call in calls:
        # One each: an exception that several callers raise at once would collect all their tracebacks.
        call.error = type(error)(*error.args)
    deliver(calls)


def _resolve(calls: list[Call]) -> None:
    for call in calls:
        if call.future.done():  # cancelled by its caller
            continue
        if call.error is not None:
            call.future.set_exception(call.error)
        else:
            call.future.set_result(call.answer)
