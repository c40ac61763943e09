"""Reads what a request brings: its body, cut off at a limit while it is read, and the parameters behind the `?`.

A stranger decides how long a body is and how slowly it comes. So both are bounded, also where no length is announced,
and so is what all bodies that are being read take together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from holdfast.dispatcher.problems import Refusal
from holdfast.errors import InvalidTask, PayloadTooLarge, StoreUnavailable

BODY_BYTES = 32 << 20
ALL_BYTES = 256 << 20
BODY_SECONDS = 30.0
"""Within which a body has to be here whole."""
UNREAD_BYTES = 64 << 10
LINGER_BYTES, LINGER_SECONDS, SILENCE_SECONDS = 128 << 20, 10.0, 1.0
"""So much of a body that is refused is still listened to, for so long, and while it comes."""
PARAMETERS_MOST = 32

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
T = TypeVar("T")


class Disconnected(Exception):
    """The caller has gone before it had said everything: nobody is left to answer."""


class Intake:
    """All bodies that are being read now."""

    def __init__(self, *, each: int = BODY_BYTES, all_together: int = ALL_BYTES, seconds: float = BODY_SECONDS) -> None:
        self._each = each
        self._all = all_together
        self._seconds = seconds
        self._held = 0

    async def read(self, receive: Receive, headers: Mapping[bytes, bytes]) -> bytes:
        _check_kind(headers)
        announced = headers.get(b"content-length", b"0")
        if announced.isdigit() and int(announced) > self._each:
            raise _too_large(self._each)
        try:
            async with asyncio.timeout(self._seconds):
                return await self._read(receive)
        except TimeoutError:
            words = f"the body did not come whole within {self._seconds:g} s"
            raise Refusal(408, "request_timeout", words) from None

    async def _read(self, receive: Receive) -> bytes:
        parts: list[bytes] = []
        size = 0
        try:
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Disconnected
                part: bytes = message.get("body", b"")
                parts.append(part)
                size += len(part)
                self._held += len(part)
                if size > self._each:
                    raise _too_large(self._each)
                if self._held > self._all:
                    raise StoreUnavailable("the dispatcher has its hands full with large bodies; send this again")
                if not message.get("more_body", False):
                    return parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            self._held -= size


async def linger(receive: Receive, headers: Mapping[bytes, bytes]) -> None:
    """Let the rest of a body pass that is refused. Who is hung up on while talking finds the connection broken: it does
    not hear why, and tries again for ever.
    """
    if b"expect" in headers or not (headers.keys() & {b"content-length", b"transfer-encoding"}):
        return
    passed = 0
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while passed < LINGER_BYTES:
                async with asyncio.timeout(SILENCE_SECONDS):
                    message = await receive()
                if not message.get("more_body", False):
                    return
                passed += len(message.get("body", b""))
    except TimeoutError:
        return


def _too_large(limit: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body takes more than {limit:,} bytes; send it in parts")


def _check_kind(headers: Mapping[bytes, bytes]) -> None:
    """What a browser sends for any page without asking (a form, plain text) is not taken for JSON."""
    kind = headers.get(b"content-type")
    if kind is not None and kind.split(b";")[0].strip().lower() != b"application/json":
        raise Refusal(415, "unsupported_media_type", "send JSON, with the header `content-type: application/json`")


def is_long(headers: Mapping[bytes, bytes]) -> bool:
    """What was announced would take a while to come; one that is not read is not waited for either."""
    announced = headers.get(b"content-length", b"0")
    return b"transfer-encoding" in headers or not announced.isdigit() or int(announced) > UNREAD_BYTES


def decoded(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """The body as this form, or InvalidTask, which says where it is not."""
    try:
        return decoder.decode(body)
    except RecursionError:
        raise InvalidTask("the body is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        raise InvalidTask(f"the body is not what this call takes: {wrong}") from None


def parameters(query: bytes, form: type[T]) -> T:
    """The same for what stands behind the `?`."""
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=PARAMETERS_MOST,
        )
    except ValueError:
        raise InvalidTask("the parameters behind the ? cannot be read; percent-encode them as UTF-8") from None
    given = dict(pairs)
    if len(given) < len(pairs):
        raise InvalidTask("a parameter is given twice")
    try:
        return msgspec.convert(given, form, strict=False)
    except msgspec.ValidationError as wrong:
        raise InvalidTask(f"the parameters are not what this call takes: {wrong}") from None
