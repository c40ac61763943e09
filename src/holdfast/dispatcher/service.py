"""The service as an ASGI application: finds the route, asks who calls, reads what it brings, renders what comes of it.

    request ──► route ──► token, scope ──► query, body ──► handler ──► JSON
                  │            │               │             │
                  └────────────┴───────────────┴─────────────┴──► problem+json

Any ASGI server can run it; `holdfast serve` uses uvicorn (serving.py). It opens the store when the server starts it and
keeps it going (maintenance/crew.py) on a thread of its own, with a handle of its own.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route as StarletteRoute
from starlette.types import Receive, Scope, Send

from holdfast.dispatcher import problems
from holdfast.dispatcher.admission import Terms
from holdfast.dispatcher.bodies import Disconnected, Intake, decoded, is_long, linger, parameters
from holdfast.dispatcher.guard import SOMEBODY_HERE, Caller, Guard, check_scope
from holdfast.dispatcher.hall import Asked, Hall, Stream, Text
from holdfast.dispatcher.openapi import document
from holdfast.dispatcher.problems import Refusal
from holdfast.dispatcher.routes import TABLE, Route
from holdfast.dispatcher.upkeep import Upkeep
from holdfast.errors import HoldfastError
from holdfast.stores.protocol import StoreFactory

log = logging.getLogger("holdfast.dispatcher")

HUNG_UP = 499
"""Counted where nobody was left to answer."""
_encode = msgspec.json.Encoder().encode


class Dispatcher:
    """`always_tokens`: a call needs one even while the store has none; else whoever is on this machine may call."""

    def __init__(
        self,
        open_store: StoreFactory,
        *,
        upkeep: Upkeep,
        terms: Terms | None = None,
        intake: Intake | None = None,
        always_tokens: bool = True,
    ) -> None:
        self._open_store = open_store
        self._upkeep = upkeep
        self._terms = terms or Terms()
        self._intake = intake or Intake()
        self._always_tokens = always_tokens
        self.hall: Hall | None = None
        self.guard: Guard | None = None
        self.app = Starlette(routes=self._routes(), lifespan=self._lifespan)
        self.app.router.redirect_slashes = False
        self.app.router.default = _Nowhere(self)

    def drain(self) -> None:
        """Answer who waits, end who streams, say that it is not ready. Before the server is told to stop."""
        if self.hall is not None:
            self.hall.drain()

    @asynccontextmanager
    async def _lifespan(self, _app: Starlette) -> AsyncIterator[None]:
        hall = Hall(self._open_store(), self._terms)
        hall.document = document(TABLE)
        self.guard = Guard(hall.store, always=self._always_tokens)
        self.hall = hall
        try:
            await self._upkeep.start(self._open_store, hall.store.capabilities)
            yield
        finally:
            hall.drain()
            await self._upkeep.stop()
            await hall.close()

    def _routes(self) -> list[StarletteRoute]:
        by_path: dict[str, dict[str, Route]] = defaultdict(dict)
        for route in TABLE:
            by_path[route.path][route.method] = route
        # Plain paths before those with a parameter, which would match them too.
        ordered = sorted(by_path.items(), key=lambda item: "{" in item[0])
        return [StarletteRoute(path, _Endpoint(self, routes)) for path, routes in ordered]

    async def answer(self, route: Route, decoder: Any, scope: Scope, receive: Receive) -> Any:
        """What this call comes to, or its error."""
        assert self.hall is not None
        headers = dict(scope["headers"])
        try:
            caller = await self._caller(route, headers)
            query = parameters(scope["query_string"], route.query)
            read = b"" if decoder is None else await self._intake.read(receive, headers)
        except HoldfastError:
            await linger(receive, headers)
            raise
        body = None if decoder is None else decoded(read, decoder)
        asked = Asked(caller, body, query, scope["path_params"], headers, receive=receive)
        try:
            return await route.does(self.hall, asked), asked
        except BaseException:
            asked.over()
            raise

    async def _caller(self, route: Route, headers: Mapping[bytes, bytes]) -> Caller:
        assert self.guard is not None
        if not route.scopes:
            return SOMEBODY_HERE
        caller = await self.guard.caller(headers)
        check_scope(caller, *route.scopes)
        return caller

    def count(self, name: str, status: int) -> None:
        if self.hall is not None:
            self.hall.counters.count(name, status)


class _Endpoint:
    """All methods of one path."""

    def __init__(self, dispatcher: Dispatcher, routes: Mapping[str, Route]) -> None:
        self._dispatcher = dispatcher
        self._routes = {
            method: (route, None if route.body is None else msgspec.json.Decoder(route.body))
            for method, route in routes.items()
        }
        self._allowed = ", ".join(sorted(routes))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._routes.get(scope["method"])
        if found is None:
            refusal = Refusal(405, "method_not_allowed", f"this path takes {self._allowed}", {"allow": self._allowed})
            await _send_problem(send, scope, refusal)
            return
        route, decoder = found
        self._dispatcher.count(route.name, await self._serve(route, decoder, scope, receive, send))

    async def _serve(self, route: Route, decoder: Any, scope: Scope, receive: Receive, send: Send) -> int:
        """The status."""
        try:
            answer, asked = await self._dispatcher.answer(route, decoder, scope, receive)
        except Disconnected:
            return HUNG_UP
        except Exception as error:
            if not isinstance(error, HoldfastError):
                log.exception("call.failed route=%s", route.name)
            return await _send_problem(send, scope, error)
        try:
            await _send(send, answer)
        finally:
            asked.over()
        return 200


class _Nowhere:
    """Every other path. It tells no more to those who may not call than to those who may."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        if scope["type"] != "http":
            return
        words = "there is nothing under this path; /openapi.json says what there is"
        status = await _send_problem(send, scope, Refusal(404, "no_such_path", words))
        self._dispatcher.count("nowhere", status)


async def _send(send: Send, answer: Any) -> None:
    if isinstance(answer, Stream):
        await _send_stream(send, answer)
    elif isinstance(answer, Text):
        await _send_whole(send, 200, answer.text, answer.media.encode())
    else:
        await _send_whole(send, 200, _encode(answer), b"application/json")


async def _send_problem(send: Send, scope: Scope, error: Exception) -> int:
    """The connection ends with it where much of a body may be left that nobody has read."""
    said, further = problems.problem(error)
    headers = [(name.encode(), value.encode()) for name, value in further.items()]
    if said.status == 408 or is_long(dict(scope["headers"])):
        headers.append((b"connection", b"close"))
    await _send_whole(send, said.status, _encode(said), problems.MEDIA_TYPE, headers)
    return said.status


async def _send_whole(
    send: Send, status: int, body: bytes, media: bytes, further: list[tuple[bytes, bytes]] | None = None
) -> None:
    headers = [
        (b"content-type", media),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *(further or ()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _send_stream(send: Send, answer: Stream) -> None:
    headers = [
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-store"),
        (b"x-accel-buffering", b"no"),
        (b"x-content-type-options", b"nosniff"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    try:
        async for part in answer.parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
    finally:
        await answer.parts.aclose()
    await send({"type": "http.response.body", "body": b""})
