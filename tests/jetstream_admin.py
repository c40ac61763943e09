"""What tests do to JetStream from outside of the store, by a connection of its own in an event loop of its own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from nats.aio.client import Client
from nats.errors import Error

from tests.postgres_server import _in_a_thread

T = TypeVar("T")
Ask = Callable[..., Awaitable[dict[str, Any]]]
"""A verb of JetStream's API with what it is given; its answer, also where that is an error."""

PREFIX = "test_"
ANSWER_SECONDS = 10.0


class Refused(Exception):
    """By JetStream; or nobody there could answer yet."""


def parts(url: str) -> tuple[str, list[str], str]:
    """Of `nats://user:password@host:port,host:port/prefix`: the credentials up to the `@`, the servers, the prefix."""
    _, _, rest = url.partition("://")
    netloc, _, prefix = rest.partition("/")
    credentials, at, addresses = netloc.rpartition("@")
    return credentials + at, addresses.split(","), prefix


def remove(url: str) -> None:
    """Every stream that bears the URL's prefix in its name or in a subject."""
    prefix = parts(url)[2].lower()
    assert prefix.startswith(PREFIX), "it could be anybody's"

    async def work(ask: Ask) -> None:
        for config in await _streams(ask):
            if any(prefix in text.lower() for text in (config["name"], *config.get("subjects", []))):
                await ask(f"STREAM.DELETE.{config['name']}")

    asked(url, work)


def streams(url: str) -> list[str]:
    """The names of those that bear the URL's prefix in their name."""
    prefix = parts(url)[2]
    configs = asked(url, _streams)
    return sorted(config["name"] for config in configs if prefix in config["name"])


def wait_for_stream(url: str, *, replicas: int, seconds: float) -> None:
    """Until one with so many replicas, named and removed for this, can be made."""
    name = parts(url)[2]
    given = {"name": name, "subjects": [f"{name}.>"], "num_replicas": replicas, "storage": "file"}

    async def work(ask: Ask) -> None:
        await ask(f"STREAM.CREATE.{name}", **given)
        await ask(f"STREAM.DELETE.{name}")

    async def whole() -> None:
        async with asyncio.timeout(seconds):
            while True:
                try:
                    return await _asked(url, work)
                except (Refused, Error, OSError):
                    await asyncio.sleep(0.05)

    _in_a_thread(whole)


def asked(url: str, work: Callable[[Ask], Awaitable[T]]) -> T:
    """Also for those who are in an event loop."""
    return _in_a_thread(lambda: _asked(url, work))


async def _asked(url: str, work: Callable[[Ask], Awaitable[T]]) -> T:
    async with connected(url) as client:

        async def ask(verb: str, **given: Any) -> dict[str, Any]:
            reply = await client.request(f"$JS.API.{verb}", json.dumps(given).encode(), ANSWER_SECONDS)
            told: dict[str, Any] = json.loads(reply.data)
            if "error" in told:
                raise Refused(told["error"])
            return told

        return await work(ask)


@asynccontextmanager
async def connected(url: str, *, mends: bool = True) -> AsyncIterator[Client]:
    """One that `mends` itself goes to another server of the URL, also where the first one it asks stands still."""
    credentials, addresses, _ = parts(url)

    async def failed(_: Exception) -> None:
        """Whoever waits for an answer is told."""

    client = Client()
    try:
        await client.connect(
            [f"nats://{credentials}{address}" for address in addresses],
            error_cb=failed,
            allow_reconnect=mends,
            connect_timeout=2,
            max_reconnect_attempts=1,  # without a bound the first connect is tried for ever
            reconnect_time_wait=0,
        )
        yield client
    finally:
        await client.close()


async def _streams(ask: Ask) -> list[dict[str, Any]]:
    """The configurations of all: a page has a limit."""
    found: list[dict[str, Any]] = []
    while True:
        page = await ask("STREAM.LIST", offset=len(found))
        found += [one["config"] for one in page["streams"] or []]
        if len(found) >= page["total"] or not page["streams"]:
            return found
