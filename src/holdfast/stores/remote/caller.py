"""One call of the dispatcher's table of routes: encoded, sent, decoded. What it is about is the verbs' business.

Also what every verb begins with, the line, and what a batch is cut into: bodies are bounded on the other side.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from holdfast.dispatcher import wire
from holdfast.dispatcher.queries import Query
from holdfast.dispatcher.routes import TABLE
from holdfast.errors import HoldfastError
from holdfast.stores.remote.line import Line, error_of
from holdfast.stores.remote.options import Options

BODY_BYTES = 8 << 20
"""A batch of which each item stands for itself is cut before it grows beyond."""

A = TypeVar("A")
T = TypeVar("T")

_encode = msgspec.json.Encoder().encode
_ROUTES = {route.name: route for route in TABLE}
_DECODERS: dict[str, msgspec.json.Decoder[Any]] = {route.name: msgspec.json.Decoder(route.answer) for route in TABLE}


class Caller:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._line = Line(options)

    @property
    def label(self) -> str:
        """The store in words for people, without secrets."""
        return self._options.label

    async def _ask(
        self,
        name: str,
        answer: type[A],
        given: wire.Call | Query | None = None,
        *,
        task_id: str = "",
        seconds: float | None = None,
    ) -> A:
        """The answer of the route of this name, which is of this type."""
        route = _ROUTES[name]
        path = route.path.replace("{task_id}", quote(task_id, safe="")) if task_id else route.path
        query = _parameters(given) if isinstance(given, Query) else None
        body = _encode(given) if isinstance(given, wire.Call) else None
        content = await self._line.call(route.method, path, body, query, seconds=seconds)
        return _decoded(name, answer, content)

    async def _send(self, name: str, answer: type[A], body: bytes) -> A:
        """The same with a body that is encoded already."""
        return _decoded(name, answer, await self._line.call("POST", _ROUTES[name].path, body))


def _decoded(name: str, answer: type[A], content: bytes) -> A:
    try:
        made = _DECODERS[name].decode(content)
    except msgspec.DecodeError as strange:
        raise HoldfastError(f"the dispatcher's answer to {name!r} cannot be read: {strange}") from None
    assert isinstance(made, answer), name
    return made


def _parameters(query: Query) -> dict[str, str]:
    plain: dict[str, Any] = msgspec.to_builtins(query)
    return {name: _text(value) for name, value in plain.items() if value is not None}


def _text(value: Any) -> str:
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


def refusal(refused: wire.Refused) -> HoldfastError:
    return error_of(refused.code, refused.detail)


def bodies(field: str, items: Iterable[wire.Call], most: int) -> Iterator[bytes]:
    """`{field: items}`, in as many bodies as it takes that none is too large; each item stands for itself."""
    held: list[bytes] = []
    size = 0
    for item in items:
        encoded = _encode(item)
        if held and (size + len(encoded) > BODY_BYTES or len(held) == most):
            yield _body(field, held)
            held, size = [], 0
        held.append(encoded)
        size += len(encoded)
    if held:
        yield _body(field, held)


def _body(field: str, items: Sequence[bytes]) -> bytes:
    return b'{"%s":[%s]}' % (field.encode(), b",".join(items))


async def pages(limit: int, page: Callable[[int, Sequence[T]], Awaitable[Sequence[T]]]) -> list[T]:
    """Up to `limit`, page by page. `page` is told how many it may give, and what has been found so far."""
    found: list[T] = []
    while len(found) < limit:
        most = min(limit - len(found), wire.PAGE_MOST)
        some = await page(most, found)
        found += some
        if len(some) < most:
            break
    return found


def portions(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """In order; none for none."""
    for start in range(0, len(items), most):
        yield items[start : start + most]
