"""One call of a dispatcher: encoded, sent, decoded. What it is about is the verbs' business.

Also what every verb begins with, the line, and what a batch is cut into: bodies are bounded on the other side.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from holdfast.dispatcher import wire
from holdfast.dispatcher.queries import Query
from holdfast.errors import HoldfastError, PayloadTooLarge, StoreUnavailable
from holdfast.policy import refusals
from holdfast.stores.remote.forms import nameable
from holdfast.stores.remote.line import UNREADABLE, Line, error_of
from holdfast.stores.remote.options import Options

BODY_BYTES = 8 << 20
"""A batch of which each item stands for itself is cut before it grows beyond."""

A = TypeVar("A")
T = TypeVar("T")

_encode = msgspec.json.Encoder().encode

ROUTES = {
    "submit": ("POST", "/v1/tasks"),
    "tasks": ("GET", "/v1/tasks"),
    "task_by_key": ("GET", "/v1/tasks/by-key"),
    "ended": ("POST", "/v1/tasks/ended"),
    "amend": ("POST", "/v1/tasks/amend"),
    "task": ("GET", "/v1/tasks/{task_id}"),
    "task_events": ("GET", "/v1/tasks/{task_id}/events"),
    "parents": ("GET", "/v1/tasks/{task_id}/parents"),
    "steps": ("GET", "/v1/tasks/{task_id}/steps"),
    "inputs": ("GET", "/v1/tasks/{task_id}/inputs"),
    "claim": ("POST", "/v1/claims"),
    "wakeups": ("GET", "/v1/wakeups"),
    "extend": ("POST", "/v1/leases/extend"),
    "settle": ("POST", "/v1/settlements"),
    "report": ("POST", "/v1/reports"),
    "record_step": ("POST", "/v1/steps"),
    "workers": ("GET", "/v1/workers"),
    "enroll": ("POST", "/v1/workers"),
    "leave": ("POST", "/v1/workers/leave"),
    "events": ("GET", "/v1/events"),
    "queues": ("GET", "/v1/queues"),
    "pause_queue": ("POST", "/v1/queues/pause"),
    "limit": ("POST", "/v1/queues/limit"),
    "runs": ("GET", "/v1/runs"),
    "run": ("GET", "/v1/runs/one"),
    "run_lives": ("GET", "/v1/runs/lives"),
    "advance": ("POST", "/v1/advance"),
    "schedules": ("GET", "/v1/schedules"),
    "declare_schedule": ("POST", "/v1/schedules"),
    "fire": ("POST", "/v1/schedules/fire"),
    "pause_schedule": ("POST", "/v1/schedules/pause"),
    "delete_schedule": ("POST", "/v1/schedules/delete"),
    "datasets": ("GET", "/v1/datasets"),
    "dataset_versions": ("GET", "/v1/datasets/versions"),
    "dataset_version": ("GET", "/v1/datasets/version"),
    "dataset_rows": ("GET", "/v1/datasets/rows"),
    "sinks": ("GET", "/v1/sinks"),
    "declare_sink": ("POST", "/v1/sinks"),
    "delete_sink": ("POST", "/v1/sinks/delete"),
    "outbox": ("GET", "/v1/outbox"),
    "requeue_outbox": ("POST", "/v1/outbox/requeue"),
    "purge_outbox": ("POST", "/v1/outbox/purge"),
    "store": ("GET", "/v1/store"),
    "now": ("GET", "/v1/now"),
    "check": ("GET", "/v1/check"),
}
"""By name in the dispatcher's table: method and path."""


_decoders: dict[type, msgspec.json.Decoder[Any]] = {}


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
        method, path = ROUTES[name]
        if "{" in path:
            path = path.replace("{task_id}", _quoted(task_id))
        query = _parameters(given) if isinstance(given, Query) else None
        body = _encode(given) if isinstance(given, wire.Call) else None
        content = await self._line.call(method, path, body, query, seconds=seconds)
        return _decoded(name, answer, content)

    async def _send(self, name: str, answer: type[A], field: bytes, load: Sequence[bytes]) -> A:
        """The same for `{field: load}`, whose items are encoded already."""
        body = b'{"%s":[%s]}' % (field, b",".join(load))
        return _decoded(name, answer, await self._line.call(*ROUTES[name], body))


def _decoded(name: str, answer: type[A], content: bytes) -> A:
    decoder: msgspec.json.Decoder[A] | None = _decoders.get(answer)
    if decoder is None:
        decoder = _decoders[answer] = msgspec.json.Decoder(answer)
    try:
        return decoder.decode(content)
    except UNREADABLE as strange:
        # Somebody on the way answers in its place. Whether it happened nobody knows: so it is asked again.
        words = f"the dispatcher's answer to {name!r} cannot be read: {strange}"
        raise StoreUnavailable(words, lasting=True) from None


def _quoted(task_id: str) -> str:
    """In a path. What cannot stand there is no task's id."""
    if "/" in task_id or task_id in (".", "..") or not nameable(task_id):
        raise refusals.not_found(task_id)
    return quote(task_id, safe="")


def _parameters(query: Query) -> dict[str, str]:
    plain: dict[str, Any] = msgspec.to_builtins(query)
    return {name: _text(value) for name, value in plain.items() if value is not None}


def _text(value: Any) -> str:
    return ("false", "true")[value] if isinstance(value, bool) else str(value)


def refusal(refused: wire.Refused) -> HoldfastError:
    return error_of(refused.code, refused.detail)


def loads(items: Iterable[wire.Call], most: int) -> Iterator[list[bytes]]:
    """Encoded, in as many loads as it takes that none is too large; each item stands for itself."""
    held: list[bytes] = []
    size = 0
    for item in items:
        encoded = _encode(item)
        if held and (size + len(encoded) > BODY_BYTES or len(held) == most):
            yield held
            held, size = [], 0
        held.append(encoded)
        size += len(encoded)
    if held:
        yield held


async def pages(limit: int, page: Callable[[int, Sequence[T]], Awaitable[Sequence[T]]]) -> list[T]:
    """Up to `limit`, page by page. `page` is told how many it may give, and what has been found so far.

    Where records are so large that a page does not fit into an answer, pages of half the number follow.
    """
    found: list[T] = []
    widest = wire.PAGE_MOST
    while len(found) < limit:
        most = min(limit - len(found), widest)
        try:
            some = await page(most, found)
        except PayloadTooLarge:
            if most == 1:
                raise
            widest = most // 2
            continue
        found += some
        if len(some) < most:
            break
    return found
