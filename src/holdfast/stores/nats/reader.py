"""Reads from the stream itself, by subject or in order, as the leader has it.

Any replica may answer a direct get, and one that lags would hide what was acknowledged. So the leader is asked first
how far it is, and an answer from before that is asked for again.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import StoreUnavailable
from holdfast.stores.nats.stream import Stream
from holdfast.stores.nats.wire import Missing, Wire

if TYPE_CHECKING:
    from nats.aio.msg import Msg

ASK_MOST = 256
"""Subjects in one question."""
ASK_AT_ONCE = 8
"""Questions: the server answers one after the other, and a long silence is taken for its absence."""
PAGE = 500
LAG_SECONDS = 0.01
LAG_TRIES = 500


class Found(NamedTuple):
    subject: str
    body: bytes
    seq: int


class Reader:
    def __init__(self, wire: Wire, stream: Stream, origin: str) -> None:
        self._wire = wire
        self._stream = stream
        self._origin = origin

    async def last(self, subjects: Sequence[str], *, upto: int | None = None) -> dict[str, Found]:
        """The last message of each subject; a subject may have wildcards. `upto`: how fresh it has to be."""
        if not subjects:
            return {}
        wanted = await self._stream.last() if upto is None else upto
        found: dict[str, Found] = {}
        parts = [subjects[at : at + ASK_MOST] for at in range(0, len(subjects), ASK_MOST)]
        for at in range(0, len(parts), ASK_AT_ONCE):
            answers = await asyncio.gather(*(self._fresh(part, wanted) for part in parts[at : at + ASK_AT_ONCE]))
            found |= {one.subject: one for answer in answers for one in answer}
        return found

    async def _fresh(self, subjects: Sequence[str], wanted: int) -> list[Found]:
        """The origin is asked for too: an answer that finds nothing does not say how far its replica is."""
        question = {"multi_last": [*subjects, self._origin], "batch": 4 * ASK_MOST}
        for _ in range(LAG_TRIES):
            messages = await self._ask(question)
            if int((messages[-1].headers or {}).get("Nats-UpTo-Sequence", 0)) >= wanted:
                return [one for one in map(_found, messages[:-1]) if one.subject != self._origin]
            await asyncio.sleep(LAG_SECONDS)
        raise StoreUnavailable("the replicas of the stream lag far behind their leader")

    async def after(self, subject: str, seq: int, *, limit: int) -> list[Found]:
        """Messages of this subject, which may have wildcards, in order, above this sequence.

        Where a replica has no more, the leader is asked for the next one.
        """
        found: list[Found] = []
        while len(found) < limit:
            most = min(PAGE, limit - len(found))
            messages = await self._ask({"next_by_subj": subject, "seq": seq + 1, "batch": most})
            found += map(_found, messages[:-1])
            seq = found[-1].seq if found else seq
            if len(messages) <= most:
                missed = await self._next(subject, seq + 1)
                if missed is None:
                    break
                found.append(missed)
                seq = missed.seq
        return found[:limit]

    async def _next(self, subject: str, seq: int) -> Found | None:
        try:
            answer = await self._wire.api(f"STREAM.MSG.GET.{self._stream.name}", {"next_by_subj": subject, "seq": seq})
        except Missing:
            return None
        message = answer["message"]
        return Found(message["subject"], base64.b64decode(message.get("data", "")), message["seq"])

    async def every(self, subject: str, seq: int = 0) -> AsyncIterator[Found]:
        while part := await self.after(subject, seq, limit=PAGE):
            for one in part:
                yield one
            seq = part[-1].seq

    async def subjects(self, pattern: str) -> list[str]:
        """The names that match, by the leader's word."""
        names: list[str] = []
        while True:
            info = await self._wire.api(
                f"STREAM.INFO.{self._stream.name}", {"subjects_filter": pattern, "offset": len(names)}
            )
            names += info["state"].get("subjects") or {}
            if len(names) >= info.get("total", 0):
                return names

    async def purge(self, subject: str) -> None:
        await self._wire.api(f"STREAM.PURGE.{self._stream.name}", {"filter": subject})

    async def _ask(self, body: dict[str, Any]) -> list[Msg]:
        """What came; the last is the end mark."""
        return await self._wire.many(f"$JS.API.DIRECT.GET.{self._stream.name}", msgspec.json.encode(body))


def _found(message: Msg) -> Found:
    headers = message.headers or {}
    return Found(headers["Nats-Subject"], message.data, int(headers["Nats-Sequence"]))
