"""Requests and acknowledged writes over a connection. Every reply comes to one inbox."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from holdfast import ids
from holdfast.clock import boot_seconds
from holdfast.errors import HoldfastError, NotSupported, PayloadTooLarge, StoreUnavailable
from holdfast.stores.nats.connection import Connection
from holdfast.stores.nats.options import Options

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

T = TypeVar("T")

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
TTL = "Nats-TTL"
STEP = "Nats-Batch-Id"
COMMIT = "Nats-Batch-Commit"
BATCH_MOST = 1000
"""Messages in one atomic step, by the server's default."""
TRIES_MOST = 40
UNHEARD_SECONDS = 0.05
SILENT_SECONDS = 1.5
"""A stream without a leader does not answer at all."""
BUSY_SECONDS = 0.05

_WRONG_SEQUENCE = (10071, 10164)
_TOO_LARGE = (10054,)
_TOO_MANY_BATCHES = (10175, 10176, 10199, 10210, 10211)
_FULL = (10077, 10023, 10047)
_NOT_FOUND = (10059, 10037, 10014)
_NOT_CLUSTERED = (10074,)


class Conflict(Exception):
    """Something that the write took for granted is not so any more; nothing was written."""


class StepTooLarge(NotSupported):
    """More messages than an atomic step takes; nothing was written."""


class _Unheard(Exception):
    """Nobody was there to take it, or it can be asked again in any case."""


class Missing(Exception):
    """No such stream or message."""


class Single(Exception):
    """The server belongs to no cluster, and keeps one copy only."""


class Message(NamedTuple):
    subject: str
    body: bytes
    expected: int | None = None
    """The sequence of the last message of this subject; 0: there is none."""
    ttl: str | None = None


