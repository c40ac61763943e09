"""Tasks with two homes, as a server leaves them that has stored only a part of an atomic step, and how they get one.

A step that ends a task begins with the image under `end`, and leaves `live` in its last part (messages.py). Where it
was torn in between, nobody was told that it was done: the image under `live` is the true one, and the task is run
again. Only where the later image stands in a whole step, and the event is there that goes with it, the older one has
come back from somewhere (damage to a server's files), and the later one stays.

The home that stays is written anew together with the one that goes: a task that is just on its way is left alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.stores.nats.images import Image, decode_image, encode, sheets_of
from holdfast.stores.nats.members import places
from holdfast.stores.nats.messages import MARKER_TTL
from holdfast.stores.nats.reader import Found
from holdfast.stores.nats.unreadable import understood
from holdfast.stores.nats.wire import Conflict, Message
from holdfast.stores.portions import portions

if TYPE_CHECKING:
    from holdfast.stores.nats.ledger import Ledger

ASKED = 500


class Double(NamedTuple):
    task_id: str
    stays: Found
    image: Image
    goes: tuple[Found, ...]


class Torn:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._subjects = ledger.subjects
        self._upto = 0

    async def find(self, ended: Iterable[str]) -> list[Double]:
        """`ended`: the places under `end` that are taken."""
        self._upto = await self._ledger.stream.last()
        doubles: list[Double] = []
        for part in portions(self._suspects(ended), ASKED):
            homes = await places(self._ledger.reader, self._subjects, part)
            doubles += [await self._judged(task_id, found) for task_id, found in homes.items() if len(found) > 1]
        return doubles

    def _suspects(self, ended: Iterable[str]) -> list[str]:
        times = Counter(map(self._subjects.task_of, ended))
        records = self._ledger.replica.records
        live = {task_id for task_id in times if task_id in records and not records[task_id].status.terminal}
        return sorted(live | {task_id for task_id, number in times.items() if number > 1})

    async def _judged(self, task_id: str, found: Sequence[Found]) -> Double:
        newest = sorted(found, key=lambda one: one.seq, reverse=True)
        images = {one: understood(decode_image, one) for one in newest}
        sound = [one for one in newest if await self._sound(task_id, one, images[one])]
        stays = sound[0] if sound else newest[0]
        return Double(task_id, stays, images[stays], tuple(one for one in newest if one != stays))

    async def _sound(self, task_id: str, found: Found, image: Image) -> bool:
        """A live task waits for nothing; an end has to be whole."""
        if self._subjects.is_live(found.subject):
            return True
        return await self._told(task_id, found, image) and not await self._ledger.reader.torn(found.seq)

    async def _told(self, task_id: str, found: Found, image: Image) -> bool:
        """By an event that goes with it, of its own or on a sheet."""
        if image.sheet:
            return await self._ledger.reader.at(found.seq - image.sheet) is not None
        event = self._subjects.event(task_id, image.noted)
        return event in await self._ledger.reader.last([event])

    async def mend(self, doubles: Sequence[Double]) -> None:
        for double in doubles:
            try:
                await self._ledger.wire.write(self._messages(double))
            except Conflict:
                continue  # it was on its way
            await self._forget_events(double)

    def _messages(self, double: Double) -> list[Message]:
        """What is followed comes last."""
        _, stays, image, goes = double
        sheets = sheets_of(image, stays.seq)
        anew = msgspec.structs.replace(image, born=image.born or stays.seq, sheets=sheets, sheet=0)
        messages = [Message(one.subject, b"", one.seq, MARKER_TTL) for one in goes]
        messages.append(Message(stays.subject, encode(anew), stays.seq))
        return sorted(messages, key=lambda message: self._subjects.is_live(message.subject))

    async def _forget_events(self, double: Double) -> None:
        """Those of the step that was not done."""
        for name in await self._ledger.reader.subjects(self._subjects.events(double.task_id)):
            if int(name.rpartition(".")[2]) > double.image.noted:
                await self._ledger.reader.purge(name, upto=self._upto)
