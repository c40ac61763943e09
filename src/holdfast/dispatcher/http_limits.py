"""How long, and how large, the head of a request may be: uvicorn's protocols with bounds of our own.

Without them a caller that never ends its headers keeps a connection for ever, and with httptools fills the memory.
Bodies are bounded where they are read (bodies.py), idle connections by uvicorn itself.
"""

from __future__ import annotations

import asyncio
from typing import Any

HEAD_BYTES = 64 << 10
HEAD_SECONDS = 15.0


def bounded(protocol: type[Any]) -> type[Any]:
    """This protocol of uvicorn, with bounds."""

    class Bounded(protocol):  # type: ignore[misc]
        _head_bytes = 0
        _head_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._await_head()

        def data_received(self, data: bytes) -> None:
            before = self.cycle
            super().data_received(data)
            if self.cycle is not before:
                self._stop_awaiting()
            elif before is None or before.response_complete:
                self._await_head()
                self._head_bytes += len(data)
                if self._head_bytes > HEAD_BYTES:
                    self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_awaiting()
            super().connection_lost(exc)

        def _await_head(self) -> None:
            if self._head_timer is None:
                self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

        def _stop_awaiting(self) -> None:
            self._head_bytes = 0
            if self._head_timer is not None:
                self._head_timer.cancel()
                self._head_timer = None

    return Bounded


def http_protocol() -> type[Any]:
    """On httptools where that is installed (`pip install "holdfast[fast]"`); else on h11."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
    except ImportError:
        from uvicorn.protocols.http.h11_impl import H11Protocol

        return bounded(H11Protocol)
    return bounded(HttpToolsProtocol)