class ApiError(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class Ack(msgspec.Struct):
    seq: int = 0
    error: ApiError | None = None


class Wire(Connection):
    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._inbox = f"_INBOX.{ids.token_hex(12)}"
        self._waiting: dict[str, asyncio.Future[Msg]] = {}
        self._parts: dict[str, list[Msg]] = {}
        self._last = 0
        self._listening[f"{self._inbox}.*"] = self._replied

    async def _broken(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(self._unavailable("the connection broke before an answer came"))
        await super()._broken()

    # Answers

    async def _replied(self, message: Msg) -> None:
        name = message.subject.rpartition(".")[2]
        parts = self._parts.get(name)
        if parts is not None:
            parts.append(message)
            if not message.headers or "Status" not in message.headers:
                return
        future = self._waiting.pop(name, None)
        if future is not None and not future.done():
            future.set_result(message)

    def _reply_to(self) -> tuple[str, asyncio.Future[Msg]]:
        self._last += 1
        name = str(self._last)
        future: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._waiting[name] = future
        return f"{self._inbox}.{name}", future

    async def _answer(
        self, client: Client, reply: str, future: asyncio.Future[Msg], *, seconds: float | None = None
    ) -> Msg:
        """`seconds`: after so many it can be asked once more."""
        try:
            async with asyncio.timeout(seconds or self._options.timeout_seconds):
                return await future
        except TimeoutError:
            if seconds is not None:
                raise _Unheard from None
            await self.leave(client)
            raise self._unavailable(f"no answer within {self._options.timeout_seconds:g} s") from None
        finally:
            self._waiting.pop(reply.rpartition(".")[2], None)

    async def request(self, subject: str, body: Any = None, *, seconds: float = SILENT_SECONDS) -> bytes:
        encoded = b"" if body is None else msgspec.json.encode(body)
        return await self._heard(lambda: self._request_once(subject, encoded, seconds))

    async def _request_once(self, subject: str, body: bytes, seconds: float) -> bytes:
        client = await self.client()
        reply, future = self._reply_to()
        await self._send(client, subject, body, reply, None)
        message = await self._answer(client, reply, future, seconds=seconds)
        if (message.headers or {}).get("Status") == "503":
            raise _Unheard
        return message.data

    async def _heard(self, act: Callable[[], Awaitable[T]]) -> T:
        """Until somebody takes it: a leader that is gone is followed by another within a second or two."""
        deadline = boot_seconds() + self._options.timeout_seconds
        while True:
            client = await self.client()
            try:
                return await act()
            except _Unheard:
                if boot_seconds() > deadline:
                    break
            await asyncio.sleep(UNHEARD_SECONDS)
        why = await self._silence()
        await self.leave(client)
        raise self._unavailable(why)

    async def _silence(self) -> str:
        """Why nobody answers."""
        with suppress(_Unheard, StoreUnavailable):
            info = f"$JS.API.STREAM.INFO.{self._options.stream}"
            answer = msgspec.json.decode(await self._request_once(info, b"", SILENT_SECONDS))
            if answer.get("error", {}).get("err_code") in _NOT_FOUND:
                return self.gone
        return "nobody answers: JetStream is off there, or has no leader at the moment"

    @property
    def gone(self) -> str:
        return (
            f"the stream {self._options.stream} is gone: somebody has deleted it, or the servers have lost it; restore "
            "it from a backup, or let `holdfast migrate` make an empty one"
        )

    async def listens(self, subject: str) -> bool:
        """Whether anybody does. Silence is somebody who is slow."""
        client = await self.client()
        reply, future = self._reply_to()
        await self._send(client, subject, b"", reply, None)
        try:
            message = await self._answer(client, reply, future, seconds=SILENT_SECONDS)
        except _Unheard:
            return True
        return (message.headers or {}).get("Status") != "503"

    async def many(self, subject: str, body: bytes) -> list[Msg]:
        """All messages of an answer in parts; the last is its end mark."""
        return await self._heard(lambda: self._many_once(subject, body))

    async def _many_once(self, subject: str, body: bytes) -> list[Msg]:
        client = await self.client()
        reply, future = self._reply_to()
        parts = self._parts[reply.rpartition(".")[2]] = []
        try:
            await self._send(client, subject, body, reply, None)
            last = await self._answer(client, reply, future, seconds=SILENT_SECONDS)
        finally:
            del self._parts[reply.rpartition(".")[2]]
        status = str((last.headers or {}).get("Status"))
        if status == "503":
            raise _Unheard
        if status not in ("204", "404"):
            raise self._unavailable(f"a read was refused: {status} {(last.headers or {}).get('Description', '')}")
        return parts

    async def api(self, call: str, body: Any = None, *, seconds: float = SILENT_SECONDS) -> dict[str, Any]:
        """`seconds`: after so many it is asked once more."""
        answer: dict[str, Any] = msgspec.json.decode(await self.request(f"$JS.API.{call}", body, seconds=seconds))
        if "error" in answer:
            error = msgspec.convert(answer["error"], ApiError)
            if error.err_code in _NOT_FOUND:
                raise Missing(error.description)
            if error.err_code in _NOT_CLUSTERED:
                raise Single(error.description)
            raise self._refused(error)
        return answer

    async def _send(
        self, client: Client, subject: str, body: bytes, reply: str, headers: dict[str, str] | None
    ) -> None:
        from nats import errors

        try:
            await client.publish(subject, body, reply=reply, headers=headers)
        except errors.MaxPayloadError:
            raise _too_large(len(body), client.max_payload) from None
        except errors.Error as error:
            raise self._unavailable(str(error)) from None

    @property
    def max_payload(self) -> int:
        return 1 << 20 if self._client is None else self._client.max_payload

    # Acknowledged writes

    async def write(self, messages: Sequence[Message], named: Callable[[str], None] = lambda _: None) -> int:
        """Store all of these in one atomic step, or Conflict; the sequence of the last. They follow one another.

        `named` is told the name of each step that is tried; one message alone has none.
        """
        if len(messages) > BATCH_MOST:
            raise StepTooLarge(
                f"this takes {len(messages):,} messages in one atomic step; NATS takes {BATCH_MOST:,}: make it smaller"
            )
        for tried in range(TRIES_MOST):
            answer = await self._heard(lambda: self._write_once(messages, named))
            if answer.error is None:
                return answer.seq
            if answer.error.err_code not in _TOO_MANY_BATCHES:
                raise self._refused(answer.error)
            await asyncio.sleep(BUSY_SECONDS * (1 + tried) * ids.JITTER.random())
        raise self._unavailable("too many others write at the same time")

    async def _write_once(self, messages: Sequence[Message], named: Callable[[str], None]) -> Ack:
        client = await self.client()
        largest = max(len(message.body) for message in messages)
        if largest + 512 > client.max_payload:
            raise _too_large(largest, client.max_payload)
        reply, future = self._reply_to()
        batch, last = ids.token(), len(messages)
        if last > 1:
            named(batch)
        for number, message in enumerate(messages, 1):
            headers = {} if last == 1 else {STEP: batch, "Nats-Batch-Sequence": str(number)}
            if message.expected is not None:
                headers[EXPECTED] = str(message.expected)
            if message.ttl is not None:
                headers[TTL] = message.ttl
            if number == last > 1:
                headers[COMMIT] = "1"
            await self._send(client, message.subject, message.body, reply if number == last else "", headers or None)
        answered = await self._answer(client, reply, future)
        if (answered.headers or {}).get("Status") == "503":
            raise _Unheard
        return msgspec.json.decode(answered.data, type=Ack)

    def _refused(self, error: ApiError) -> HoldfastError | Conflict:
        if error.err_code in _WRONG_SEQUENCE:
            return Conflict(error.description)
        if error.err_code in _TOO_LARGE:
            return PayloadTooLarge(f"a task is larger than the NATS server takes: {error.description}")
        room = "; raise the stream's max_bytes, or the servers' max_file_store" if error.err_code in _FULL else ""
        return self._unavailable(f"{error.description} ({error.err_code}){room}")


def _too_large(size: int, most: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"a task takes {size:,} bytes here, and the NATS server takes messages of {most:,} with their headers; "
        "keep large data elsewhere and hand over where it is"
    )
