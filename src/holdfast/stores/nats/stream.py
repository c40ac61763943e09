"""The stream of a store: how it is made, what it must be, and what its servers' clock says."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any

from holdfast.clock import boot_seconds, to_micros
from holdfast.errors import SchemaMismatch, StoreUnavailable
from holdfast.stores.nats.options import Options
from holdfast.stores.nats.subjects import Subjects
from holdfast.stores.nats.wire import Conflict, Message, Missing, Single, Wire

if TYPE_CHECKING:
    from nats.aio.client import Client

OLDEST_SERVER = (2, 12, 7)
SUBMIT_SHARE = 0.9
"""Of a stream's max_bytes; the rest is kept for claims, ends and deletes, which write too."""
LOOK_SECONDS = 1.0
LOOK_SELDOM_SECONDS = 30.0
"""As long as the stream has no limit."""
TRUSTED_NANOS = 3_000_000_000
"""A leader that has heard from a majority within so long is the only one: followers wait for four seconds, at the very
least, before they choose another. Heartbeats come every second.
"""
MADE_TRIES = 100
MADE_SECONDS = 0.05
REPLICAS = 3
"""In a cluster; one that cannot hold as many at the moment refuses, rather than keep less without a word."""
FORMAT = "1"
"""Of what is in the stream; it stands in the stream's metadata."""


class ServerClock:
    """The servers' time, as far as a message's way lets us know it; measured anew with every look at the stream."""

    def __init__(self) -> None:
        self._offset: float | None = None
        self._error = 0.0
        self._at = 0.0

    @property
    def known(self) -> bool:
        return self._offset is not None

    def heard(self, sent: float, received: float, there: datetime) -> None:
        """The best of late: the one with the shortest way. An old one is worth less, because clocks drift."""
        error = (received - sent) / 2
        if self._offset is None or error <= self._error + (received - self._at) * 1e-3:
            self._offset = to_micros(there) / 1e6 - (sent + received) / 2
            self._error, self._at = error, received

    def micros(self) -> int:
        assert self._offset is not None
        return round((boot_seconds() + self._offset) * 1e6)

    def monotonic(self) -> float:
        return boot_seconds()


