"""Reads from the stream itself, by subject or in order, as the leader has it.

Any replica may answer a direct get, and one that lags would hide what was acknowledged. So the leader is asked first
how far it is, and an answer from before that is asked for again.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from holdfast.errors import StoreUnavailable
from holdfast.stores.nats.stream import Stream, led, parsed_instant
from holdfast.stores.nats.wire import BATCH_MOST, COMMIT, STEP, Missing, Wire

if TYPE_CHECKING:
    from nats.aio.msg import Msg

ASK_MOST = 256
"""Subjects in one question."""
ASK_AT_ONCE = 8
"""Questions: the server answers one after the other, and a long silence is taken for its absence."""
ANSWER_BYTES = 8 << 20
"""In one answer; the server sends no more than its `max_pending` in any case."""
PAGE = 500
BEYOND = 1 << 30
NAMES_SECONDS = 30.0
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
        """In order. The origin is asked for too: an answer that finds nothing does not say how far its replica is.

        What was too much for one answer is asked for as it is by then: bound to the moment of the first, what has been
        written over since would be in neither.
        """
        question = {"multi_last": [*subjects, self._origin], "batch": 4 * ASK_MOST, "max_bytes": ANSWER_BYTES}
        found: list[Found] = []
        while True:
            *messages, end = await self._upto(question, wanted)
            if (end.headers or {}).get("Status") == "404":
                return await self._in_halves(subjects, wanted)
            found += map(_found, messages)
            headers = end.headers or {}
            if not int(headers.get("Nats-Num-Pending", 0)):
                return [one for one in found if one.subject != self._origin]
            question["seq"], wanted = found[-1].seq + 1, max(wanted, int(headers["Nats-UpTo-Sequence"]))

    async def _upto(self, question: dict[str, Any], wanted: int) -> list[Msg]:
        """The answer of a replica that is as far as that, or breaks off."""
        for _ in range(LAG_TRIES):
            messages = await self._ask(question)
            end = messages[-1].headers or {}
            broken_off = end.get("Status") == "404" and (len(messages) > 1 or "seq" in question)
            if broken_off or int(end.get("Nats-UpTo-Sequence", 0)) >= wanted:
                return messages
            await asyncio.sleep(LAG_SECONDS)
        raise StoreUnavailable("the replicas of the stream lag far behind their leader")

    async def _in_halves(self, subjects: Sequence[str], wanted: int) -> list[Found]:
        """Where a message is damaged the server breaks off, and gives none that stands behind it."""
        if len(subjects) == 1:
            return []  # whoever needs it finds out by its name (`missed`)
        half = len(subjects) // 2
        return [*await self._fresh(subjects[:half], wanted), *await self._fresh(subjects[half:], wanted)]

    async def times(self, subjects: Sequence[str]) -> dict[str, datetime]:
        """When the last message of each was written; by what any replica knows."""
        found: dict[str, datetime] = {}
        for at in range(0, len(subjects), ASK_MOST):
            messages = await self._ask({"multi_last": subjects[at : at + ASK_MOST], "batch": ASK_MOST})
            headers = [message.headers or {} for message in messages[:-1]]
            found |= {one["Nats-Subject"]: parsed_instant(one["Nats-Time-Stamp"]) for one in headers}
        return found

    async def after(self, subject: str, seq: int, *, limit: int) -> list[Found]:
        """Messages of this subject, which may have wildcards, in order, above this sequence.

        Where a replica has no more, the leader is asked for the next one, once it is known who that is.
        """
        found: list[Found] = []
        while len(found) < limit:
            most = min(PAGE, limit - len(found))
            messages = await self._ask({"next_by_subj": subject, "seq": seq + 1, "batch": most})
            found += map(_found, messages[:-1])
            seq = found[-1].seq if found else seq
            if len(messages) <= most:
                await self._stream.last()
                missed = await self._got({"next_by_subj": subject, "seq": seq + 1})
                if missed is None:
                    break
                found.append(missed)
                seq = missed.seq
        return found[:limit]

    async def _got(self, wanted: dict[str, Any]) -> Found | None:
        """From the leader."""
        try:
            answer = await self._wire.api(f"STREAM.MSG.GET.{self._stream.name}", wanted)
        except Missing:
            return None
        message = answer["message"]
        return Found(message["subject"], base64.b64decode(message.get("data", "")), message["seq"])

    async def missed(self, names: Sequence[str], lost: set[str] | None = None) -> list[Found]:
        """Messages that were not there when they were read, and whose names are: a server's copy may be damaged.

        They are read from whoever has them. Where nobody asked has one, another server is asked next time; if there is
        only one copy, it is added to `lost`.
        """
        found: list[Found] = []
        for name in names:
            one = (await self.last([name])).get(name) or await self._got({"last_by_subj": name})
            if one is not None:
                found.append(one)
            elif await self.total(name):
                if lost is not None and self._stream.copies == 1:
                    lost.add(name)
                    continue
                await self._wire.leave(await self._wire.client())
                raise damaged(self._stream.name, name)
        return found

    async def at(self, seq: int) -> Found | None:
        """As the leader has it."""
        return await self._got({"seq": seq})

    async def ensure_led_whole(self, names: Sequence[str]) -> None:
        """A leader whose copy is damaged refuses whoever expects the message; one of the others has to lead."""
        for name in names:
            if await self._got({"last_by_subj": name}) is None and await self.total(name):
                await self._stream.step_down()
                raise damaged(self._stream.name, name)

    async def torn(self, seq: int) -> bool:
        """Whether the atomic step in which this was written ends without its last message, beyond doubt."""
        last = await self._stream.last()
        messages = await self._ask({"next_by_subj": ">", "seq": seq, "batch": BATCH_MOST + 1})
        parts = [message.headers or {} for message in messages[:-1]]
        step = parts[0].get(STEP) if parts else None
        for at, part in enumerate(parts):
            if step is None or COMMIT in part or int(part["Nats-Sequence"]) != seq + at:
                return False  # it is whole; or something of it has gone since, and nobody knows what
            if part.get(STEP) != step:
                return True
        return bool(parts) and seq + len(parts) > last

    async def every(self, subject: str, seq: int = 0) -> AsyncIterator[Found]:
        while part := await self.after(subject, seq, limit=PAGE):
            for one in part:
                yield one
            seq = part[-1].seq

    async def subjects(self, pattern: str) -> list[str]:
        """The names that match, by the leader's word."""
        return [name async for page in self.name_pages(pattern) for name in page]

    async def name_pages(self, pattern: str) -> AsyncIterator[list[str]]:
        """The same, some 100,000 at a time. What is written or removed meanwhile may be missing."""
        seen = 0
        while True:
            info = await self._named(pattern, seen)
            names = list(info["state"].get("subjects") or {})
            seen += len(names)
            if names:
                yield names
            if not names or seen >= info.get("total", 0):
                return

    async def total(self, pattern: str) -> int:
        """How many names match; none of them is sent."""
        return int((await self._named(pattern, BEYOND)).get("total", 0))

    async def _named(self, pattern: str, offset: int) -> dict[str, Any]:
        """A hundred thousand names take the server a while."""
        asked = f"STREAM.INFO.{self._stream.name}", {"subjects_filter": pattern, "offset": offset}
        info = await self._wire.api(*asked, seconds=NAMES_SECONDS)
        if led(info):
            return info
        await self._stream.confirm()
        return await self._wire.api(*asked, seconds=NAMES_SECONDS)

    async def purge(self, subject: str, *, upto: int | None = None) -> None:
        """`upto`: what was written later stays."""
        bound = {} if upto is None else {"seq": upto + 1}
        await self._wire.api(f"STREAM.PURGE.{self._stream.name}", {"filter": subject, **bound})

    async def _ask(self, body: dict[str, Any]) -> list[Msg]:
        """What came; the last is the end mark."""
        return await self._wire.many(f"$JS.API.DIRECT.GET.{self._stream.name}", msgspec.json.encode(body))


def _found(message: Msg) -> Found:
    headers = message.headers or {}
    return Found(headers["Nats-Subject"], message.data, int(headers["Nats-Sequence"]))


def damaged(stream: str, name: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the message under {name} is damaged on the server that was asked. Others may have it: where there are three "
        f"copies, stop that server, remove its folder of the stream {stream}, and start it. If nobody has it, restore "
        "a backup"
    )
