"""NATS: `nats://host:port/subject.prefix`, `tls://…` for TLS from the first byte.

Wake-ups go to `<prefix>.<queue>`, the queue's name encoded so that it is one token of a subject.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote, urlsplit

import msgspec

from holdfast.errors import InvalidTask
from holdfast.transports.extras import missing

if TYPE_CHECKING:
    from nats.aio.client import Client

CONNECT_SECONDS = 5
PORT = 4222
PREFIX = "holdfast.wakeup"
HOW = "write nats://host:port/subject.prefix"

_SUBJECT = re.compile(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*")


class Address(msgspec.Struct, frozen=True):
    server: str
    prefix: str
    credentials: str | None
    """`user:password`, or a token; never part of what is shown."""

    @property
    def url(self) -> str:
        """As it is declared and shown."""
        return f"{self.server}/{self.prefix}"

    def subject(self, queue: str) -> str:
        return f"{self.prefix}.{encoded(queue)}"


def encoded(queue: str) -> str:
    return quote(queue, safe="").replace(".", "%2E")


def parsed(url: str, credentials: str | None = None) -> Address:
    """`credentials`: those that were kept apart from a URL that is shown."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORT
    except ValueError:
        raise InvalidTask(f"a NATS URL cannot be read; {HOW}") from None
    prefix = parts.path.strip("/") or PREFIX
    if not parts.hostname or parts.query or parts.fragment or not _SUBJECT.fullmatch(prefix):
        raise InvalidTask(f"a NATS URL names a server and the beginning of a subject; {HOW}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    own = parts.netloc.rpartition("@")[0] or None
    return Address(f"{parts.scheme}://{host}:{port}", prefix, own or credentials)


async def connect(address: Address, *, closed: Callable[[], None] | None = None) -> Client:
    """A connection that does not mend itself: who uses it is told when it ends, and makes another."""
    try:
        from nats.aio.client import Client
        from nats.errors import NoServersError
    except ModuleNotFoundError:
        raise missing("a wake-up by NATS", "nats-py", "nats") from None
    failures: list[Exception] = []

    async def failed(error: Exception) -> None:
        failures[:] = [error]  # later ones also end the connection or the call, and are told there

    async def ended() -> None:
        if closed is not None:
            closed()

    user, separator, password = (address.credentials or "").partition(":")
    client = Client()
    try:
        async with asyncio.timeout(2 * CONNECT_SECONDS):
            await client.connect(
                address.server,
                user=unquote(user) if separator else None,
                password=unquote(password) if separator else None,
                token=unquote(user) if user and not separator else None,
                connect_timeout=CONNECT_SECONDS,
                allow_reconnect=False,
                max_reconnect_attempts=1,  # without a bound the first connect is tried for ever
                reconnect_time_wait=0,
                error_cb=failed,
                closed_cb=ended,
            )
    except NoServersError as nobody:
        why = failures[0] if failures else nobody
        raise ConnectionError(f"no NATS server at {address.server}: {why}") from None
    except BaseException:
        await client.close()
        raise
    return client
