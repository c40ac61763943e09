"""The events of a store or of one task, in the order of their ids, read from the stream itself.

Most are messages of their own, others stand on sheets (sheets.py). What a sheet holds of tasks that are gone is passed
over. A page may end in the middle of a sheet: who follows goes on behind the last event that it has seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from holdfast.model.event import Event, recorded_event
from holdfast.stores.nats.images import Fact, decode_fact, decode_image, decode_spec, sheets_of
from holdfast.stores.nats.reader import Found
from holdfast.stores.nats.sheets import event_id, facts_on, last_id, message_of
from holdfast.stores.nats.unreadable import understood

if TYPE_CHECKING:
    from holdfast.stores.nats.ledger import Ledger

READ_FIRST = 8
"""Messages: each may hold more than a page."""
READ_MOST = 1000


class Line(NamedTuple):
    id: int
    found: Found
    fact: Fact | None
    """On a sheet; None: the message is the event."""


class History:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._subjects = ledger.subjects

    # Of all tasks

    async def of_all(self, after: int, limit: int) -> list[Event]:
        seq = message_of(after)
        if after < last_id(seq):
            seq -= 1  # this message may hold more
        events: list[Event] = []
        most = READ_FIRST
        while len(events) < limit:
            read = await self._ledger.reader.after(self._subjects.history, max(seq, 0), limit=most)
            lines = [line for one in read for line in self._lines(one)]
            events += await self._shown([line for line in lines if line.id > after], limit - len(events))
            if len(read) < most:
                break
            seq = read[-1].seq
            each = len(lines) / len(read)
            most = min(READ_MOST, READ_FIRST + int((limit - len(events)) / each))
        return events

    def _lines(self, found: Found) -> Iterator[Line]:
        if not self._subjects.is_sheet(found.subject):
            yield Line(event_id(found.seq), found, None)
            return
        for number, fact in facts_on(found):
            yield Line(number, found, fact)

    async def _shown(self, lines: Sequence[Line], limit: int) -> list[Event]:
        """The first of them, without those of tasks that are gone."""
        events: list[Event] = []
        while lines and len(events) < limit:
            most = limit - len(events)
            part, lines = lines[:most], lines[most:]
            on_sheets = [line.fact.task_id for line in part if line.fact is not None]
            lives = await self._ledger.sheets.lives(on_sheets, upto=part[-1].found.seq)
            events += [event for line in part if (event := _told(line, lives)) is not None]
        return events

    # Of one task

    async def of_task(self, task_id: str, after: int, limit: int) -> list[Event]:
        """Up to where the leader is at first: what is written while one kind is read would be missing from it."""
        upto = await self._ledger.stream.last()
        own, gone, shared = await asyncio.gather(
            self._of_its_own(task_id, message_of(after), limit),
            self._ledger.reader.after(self._subjects.gone(task_id, "*"), message_of(after), limit=limit),
            self._on_sheets(task_id, after),
        )
        events = [*shared, *(_own(one) for one in (*own, *gone))]
        return sorted((one for one in events if one.id <= last_id(upto)), key=lambda one: one.id)[:limit]

    async def _of_its_own(self, task_id: str, seq: int, limit: int) -> list[Found]:
        """The whole of it also where a server has passed over some because its copy is damaged."""
        reader, events = self._ledger.reader, self._subjects.events(task_id)
        found = await reader.after(events, seq, limit=limit)
        if seq or len(found) == limit:
            return found
        return [
            *found,
            *await reader.missed(sorted(set(await reader.subjects(events)) - {one.subject for one in found})),
        ]

    async def _on_sheets(self, task_id: str, after: int) -> list[Event]:
        home = (await self._ledger.members.homes([task_id])).get(task_id)
        if home is None:
            return []
        image = understood(decode_image, home)
        sheets = [seq for seq in sheets_of(image, home.seq) if last_id(seq) > after]
        return [
            _event(number, msgspec.structs.replace(fact, run_id=image.head.run_id))
            for sheet in await self._ledger.sheets.read(sheets)
            for number, fact in facts_on(sheet)
            if fact.task_id == task_id and number > after
        ]


def _told(line: Line, lives: dict[str, Found]) -> Event | None:
    if line.fact is None:
        return _own(line.found)
    life = lives.get(line.fact.task_id)
    if life is None or life.seq > line.found.seq:
        return None
    return _event(line.id, msgspec.structs.replace(line.fact, run_id=understood(decode_spec, life).new.run_id))


def _own(found: Found) -> Event:
    """What is told by a message of its own; the first of a task is what was submitted."""
    if not found.subject.endswith(".0"):
        return _event(event_id(found.seq), understood(decode_fact, found))
    spec = understood(decode_spec, found)
    new = spec.new
    return recorded_event(
        seq=event_id(found.seq),
        at=spec.created_at,
        task_id=new.id,
        run_id=new.run_id,
        kind="task.enqueued",
        actor="client",
        data={"name": new.name, "queue": new.queue, "status": spec.status},
    )


def _event(number: int, fact: Fact) -> Event:
    return recorded_event(
        seq=number,
        at=fact.at,
        task_id=fact.task_id,
        run_id=fact.run_id,
        kind=fact.kind,
        actor=fact.actor,
        data=msgspec.json.decode(fact.data),
    )
