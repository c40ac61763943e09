"""A TCP proxy in front of a server that cuts connections at a commit: before the server gets it, or after.

It understands just enough of the protocol: of PostgreSQL's here, of a dispatcher's in http_link.py, of NATS's in
nats_link.py. A client's messages up to a Sync or a simple Query are one exchange, which the server ends with
ReadyForQuery and the state of the transaction. An exchange commits if it is a COMMIT, or runs a statement (or ends a
COPY) outside of a transaction. *Before*: the exchange is thrown away with the connection. *After*: the server's whole
reply has arrived here, so the work is done, and is thrown away with the connection. The proxy can also be shut, as if
there were no server, and opened again.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlsplit, urlunsplit

T = TypeVar("T")
Cut = Literal["before", "after"]
Decide = Callable[[], Cut | None]
"""Asked at every commit."""

SIDE = "side of a link"
IDLE = b"I"
_SSL_REQUEST = 80877103


def never() -> Cut | None:
    return None


class Plan:
    """Cuts with this probability, half of them before the commit and half after; the same for the same seed."""

    def __init__(self, seed: int, probability: float) -> None:
        self._random = Random(seed)
        self._probability = probability

    def __call__(self) -> Cut | None:
        drawn = self._random.random()
        return None if drawn >= self._probability else "before" if drawn < self._probability / 2 else "after"


class CutProxy:
    """Serves on a thread of its own while the block lasts. Every server that the URL names has a port here."""

    def __init__(self, url: str, *, link: type[Link] | None = None) -> None:
        self._parts = urlsplit(url)
        self._user, self._at, addresses = self._parts.netloc.rpartition("@")
        assert addresses
        self._servers = [urlsplit(f"//{address}") for address in addresses.split(",")]
        self._link = link or PostgresLink
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._links: set[asyncio.Task[None]] = set()
        self._listeners: list[asyncio.Server] = []
        self.decide: Decide = never
        self.cuts = {"before": 0, "after": 0}
        self.url = ""

    @property
    def total(self) -> int:
        return sum(self.cuts.values())

    def arm(self, cut: Cut, *, skip: int = 0) -> None:
        """Cut the next commit, or a later one, and then no more."""
        left = skip

        def decide() -> Cut | None:
            nonlocal left
            left -= 1
            if left >= 0:
                return None
            self.decide = never
            return cut

        self.decide = decide

    def __enter__(self) -> Self:
        self._thread.start()
        self._ports = [_held_port() for _ in self._servers]
        addresses = ",".join(f"127.0.0.1:{port.getsockname()[1]}" for port in self._ports)
        self.url = urlunsplit(self._parts._replace(netloc=f"{self._user}{self._at}{addresses}"))
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.shut()
        for port in self._ports:
            port.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def open(self) -> None:
        self._run(self._open())

    def shut(self) -> None:
        """From now on nobody can connect, and whoever was connected is thrown out."""
        self._run(self._shut())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> None:
        for server, port in zip(self._servers, self._ports, strict=True):
            accept, number = partial(self._accept, str(server.hostname), server.port or 5432), port.getsockname()[1]
            self._listeners.append(await asyncio.start_server(accept, "127.0.0.1", number, reuse_port=True))

    async def _shut(self) -> None:
        while accepting := {task for task in _others() - self._links if task.get_name() != SIDE}:
            await asyncio.wait(accepting)  # asyncio would forget to close these, were their listener closed now
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for link in self._links:
            link.cancel()
        while others := _others():
            await asyncio.wait(others)

    async def _accept(self, host: str, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        try:
            with contextlib.suppress(OSError, EOFError):
                await self._link(self, reader, writer).run(host, port)
        except asyncio.CancelledError:
            return  # the proxy is shut
        finally:
            self._links.discard(link)

    def ask(self) -> Cut | None:
        cut = self.decide()
        if cut is not None:
            self.cuts[cut] += 1
        return cut


class Link:
    """One connection of a client, and the one to the server that belongs to it."""

    def __init__(self, proxy: CutProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._from_client = reader
        self._to_client = writer
        self._dropping = False
        """The reply that is under way is the last one, and nobody gets it."""

    async def run(self, host: str, port: int) -> None:
        """Until either side, or a cut, ends it."""
        try:
            from_server, self._to_server = await asyncio.open_connection(host, port)
        except BaseException:
            self._to_client.transport.abort()
            raise
        sides = [
            asyncio.create_task(self._client_side(), name=SIDE),
            asyncio.create_task(self._server_side(from_server), name=SIDE),
        ]
        try:
            await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for side in sides:
                side.cancel()
            for writer in (self._to_server, self._to_client):
                writer.transport.abort()  # before any wait, in which this may be cancelled
            await asyncio.gather(*sides, return_exceptions=True)

    async def _client_side(self) -> None:
        raise NotImplementedError

    async def _server_side(self, from_server: asyncio.StreamReader) -> None:
        raise NotImplementedError

    def _cut(self) -> bool:
        """Is the connection over at once?"""
        cut = self._proxy.ask()
        self._dropping = cut == "after"
        return cut == "before"


class PostgresLink(Link):
    _state = b""

    async def _client_side(self) -> None:
        await self._greet()
        exchange = b""
        executes = False
        while True:
            kind, message = await _message(self._from_client)
            exchange += message
            executes |= kind == b"E"
            if kind in b"SQc":
                if self._commits(kind, message, executes=executes) and self._cut():
                    return
                executes = False
            if kind not in b"PBDEC":  # parts of an exchange: a cut before the commit takes them along
                self._to_server.write(exchange)
                exchange = b""

    async def _greet(self) -> None:
        """The start of a connection has no kinds of messages yet. TLS is refused in the server's name."""
        while True:
            length = await self._from_client.readexactly(4)
            body = await self._from_client.readexactly(struct.unpack("!i", length)[0] - 4)
            if struct.unpack("!i", body[:4])[0] != _SSL_REQUEST:
                self._to_server.write(length + body)
                return
            self._to_client.write(b"N")

    def _commits(self, kind: bytes, message: bytes, *, executes: bool) -> bool:
        if kind == b"Q":
            return message[5:].startswith(b"COMMIT")
        return (executes or kind == b"c") and self._state == IDLE

    async def _server_side(self, from_server: asyncio.StreamReader) -> None:
        while True:
            kind, message = await _message(from_server)
            if kind == b"Z":
                self._state = message[5:6]
                if self._dropping:
                    return
            if not self._dropping:
                self._to_client.write(message)


def _others() -> set[asyncio.Task[Any]]:
    return asyncio.all_tasks() - {asyncio.current_task()}


def _held_port() -> socket.socket:
    """Free, and nobody else's while the proxy is shut: one that is bound but does not listen refuses."""
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    held.bind(("127.0.0.1", 0))
    return held


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
