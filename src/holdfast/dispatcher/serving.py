"""Runs the service on a socket, with uvicorn: where it may listen, and how it stops.

Without tokens it listens on this machine only. Stopping: it says that it is not ready, answers who waits, ends who
streams, lets what is under way finish, and then leaves the store.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from holdfast.dispatcher.http_limits import http_protocol
from holdfast.dispatcher.service import Dispatcher
from holdfast.errors import HoldfastError, InvalidTask

KEEP_ALIVE_SECONDS = 75
STOP_SECONDS = 25
"""Within which what is under way has to finish."""
BACKLOG = 2048

log = logging.getLogger("holdfast.dispatcher")


class Address(msgspec.Struct, frozen=True):
    """`certificate`, `key`: files for TLS; else plain HTTP."""

    host: str = "127.0.0.1"
    port: int = 8080
    certificate: Path | None = None
    key: Path | None = None

    def listen(self) -> socket.socket:
        try:
            family, kind, protocol, _, where = self._resolved()[0]
            listening = socket.socket(family, kind, protocol)
        except OSError as error:
            raise InvalidTask(f"there is no address {self.host!r} to listen on: {error}") from None
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(where)
            listening.listen(BACKLOG)
        except OSError as error:
            listening.close()
            words = f"cannot listen on {self.host}:{self.port}: {error.strerror}; choose another with --host and --port"
            raise HoldfastError(words) from None
        return listening

    @property
    def local(self) -> bool:
        """Nobody outside of this machine can reach it."""
        return all(ipaddress.ip_address(found[4][0]).is_loopback for found in self._resolved())

    def _resolved(self) -> list[Any]:
        try:
            return socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise InvalidTask(f"there is no address {self.host!r} to listen on: {error}") from None

    def url(self, listening: socket.socket) -> str:
        """As a client writes it: with the real port."""
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"{'http' if self.certificate is None else 'https'}://{shown}:{port}"


class Server(uvicorn.Server):
    """Stops when told, not by signals of its own: who runs it decides what those mean."""

    def __init__(self, dispatcher: Dispatcher, address: Address) -> None:
        self._dispatcher = dispatcher
        super().__init__(
            uvicorn.Config(
                dispatcher.app,
                http=http_protocol(),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=STOP_SECONDS,
                ssl_certfile=None if address.certificate is None else str(address.certificate),
                ssl_keyfile=None if address.key is None else str(address.key),
            )
        )

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def stop(self) -> None:
        """Once: in order. Again: at once."""
        if self.should_exit:
            log.warning("dispatcher.stopping at once")
        else:
            log.info("dispatcher.stopping calls=%d grace_s=%d", len(self.server_state.tasks), STOP_SECONDS)
        self._dispatcher.drain()
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        log.info("dispatcher.stopped unfinished=%d", len(self.server_state.tasks))
