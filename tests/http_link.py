"""What stands before dispatchers in tests, speaking plain HTTP/1.1 with lengths, one request after the other.

HttpLink is a connection behind the cut proxy.
Every request but a GET is taken for a commit. *Before*: the request is thrown away with the connection. *After*: the
whole answer has arrived here, so the work is done, and is thrown away with the connection.
"""

from __future__ import annotations

import asyncio
from itertools import cycle
from urllib.parse import urlsplit

from tests.cut_proxy import CutProxy, Link


class HttpLink(Link):
    async def _client_side(self) -> None:
        while True:
            head, request = await _message(self._from_client)
            if not head.startswith(b"get ") and self._cut():
                return
            self._to_server.write(request)

    async def _server_side(self, from_server: asyncio.StreamReader) -> None:
        while True:
            _, answer = await _message(from_server)
            if self._dropping:
                return
            self._to_client.write(answer)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """The head in lower case, and all of it."""
    head = await reader.readuntil(b"\r\n\r\n")
    _, found, rest = head.lower().partition(b"\r\ncontent-length:")
    length = int(rest.split(b"\r\n", 1)[0]) if found else 0
    return head.lower(), head + await reader.readexactly(length)


class Turns(CutProxy):
    """Several dispatchers behind one URL: every request goes to the next of them."""

    def __init__(self, *urls: str) -> None:
        super().__init__(urls[0], link=TurnsLink)
        self.next_one = cycle([(str(parts.hostname), parts.port) for parts in map(urlsplit, urls)])


class TurnsLink(Link):
    async def run(self, _host: str, _port: int) -> None:
        assert isinstance(self._proxy, Turns)
        try:
            while True:
                _, request = await _message(self._from_client)
                from_server, to_server = await asyncio.open_connection(*next(self._proxy.next_one))
                to_server.write(request)
                self._to_client.write((await _message(from_server))[1])
                to_server.close()
        finally:
            self._to_client.transport.abort()
