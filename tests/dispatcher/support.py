"""A real dispatcher on a free port of this machine, in a thread of its own, and a plain HTTP client to call it with."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

from holdfast import ids
from holdfast.dispatcher.bodies import Intake
from holdfast.dispatcher.hall import Hall
from holdfast.dispatcher.service import Dispatcher
from holdfast.dispatcher.serving import Address, Server
from holdfast.dispatcher.upkeep import Upkeep
from holdfast.events.bus import Bus
from holdfast.model.token import Scope
from holdfast.policy import tokens
from holdfast.stores.open import store_factory
from holdfast.stores.protocol import Store, StoreFactory
from tests import postgres_server
from tests.runtime.support import wait_until

T = TypeVar("T")

TIMEOUT_SECONDS = 20.0


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def code(self) -> str:
        assert self.headers["content-type"] == "application/problem+json", self
        said = self.json
        assert said["status"] == self.status
        assert said["type"].endswith(said["code"])
        return str(said["code"])


class Running:
    """A dispatcher that runs, and the store behind it."""

    def __init__(self, url: str, factory: StoreFactory, service: Dispatcher, loop: asyncio.AbstractEventLoop) -> None:
        self.url = url
        self.factory = factory
        self._service = service
        self._loop = loop
        self.token: str | None = None

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        raw: bytes | None = None,
        token: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        shown = token or self.token
        sent = {} if shown is None else {"authorization": f"Bearer {shown}"}
        data = raw
        if body is not None:
            data = json.dumps(body).encode()
        if data is not None:
            sent["content-type"] = "application/json"
        connection = http.client.HTTPConnection(str(urlsplit(self.url).netloc), timeout=TIMEOUT_SECONDS)
        try:
            connection.request(method, path, body=data, headers={**sent, **(headers or {})})
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str, **options: Any) -> Answer:
        return self.call("GET", path, **options)

    def post(self, path: str, body: Any = None, **options: Any) -> Answer:
        return self.call("POST", path, body, **options)

    @property
    def hall(self) -> Hall:
        assert self._service.hall is not None
        return self._service.hall

    def drain(self) -> None:
        self._loop.call_soon_threadsafe(self._service.drain)
        wait_until(lambda: self.hall.draining, "the service to drain")

    def behind(self, act: Callable[[Store], Awaitable[T]]) -> T:
        """Something done at the store itself."""

        async def done() -> T:
            store = self.factory()
            try:
                return await act(store)
            finally:
                await store.close()

        return asyncio.run(done())

    def make_token(self, *scopes: Scope, lifetime_seconds: float | None = None) -> str:
        new, shown = tokens.made(
            "+".join(scopes),
            [scope.value for scope in scopes],
            lifetime_seconds=lifetime_seconds,
            token_hex=ids.token_hex,
            token_urlsafe=ids.token_urlsafe,
        )
        self.behind(lambda store: store.add_token(new))
        return shown


def factory_of(kind: str, folder: Path) -> StoreFactory:
    """Of a fresh store of this kind."""
    match kind:
        case "sqlite":
            return store_factory(f"sqlite:///{folder}/tasks.db")
        case "postgres":
            return store_factory(postgres_server.server().url, schema=postgres_server.fresh_schema())
        case _:
            return store_factory("memory://")


@contextmanager
def dispatcher(
    *,
    factory: StoreFactory | None = None,
    intake: Intake | None = None,
    always_tokens: bool = False,
    certificate: tuple[Path, Path] | None = None,
) -> Iterator[Running]:
    factory = factory or store_factory("memory://")
    service = Dispatcher(factory, upkeep=Upkeep("dispatcher-test", Bus()), intake=intake, always_tokens=always_tokens)
    files = certificate or (None, None)
    address = Address(port=0, certificate=files[0], key=files[1])
    listening = address.listen()
    server = Server(service, address)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=lambda: loop.run_until_complete(server.serve(sockets=[listening])), daemon=True)
    thread.start()
    wait_until(lambda: server.started or not thread.is_alive(), "the dispatcher to start")
    try:
        yield Running(address.url(listening), factory, service, loop)
    finally:
        loop.call_soon_threadsafe(server.stop)
        thread.join(30)
        assert not thread.is_alive(), "the dispatcher does not stop"
        loop.close()
