"""NATS without a store around it: the floor, and a look at a drain that costs the servers next to nothing.

Floor: two compare-and-set writes per task, each as large as a task's image, under its id, acknowledged when it is
durable, several hundred under way at any time; a task's second write expects what its first one left. The stream is a
store's own in kind and copies, and is gone afterwards. No queue on JetStream can do with less: one write to own a task,
one to end it. Now and then a server refuses a write that comes right after the acknowledgement of the one that it
expects; nobody else writes here, so it is sent again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
UNDER_WAY = 512
BODY = b"x" * 290
"""Between the images of a claimed and of a completed task of a drain (316 and 259 bytes)."""
ANSWER_SECONDS = 20.0
WRONG_SEQUENCE = (10071, 10164)


class Ack(msgspec.Struct):
    seq: int = 0
    error: dict[str, Any] | None = None


_ack = msgspec.json.Decoder(Ack)
_tally = msgspec.msgpack.Decoder(dict[str, dict[str, int]])


def drain_rate(url: str, *, tasks: int) -> float:
    """Tasks per second."""
    return asyncio.run(_drain_rate(url, tasks))


async def _drain_rate(url: str, tasks: int) -> float:
    async with connected(url) as client:
        name = f"FLOOR_{ids.nonce()}"
        replicas = await _copies(client, url)
        config = {"name": name, "subjects": [f"{name}.>"], "storage": "file", "num_replicas": replicas}
        await asked(client, f"STREAM.CREATE.{name}", config | {"max_msgs_per_subject": 1, "allow_direct": True})
        try:
            floor = _Floor(client, name, tasks)
            return tasks / await floor.seconds()
        finally:
            await asked(client, f"STREAM.DELETE.{name}")


class _Floor:
    def __init__(self, client: Client, stream: str, tasks: int) -> None:
        self._client = client
        self._stream = stream
        self._tasks = tasks
        self._inbox = client.new_inbox()
        self._ids = ids.task_ids(tasks)
        self._begun = self._ended = 0
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def seconds(self) -> float:
        subscription = await self._client.subscribe(f"{self._inbox}.*.*", cb=self._answered, pending_msgs_limit=-1)
        started = SYSTEM_CLOCK.monotonic()
        for _ in range(min(UNDER_WAY, self._tasks)):
            await self._begin()
        await self._done
        seconds = SYSTEM_CLOCK.monotonic() - started
        await subscription.unsubscribe()
        return seconds

    async def _begin(self) -> None:
        if self._begun < self._tasks:
            self._begun += 1
            await self._write(str(self._begun - 1), "0")

    async def _write(self, number: str, expected: str) -> None:
        subject, reply = f"{self._stream}.{self._ids[int(number)]}", f"{self._inbox}.{expected}.{number}"
        await self._client.publish(subject, BODY, reply=reply, headers={EXPECTED: expected})

    async def _answered(self, message: Msg) -> None:
        try:
            ack = _ack.decode(message.data)
            _, expected, number = message.subject.rsplit(".", 2)
            if ack.error is not None:
                await self._again(ack.error, number, expected)
                return
            if expected == "0":
                await self._write(number, str(ack.seq))
                return
            self._ended += 1
            await self._begin()
            if self._ended == self._tasks:
                self._done.set_result(None)
        except Exception as error:
            if not self._done.done():
                self._done.set_exception(error)

    async def _again(self, error: dict[str, Any], number: str, expected: str) -> None:
        if error.get("err_code") not in WRONG_SEQUENCE:
            raise HoldfastError(f"a write of the floor was refused: {error}")
        await self._write(number, expected)


class Looks:
    """At a drain, by a few messages that say how far it is; a handle would follow every task."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._prefix = prefix_of(url)
        self._stream = stream_of(url)
        self._runner = asyncio.Runner()

    def __enter__(self) -> Looks:
        self._runner.__enter__()
        self._client = self._runner.run(connect(self._url))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self._client.close())
        self._runner.__exit__(kind, raised, trace)

    def begun(self) -> bool:
        """Somebody has claimed something."""
        return bool(self._last(f"{self._prefix}.claim.*"))

    def completed(self) -> int:
        tallies = map(_tally.decode, filter(None, self._last(f"{self._prefix}.r.tally.*")))
        return sum(by_status.get("completed", 0) for tally in tallies for by_status in tally.values())

    def _last(self, subject: str) -> list[bytes]:
        return self._runner.run(self._asked(subject))

    async def _asked(self, subject: str) -> list[bytes]:
        client, inbox = self._client, self._client.new_inbox()
        subscription = await client.subscribe(inbox)
        await client.publish(
            f"$JS.API.DIRECT.GET.{self._stream}", msgspec.json.encode({"multi_last": [subject]}), reply=inbox
        )
        bodies = []
        while "Status" not in ((message := await subscription.next_msg(ANSWER_SECONDS)).headers or {}):
            bodies.append(message.data)
        await subscription.unsubscribe()
        return bodies


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    client = await connect(url)
    try:
        yield client
    finally:
        await client.close()


async def connect(url: str) -> Client:
    from nats.aio.client import Client

    parts, client = urlsplit(url), Client()
    credentials, at, hosts = parts.netloc.rpartition("@")
    servers = [f"{parts.scheme}://{credentials}{at}{host}" for host in hosts.split(",")]
    await client.connect(servers, pending_size=64 << 20)
    return client


async def asked(client: Client, verb: str, body: Any = None) -> dict[str, Any]:
    encoded = b"" if body is None else msgspec.json.encode(body)
    answered = await client.request(f"$JS.API.{verb}", encoded, timeout=ANSWER_SECONDS)
    answer: dict[str, Any] = msgspec.json.decode(answered.data)
    if "error" in answer:
        raise HoldfastError(f"the server refuses {verb}: {answer['error']}")
    return answer


def stream_of(url: str) -> str:
    return f"HOLDFAST_{prefix_of(url)}"


def prefix_of(url: str) -> str:
    return urlsplit(url).path.strip("/")


async def _copies(client: Client, url: str) -> int:
    """As many as the measured store has."""
    return int((await asked(client, f"STREAM.INFO.{stream_of(url)}"))["config"]["num_replicas"])
