"""Calls that block, in threads that nobody has to wait for: none can be ended, and a process must still end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(call: Callable[[], T], *, name: str) -> T:
    """The answer of `call`. Where the waiter is canceled, the call goes on by itself, and nobody hears how it ended."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[T] = loop.create_future()

    def settle(value: T | None, error: Exception | None) -> None:
        if not answer.done():
            answer.set_exception(error) if error is not None else answer.set_result(value)  # type: ignore[arg-type]

    def serve() -> None:
        value: T | None = None
        error: Exception | None = None
        try:
            value = call()
        except StopIteration as raised:  # which no future can carry
            error = RuntimeError(repr(raised))
        except Exception as raised:
            error = raised
        except BaseException as raised:  # SystemExit and its like must not end who waits
            error = RuntimeError(repr(raised))
        try:
            loop.call_soon_threadsafe(settle, value, error)
        except RuntimeError:
            return  # the loop has closed

    threading.Thread(target=serve, name=name, daemon=True).start()
    return await answer
