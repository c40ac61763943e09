"""What stands before NATS servers in tests, one or a cluster of them: a cut proxy that reads message by message.

A commit is a publish that wants an answer and changes a stream: a message of its own, the last of an atomic batch, a
purge. *Before*: it is thrown away with the connection. *After*: its answer has arrived here, so the work is done, and
is thrown away with the connection. Whatever else was under way goes with it. With `stays` the connection remains, and
only the message or its answer is lost: the client learns nothing.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import NamedTuple

from tests.cut_proxy import CutProxy, Link

CHANGES = (b"$JS.API.STREAM.PURGE.", b"$JS.API.STREAM.MSG.DELETE.")


class Publish(NamedTuple):
    subject: bytes
    reply: bytes
    """Empty where nobody waits for an answer."""
    headers: bytes
    body: bytes


def commits(publish: Publish) -> bool:
    if publish.subject.startswith(b"$JS."):
        return publish.subject.startswith(CHANGES)
    within = b"\r\nNats-Batch-Id:" in publish.headers and b"\r\nNats-Batch-Commit:" not in publish.headers
    return bool(publish.reply) and not within


class NatsProxy(CutProxy):
    """For a URL with one server or several; `url` has the same prefix and credentials."""

    def __init__(self, url: str) -> None:
        super().__init__(url, link=NatsLink)
        self.at: Callable[[Publish], bool] = commits
        """Where a cut is decided."""
        self.stays = False
        self.swallows: Callable[[bytes], bool] = lambda _: False
        """Asked for every message to a client, by its first line: is it lost on the way, and nothing else?"""
        self._bytes: int | None = None

    def arm_bytes(self, count: int) -> None:
        """Cut once so many bytes more have come from clients and gone to the server, and then no more."""
        self._bytes = count

    def allowed(self, count: int) -> int:
        """How many of the next `count` bytes go to the server; if not all, the connection ends."""
        if self._bytes is None:
            return count
        self._bytes -= count
        if self._bytes >= 0:
            return count
        let, self._bytes = self._bytes + count, None
        self.cuts["before"] += 1
        return let


class NatsLink(Link):
    def __init__(self, proxy: CutProxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(proxy, reader, writer)
        assert isinstance(proxy, NatsProxy)
        self._plan = proxy
        self._lost: set[bytes] = set()
        """Where answers are waited for that nobody gets."""

    async def _client_side(self) -> None:
        while True:
            words, message = await _message(self._from_client)
            cut, reply = None, b""
            if words[0] in (b"PUB", b"HPUB") and self._plan.at(publish := _publish(words, message)):
                cut, reply = self._plan.ask(), publish.reply
            if cut == "before" and not self._plan.stays:
                return
            if cut == "before":
                continue
            if cut == "after" and reply:
                self._lost.add(reply)
            allowed = self._plan.allowed(len(message))
            self._to_server.write(message[:allowed])
            unanswered = cut == "after" and not reply  # it is done when it is sent
            if allowed < len(message) or (unanswered and not self._plan.stays):
                self._to_server.close()
                await self._to_server.wait_closed()  # all of it is sent
                return

    async def _server_side(self, from_server: asyncio.StreamReader) -> None:
        while True:
            words, message = await _message(from_server)
            if words[0] == b"INFO":
                message = _alone(message)
            elif words[0] in (b"MSG", b"HMSG") and words[1] in self._lost:
                if not self._plan.stays:
                    return
                continue
            elif words[0] in (b"MSG", b"HMSG") and self._plan.swallows(b" ".join(words)):
                continue
            self._to_client.write(message)


def _publish(words: list[bytes], message: bytes) -> Publish:
    """PUB subject [reply] size, or HPUB subject [reply] size-of-headers size."""
    sizes = [int(word) for word in words[-1 if words[0] == b"PUB" else -2 :]]
    reply = words[2] if len(words) == 3 + len(sizes) else b""
    body = message[-sizes[-1] - 2 : -2]
    headers = sizes[0] if len(sizes) == 2 else 0
    return Publish(words[1], reply, body[:headers], body[headers:])


def _alone(info: bytes) -> bytes:
    """Without the addresses of other nodes, by which a client would go past this proxy."""
    told = json.loads(info.removeprefix(b"INFO "))
    told.pop("connect_urls", None)
    return b"INFO " + json.dumps(told).encode() + b"\r\n"


async def _message(reader: asyncio.StreamReader) -> tuple[list[bytes], bytes]:
    """The words of its first line, and all of it."""
    line = await reader.readuntil(b"\r\n")
    words = line.split()
    if words[0] in (b"PUB", b"HPUB", b"MSG", b"HMSG"):
        return words, line + await reader.readexactly(int(words[-1]) + 2)
    return words, line
