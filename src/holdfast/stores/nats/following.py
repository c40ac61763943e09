"""A replica that follows the stream: what others write is placed in it, and how far it is behind is known.

An answer that changes nothing ("no such task", "lease lost", "nothing to claim") is not tested by a write, so it is
only given on a fresh replica: one that has seen all that the leader had when it was asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import msgspec

from holdfast import ids
from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.stores.nats.bulletins import told
from holdfast.stores.nats.changes import Rule, Tally
from holdfast.stores.nats.feed import Feed
from holdfast.stores.nats.images import Kept, decode_image
from holdfast.stores.nats.messages import MARKER_TTL
from holdfast.stores.nats.options import Options
from holdfast.stores.nats.reader import Reader
from holdfast.stores.nats.replica import Replica
from holdfast.stores.nats.rows import TABLES
from holdfast.stores.nats.stream import Stream, went_back
from holdfast.stores.nats.subjects import REPAIRED, Subjects, text
from holdfast.stores.nats.turns import Turns
from holdfast.stores.nats.unreadable import unreadable
from holdfast.stores.nats.wire import Message, Wire
from holdfast.wakeups.in_process import Hub

CATCH_UP_SECONDS = 2.0

_rule = msgspec.msgpack.Decoder(Rule)
_tally = msgspec.msgpack.Decoder(Tally)


class Following:
    def __init__(
        self,
        wire: Wire,
        reader: Reader,
        stream: Stream,
        subjects: Subjects,
        options: Options,
        clock: Clock,
        turns: Turns,
    ) -> None:
        self.replica = Replica(clock)
        self.news = Hub()
        self.feed = Feed(wire, stream.name, (subjects.replicated,), self._seen, self._anew, first=(subjects.lives,))
        self._wire = wire
        self._reader = reader
        self._stream = stream
        self._subjects = subjects
        self._options = options
        self._turns = turns
        self._mark_name = ids.token_hex(8)
        self._starting = asyncio.Lock()
        self._follows = False
        self._anews, self._whole_since = 0, 0
        """How often everything was read anew, and the last of these of which the end was seen."""
        self._rereading: asyncio.Task[None] | None = None
        self._repaired = 0
        self._names: set[str] | None = None
        """Of all that has come since everything is read anew (`_named`); None: nothing of it is missing."""
        self.lost: set[str] = set()
        """The places of tasks that nobody can read."""
        stream.replaced, stream.confirm = self.feed.forget, self._mark

    @property
    def partial(self) -> bool:
        """It is being read anew, or lacks something: a limit must not be judged by the part that is there."""
        return not self._follows or self._whole_since != self._anews or bool(self.feed.unreadable)

    async def close(self) -> None:
        if self._rereading is not None:
            self._rereading.cancel()
        if self._follows:
            await self.feed.close()

    # How far it is

    async def fresh(self) -> None:
        """It has seen all that was acknowledged before this was called."""
        while True:
            anews = self._anews
            await self._catch_up()
            if self.feed.unreadable:
                await self._reconsider()
            elif self._names is not None:
                await self._audit(self._names)
            elif anews == self._anews:
                self._whole_since = anews
                return

    async def _reconsider(self) -> None:
        """What cannot be read is still there; or somebody has removed it, of which replicas are not told."""
        lacking = dict(self.feed.unreadable)
        there = await self._reader.last(list(lacking))
        for subject, seq in lacking.items():
            if subject in there and there[subject].seq == seq:
                raise unreadable(subject, seq)
        self.feed.forget()

    async def _audit(self, names: set[str]) -> None:
        """What has not come although its name is there is damaged on the server that had to send it.

        A task of which nobody has a copy does not keep the others from being done: who asks for it is told.
        """
        subjects = self._subjects
        patterns = (subjects.lives, subjects.replicated)
        suspects = [name for one in patterns async for name in self._lacking(one, names)]
        await self._catch_up()
        lost: set[str] = set()
        lacking = [name for name in suspects if self._named(name) not in names]
        missed = await self._reader.missed([name for name in lacking if subjects.is_live(name)], lost)
        missed += await self._reader.missed([name for name in lacking if not subjects.is_live(name)])
        if names is self._names:  # else everything is being read anew once more
            self._names, self.lost = None, lost
            for one in missed:
                if self._named(one.subject) not in names:  # else we were told of something later
                    self.feed.hand(*one)

    async def _lacking(self, pattern: str, names: set[str]) -> AsyncIterator[str]:
        """What is there and has not come. Bulletins say nothing that is not said elsewhere."""
        async for page in self._reader.name_pages(pattern):
            for name in page:
                if self._named(name) not in names and not self._subjects.is_bulletin(name):
                    yield name

    def _named(self, subject: str) -> str:
        """Live tasks by their ids: a bulletin has no more."""
        return self._subjects.task_of(subject) if self._subjects.is_live(subject) else subject

    async def reached(self, sequence: int) -> bool:
        return await self.feed.reached(sequence, CATCH_UP_SECONDS)

    async def _catch_up(self) -> None:
        if not self._follows:
            await self._follow()
            return
        seen = self.feed.last
        last = await self._stream.last()
        if last < seen:
            self.feed.forget()
            raise went_back(self._stream.name, seen, last)
        if not await self.reached(last):
            await self._see(await self._mark())

    async def _follow(self) -> None:
        """The mark is made first: later, the word that it was written would come behind all that there is to read."""
        mark = await self._mark()
        async with self._starting:
            if not self._follows:
                self._repaired = mark
                await self.feed.start()
                self._follows = True
        await self._see(mark)

    async def _mark(self) -> int:
        """What was last may be gone already; a message of our own will come."""
        return await self._wire.write([Message(self._subjects.mark(self._mark_name), b"", None, MARKER_TTL)])

    async def _see(self, sequence: int) -> None:
        if not await self.feed.reached(sequence, self._options.timeout_seconds):
            self.feed.disturb()  # whoever sends to us may be stuck with a copy that is damaged
            raise StoreUnavailable(f"{self._options.label}: the stream cannot be followed at the moment")

    def _read_anew(self, seq: int) -> None:
        """Somebody has repaired the stream (repair.py): what is known of it may be wrong. Between two changes."""
        if seq <= self._repaired:
            return
        self._repaired = seq

        async def reread() -> None:
            async with self._turns.alone():
                self.feed.forget()
                with suppress(StoreUnavailable):  # then the feed goes on trying
                    await self._see(await self._mark())

        self._rereading = asyncio.create_task(reread())

    # What others write

    def _anew(self) -> None:
        self._anews += 1
        self._names = set()
        self.replica.clear()

    def _seen(self, subject: str, body: bytes, seq: int) -> None:
        if self._subjects.is_live(subject):
            self._told(self._subjects.task_of(subject), body, seq)
            return
        if self._names is not None:
            self._names.add(subject)
        kind, _, rest = subject.removeprefix(f"{self._subjects.prefix}.r.").partition(".")
        if kind == "bulletin":
            for task_id, said_at, image in told(body, seq) if not self.feed.looks_first else ():
                self._told(task_id, image, said_at)
        elif kind == "queue":
            self.replica.place_rule(text(rest), _rule.decode(body), seq)
            self.news.announce()
        elif kind == "tally":
            self.replica.place_tally(rest, _tally.decode(body) if body else None, seq)
        elif kind == "head":
            self.replica.heads.add(rest)
        elif kind == "mark" and rest == REPAIRED:
            self._read_anew(seq)
        elif kind in TABLES:
            self.replica.place_row(kind, text(rest), TABLES[kind].decode(body) if body else None, seq)

    def _told(self, task_id: str, body: bytes, seq: int) -> None:
        if self._names is not None:
            self._names.add(task_id)
        if not body:
            self.replica.drop(task_id, seq)
            return
        record = self.replica.records.get(task_id)
        if isinstance(record, Kept) and seq <= record.rev:
            return
        image = decode_image(body)
        if image.status.terminal:
            self.replica.place_ended(task_id, image, seq)
        else:
            self.replica.place(task_id, image, seq)
            self.news.announce()
