"""A connection to one of the servers, made anew whenever it is needed and broken.

The client library could mend it by itself; but it would keep what was under way meanwhile and send it later, when
whoever wrote it has been told that nobody knows. Here a connection that breaks takes everything with it: what waited
for an answer is told at once that none will come, and the next call makes another. Who listens does so again then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from holdfast import ids
from holdfast.errors import StoreUnavailable
from holdfast.stores.nats.options import Options
from holdfast.transports.extras import missing

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

Heard = Callable[["Msg"], Awaitable[None]]

CONNECT_SECONDS = 2
PING_SECONDS = 3
"""A server that does not answer two of them is gone: a node that hangs does not close its connections."""


class _Reset(StoreUnavailable):
    """The server ended the connection while it was being made."""


class Connection:
    def __init__(self, options: Options) -> None:
        self._options = options
        self._client: Client | None = None
        self._opening = asyncio.Lock()
        self._tried = int(ids.token_hex(2), 16)
        self._listening: dict[str, Heard] = {}
        self._subscribed: dict[str, Subscription] = {}
        """On this connection."""
        self._closed = False
        self.lost: Callable[[], None] = lambda: None
        """Called when the connection breaks."""
        self.back: Callable[[], None] = lambda: None
        """Called when there is one again."""

    async def client(self) -> Client:
        client = self._client
        if client is not None and client.is_connected:
            return client
        async with self._opening:
            if self._closed:
                raise self._unavailable("it was closed")
            if self._client is None or not self._client.is_connected:
                first = self._client is None
                self._client = await self._connected()
                for subject, heard in self._listening.items():
                    self._subscribed[subject] = await subscribed(self._client, subject, heard)
                if not first:
                    self.back()
            return self._client

    async def listen(self, subject: str, heard: Heard) -> None:
        """From now on, also on later connections."""
        client = await self.client()
        if subject not in self._listening:
            self._listening[subject] = heard
            self._subscribed[subject] = await subscribed(client, subject, heard)

    async def deafen(self, subject: str) -> None:
        if self._listening.pop(subject, None) is not None:
            with suppress(Exception):  # it may have gone with its connection
                await self._subscribed.pop(subject).unsubscribe()

    async def leave(self, client: Client) -> None:
        """Nobody answers behind this server: it may be cut off from the others. The next call asks one of those."""
        if len(self._options.servers) > 1 and client is self._client:
            with suppress(Exception):
                async with asyncio.timeout(CONNECT_SECONDS):
                    await client.close()

    async def close(self) -> None:
        self._closed = True
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):
                await client.close()

    async def _connected(self) -> Client:
        """To any of the servers, the one after the last first. One that hangs does not keep us from the others."""
        why = StoreUnavailable("")
        for _ in self._options.servers:
            self._tried += 1
            server = self._options.servers[self._tried % len(self._options.servers)]
            try:
                return await self._connected_to(server)
            except _Reset:
                why = await self._refusal(server)
            except StoreUnavailable as error:
                why = error
        raise why

    async def _refusal(self, server: str) -> StoreUnavailable:
        """Why it ended the connection. Its word may have been lost with it, because we had already said more; asked for
        an answer to each line, it is heard.
        """
        try:
            await (await self._connected_to(server, verbose=True)).close()
        except StoreUnavailable as error:
            return error
        return self._unavailable("the connection broke while it was made")

    async def _connected_to(self, server: str, *, verbose: bool = False) -> Client:
        try:
            from holdfast.stores.nats.client import QuickClient
        except ModuleNotFoundError:
            raise missing("a NATS store", "nats-py", "nats") from None
        options, client = self._options, QuickClient()
        failures: list[Exception] = []

        async def failed(error: Exception) -> None:
            failures[:] = [error]

        try:
            async with asyncio.timeout(min(options.timeout_seconds, 2 * CONNECT_SECONDS)):
                await client.connect(
                    server,
                    name=f"holdfast {options.prefix}",
                    user=options.user,
                    password=options.password,
                    token=options.token,
                    connect_timeout=CONNECT_SECONDS,
                    ping_interval=PING_SECONDS,
                    verbose=verbose,
                    allow_reconnect=False,
                    max_reconnect_attempts=1,  # without a bound the first connect is tried for ever
                    reconnect_time_wait=0,
                    pending_size=64 << 20,
                    flusher_queue_size=4096,
                    skip_subject_validation=True,
                    error_cb=failed,
                    closed_cb=self._broken,
                )
        except BaseException as error:  # also where the caller is cancelled: the socket may be open
            with suppress(Exception):
                await client.close()
            if not isinstance(error, Exception):
                raise
            why = failures[0] if failures else error
            said = self._unavailable(str(why) or type(why).__name__)
            raise _Reset(str(said)) if isinstance(why, ConnectionResetError) and not verbose else said from None
        return client

    async def _broken(self) -> None:
        if not self._closed:
            self.lost()

    def _unavailable(self, why: str) -> StoreUnavailable:
        return StoreUnavailable(f"{self._options.label}: {why}")


async def subscribed(client: Client, subject: str, heard: Heard) -> Subscription:
    return await client.subscribe(subject, cb=heard, pending_msgs_limit=-1, pending_bytes_limit=-1)
