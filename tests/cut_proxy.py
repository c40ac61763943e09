"""A TCP proxy in front of a server that cuts connections at a commit: before the server gets it, or after.

It understands just enough of the protocol: of PostgreSQL's here, of a dispatcher's in http_link.py. A client's messages
up to a Sync or a simple Query are one exchange, which the server ends with ReadyForQuery and the state of the
transaction. An exchange commits if it is a COMMIT, or runs a statement (or ends a COPY) outside of a transaction.
*Before*: the exchange is thrown away with the connection. *After*: the server's whole reply has arrived here, so the
work is done, and is thrown away with the connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Callable
from random import Random
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

Cut = Literal["before", "after"]
Decide = Callable[[], Cut | None]
"""Asked at every commit."""

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
    """Serves on a thread of its own while the block lasts."""

    def __init__(self, url: str, *, link: type[Link] | None = None) -> None:
        parts = urlsplit(url)
        assert parts.hostname is not None
        self._server = parts.hostname, parts.port or 5432
        self._link = link or PostgresLink
        self._parts = parts
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._links: set[asyncio.Task[None]] = set()
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

    def __enter__(self) -> CutProxy:
        self._thread.start()
        port = asyncio.run_coroutine_threadsafe(self._serve(), self._loop).result()
        user, at, _ = self._parts.netloc.rpartition("@")
        self.url = urlunsplit(self._parts._replace(netloc=f"{user}{at}127.0.0.1:{port}"))
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> int:
        self._listener = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return int(self._listener.sockets[0].getsockname()[1])

    async def _close(self) -> None:
        self._listener.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        link = asyncio.current_task()
        assert link is not None
        self._links.add(link)
        try:
            with contextlib.suppress(OSError, EOFError):
                await self._link(self, reader, writer).run(*self._server)
        except asyncio.CancelledError:
            return  # the proxy is closed
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
        from_server, self._to_server = await asyncio.open_connection(host, port)
        sides = [
            asyncio.ensure_future(self._client_side()),
            asyncio.ensure_future(self._server_side(from_server)),
        ]
        try:
            await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for side in sides:
                side.cancel()
            await asyncio.gather(*sides, return_exceptions=True)
            for writer in (self._to_server, self._to_client):
                writer.transport.abort()

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


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head[:1], head + await reader.readexactly(struct.unpack("!i", head[1:])[0] - 4)
