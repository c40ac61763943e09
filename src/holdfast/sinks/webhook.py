"""Webhooks: each event is one signed POST (policy/signing.py says how, webhooks.py checks it at the other end).

The other end may be hostile, and so may its URL: the name is resolved once per connection, every address it has is
checked, and the connection goes to a checked address; no redirects, no proxies, no cookies, no compression; little is
read of an answer, and time is bounded.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from holdfast.clock import SYSTEM_CLOCK, from_micros
from holdfast.model.outbox import NewSink, OutboxRow
from holdfast.policy.addresses import checked_webhook_url, refused_address
from holdfast.policy.error_text import safe_text
from holdfast.policy.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, delivery_id, signature
from holdfast.sinks.one_by_one import each
from holdfast.sinks.protocol import DELIVERED, Answer, described, unreached
from holdfast.version import __version__

TOTAL_SECONDS, CONNECT_SECONDS = 10.0, 5.0
AT_ONCE = 50
READ_BYTES = 64 << 10
SHOWN_CHARS = 200
GONE, TOO_MANY, UNAVAILABLE = 410, 429, 503

_encode = msgspec.json.Encoder().encode


class AddressRefused(Exception):
    """A name leads where nothing may be sent."""


class CheckedResolver(AbstractResolver):
    """Resolves like everybody, and refuses a name any of whose addresses may not be reached.

    aiohttp connects to what is returned here: between check and connection nothing is resolved again.
    """

    def __init__(self, inner: AbstractResolver, *, private: bool) -> None:
        self._inner = inner
        self._private = private

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await self._inner.resolve(host, port, family)
        for result in found:
            why = refused_address(result["host"], private=self._private)
            if why is not None:
                raise AddressRefused(f"{host} leads to {why}")
        return found

    async def close(self) -> None:
        await self._inner.close()


class Webhook:
    def __init__(
        self, target: NewSink, *, resolver: AbstractResolver | None = None, total_seconds: float = TOTAL_SECONDS
    ) -> None:
        self._target = target
        # Whoever wrote the record may have done so past our checks.
        self._url = URL(checked_webhook_url(target.url, private=target.private), encoded=True)
        self._resolver = resolver
        self._total_seconds = total_seconds
        self._session: aiohttp.ClientSession | None = None

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            inner = self._resolver or aiohttp.ThreadedResolver()
            connector = aiohttp.TCPConnector(
                resolver=CheckedResolver(inner, private=self._target.private),
                use_dns_cache=False,
                limit=2 * AT_ONCE,  # there may be two calls at once, and neither is to wait for the other's connections
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=self._total_seconds, sock_connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=False,
                auto_decompress=False,
                headers={"User-Agent": f"holdfast/{__version__}", "Accept-Encoding": "identity"},
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def tell(self, rows: Sequence[OutboxRow]) -> list[Answer]:
        return await each(rows, self._post, at_once=AT_ONCE)

    async def _post(self, row: OutboxRow) -> Answer:
        assert row.event is not None, "a webhook is told events"
        body = _encode(row.event)
        try:
            async with self._opened().post(
                self._url, data=body, headers=self._headers(row, body), allow_redirects=False
            ) as response:
                return await _judged(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, AddressRefused) as error:
            return unreached(error)
        except Exception as error:  # whatever it is, it is of this row: the others are told
            return Answer(error=described(error), blame=False, silent=True)

    def _headers(self, row: OutboxRow, body: bytes) -> dict[str, str]:
        delivery, timestamp = delivery_id(row), str(SYSTEM_CLOCK.micros() // 1_000_000)
        headers = {"Content-Type": "application/json", ID_HEADER: delivery, TIMESTAMP_HEADER: timestamp}
        if self._target.secret is not None:
            headers[SIGNATURE_HEADER] = signature(self._target.secret, delivery, timestamp, body)
        return headers


async def _judged(response: aiohttp.ClientResponse) -> Answer:
    status = response.status
    shown = await _beginning(response)
    if 200 <= status < 300:
        return DELIVERED
    error = f"answered {status}" + (f": {shown}" if shown else "")
    delay = _asked_delay(response) if status in (TOO_MANY, UNAVAILABLE) else None
    return Answer(error=error, final=status == GONE, delay_seconds=delay)


async def _beginning(response: aiohttp.ClientResponse) -> str:
    """What an answer begins with, for people. Its status has been told: what is wrong with the rest does not matter."""
    read = b""
    try:
        while len(read) < READ_BYTES and (part := await response.content.read(READ_BYTES - len(read))):
            read += part
    except (aiohttp.ClientError, OSError):
        pass
    return safe_text(read[: 4 * SHOWN_CHARS].decode("utf-8", "replace").strip(), SHOWN_CHARS)


def _asked_delay(response: aiohttp.ClientResponse) -> float | None:
    """Retry-After: seconds, or a date. None where it is absent or nonsense."""
    text = response.headers.get("Retry-After", "").strip()
    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        until = parsedate_to_datetime(text)
    except (ValueError, IndexError, OverflowError):
        return None
    until = until if until.tzinfo is not None else until.replace(tzinfo=UTC)
    return max((until - from_micros(SYSTEM_CLOCK.micros())).total_seconds(), 0.0)