class Stream:
    def __init__(self, wire: Wire, options: Options, subjects: Subjects) -> None:
        self._wire = wire
        self._options = options
        self._subjects = subjects
        self.name = options.stream
        self.clock = ServerClock()
        self.copies = 1
        self._used, self._most, self._looked = 0, -1, 0.0
        self._created: str | None = None
        """When the stream was made that this handle has opened; empty: it was seen to be gone since."""
        self.replaced: Callable[[], None] = lambda: None
        """Called when the stream is not the one it was any more."""
        self.confirm: Callable[[], Awaitable[int]]
        """Writes a message of our own; its sequence. Only the true leader can acknowledge it."""

    async def open(self) -> None:
        """Find it, or make it."""
        try:
            info = await self.info()
        except Missing:
            if not self._options.create:
                raise SchemaMismatch(
                    f"{self._options.label} has no stream {self.name}; `holdfast migrate` makes it"
                ) from None
            await self.create()
            info = await self._made()
        self.ensure_format(info)
        self._created = info["created"]
        if not info["state"]["last_seq"]:
            with suppress(Conflict):  # somebody else was first
                await self._wire.write([Message(self._subjects.origin, b"", 0)])

    async def _made(self) -> dict[str, Any]:
        """Of several who make it at once, one may be told for a moment that it is not there."""
        for _ in range(MADE_TRIES):
            with suppress(Missing):
                return await self.info()
            await asyncio.sleep(MADE_SECONDS)
        raise StoreUnavailable(f"{self._options.label}: the stream {self.name} was made, and nobody knows of it")

    def ensure_format(self, info: dict[str, Any]) -> None:
        found = info["config"].get("metadata", {}).get("holdfast")
        if found != FORMAT:
            raise SchemaMismatch(
                f"the stream {self.name} has the format {found!r}, and this version of Holdfast needs {FORMAT!r}"
            )

    async def info(self) -> dict[str, Any]:
        sent = boot_seconds()
        info = await self._wire.api(f"STREAM.INFO.{self.name}")
        self._looked = boot_seconds()
        self.clock.heard(sent, self._looked, parsed_instant(info["ts"]))
        self.copies = info["config"]["num_replicas"]
        self._used, self._most = info["state"]["bytes"], info["config"].get("max_bytes", -1)
        return info

    async def ensure_room(self, size: int) -> None:
        """For so much more. Looked at now and then: what comes in between has to fit into the rest."""
        if boot_seconds() - self._looked > (LOOK_SECONDS if self._most > 0 else LOOK_SELDOM_SECONDS):
            await self.last()
        if 0 < self._most * SUBMIT_SHARE < self._used + size:
            raise StoreUnavailable(
                f"{self._options.label}: the stream {self.name} is full: {self._used:,} of {self._most:,} bytes, and "
                "the rest is kept for the tasks that are there; raise its max_bytes, or let old tasks go"
            )

    async def last(self) -> int:
        """The sequence of the last message, by the leader's word.

        A leader that is cut off from the others takes itself for one for up to twenty seconds, when there has long been
        another. Where it may be so, a write has to show that it is not.
        """
        try:
            info = await self.info()
        except Missing:
            self._created = ""
            raise StoreUnavailable(f"{self._options.label}: {self._wire.gone}") from None
        self._ensure_same(info)
        return int(info["state"]["last_seq"]) if led(info) else await self.confirm()

    def _ensure_same(self, info: dict[str, Any]) -> None:
        """Whoever deletes a stream, or puts another in its place, is not passed over in silence: it is told once."""
        if self._created not in (None, info["created"]):
            self._created = info["created"]
            self.replaced()
            raise StoreUnavailable(
                f"{self._options.label}: the stream {self.name} was deleted, and made anew or restored; tasks that are "
                "not in it now are lost. It is read anew, and work goes on with what it has"
            )

    async def step_down(self) -> None:
        """Let another server lead, where there is one."""
        with suppress(StoreUnavailable, Missing, Single):
            await self._wire.api(f"STREAM.LEADER.STEPDOWN.{self.name}")

    async def create(self) -> None:
        client = await self._wire.client()
        ensure_server(server_version(client))
        wanted = self._options.replicas or REPLICAS
        try:
            await self._wire.api(f"STREAM.CREATE.{self.name}", self.config(wanted))
        except Single:
            if self._options.replicas is not None:
                raise SchemaMismatch(
                    f"the NATS server belongs to no cluster and cannot keep {wanted} copies; say replicas=1"
                ) from None
            await self._wire.api(f"STREAM.CREATE.{self.name}", self.config(1))  # doctor says what that means

    async def migrate(self, *, dry_run: bool) -> list[str]:
        try:
            self.ensure_format(await self.info())
        except Missing:
            if not dry_run:
                await self.create()
            return [f"create stream {self.name}"]
        return []

    def config(self, replicas: int) -> dict[str, Any]:
        return {
            "name": self.name,
            "description": "Holdfast: every message is somebody's task; change nothing by hand",
            "subjects": [self._subjects.all],
            "retention": "limits",
            "storage": "file",
            "num_replicas": replicas,
            "discard": "new",
            "max_msgs_per_subject": 1,
            "allow_direct": True,
            "allow_atomic": True,
            "allow_msg_ttl": True,
            "deny_delete": False,
            "duplicate_window": int(1e8),
            "republish": {"src": self._subjects.ends, "dest": self._subjects.ended, "headers_only": True},
            "metadata": {"holdfast": FORMAT},
        }


def led(info: dict[str, Any]) -> bool:
    """Whether it is beyond doubt that the stream's leader has said this."""
    copies, cluster = info["config"]["num_replicas"], info.get("cluster") or {}
    peers = cluster.get("replicas") or []
    near = [one for one in peers if one.get("current") and one.get("active", 0) < TRUSTED_NANOS]
    return copies == 1 or ("leader" in cluster and 2 * (1 + len(near)) > copies)


def went_back(stream: str, seen: int, last: int) -> StoreUnavailable:
    return StoreUnavailable(
        f"the stream {stream} ended with message {seen:,} and now ends with {last:,}: a server has lost what it had "
        "acknowledged, as after damage to its files; tasks that are not in it now are lost. It is read anew, and work "
        "goes on with what it has"
    )


def ensure_server(version: tuple[int, ...]) -> None:
    if version < OLDEST_SERVER:
        raise SchemaMismatch(
            f"the NATS server is {dotted(version)}; the store needs {dotted(OLDEST_SERVER)} or newer: older ones have "
            "no atomic batches, or lose some"
        )


def server_version(client: Client) -> tuple[int, ...]:
    found = client.connected_server_version
    return found.major, found.minor, found.patch


def dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def parsed_instant(text: str) -> datetime:
    """With nanoseconds, which Python's datetime does not have."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{(fraction + '000000')[:6]}+00:00")
