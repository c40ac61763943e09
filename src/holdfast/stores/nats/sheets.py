"""Sheets: events of several tasks in one message.

A message costs the servers the same whatever is in it. So events that follow one another in a change and only say that
tasks have begun to run, or have completed, are written together. An event's id is made of the sequence of its message
and of its place there. The image of a task names the sheets that hold events of it.

A sheet stays until the last of its tasks is gone. What it holds of those that went before is shown to nobody, and tells
no more than when and on which worker they ran: nothing on it was written by a user.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Container, Iterable, Iterator, Sequence

import msgspec

from holdfast.stores.nats.images import Fact, Kept, decode_sheet
from holdfast.stores.nats.reader import Found, Reader
from holdfast.stores.nats.subjects import Subjects
from holdfast.stores.nats.unreadable import understood
from holdfast.stores.portions import portions

FACTS_MOST = 128
"""On one. Whoever wants one event reads all of them."""
PER_TASK = 8
"""More events have messages of their own: an image does not grow with its task's attempts."""
PLACES = 1024
NAMES_MOST = 1024
"""Characters of a task's id and of its worker's name: all of a sheet fits into a message."""
READ_AT_ONCE = 50
ASKED_FIRST = 4

_PLAIN = frozenset({"task.running", "task.completed"})
_NUMBERS = re.compile(r'\{"attempt":\d+(,"max_attempts":\d+)?\}')


def fits(record: Kept, fact: Fact) -> bool:
    """Whether this event may stand on a sheet. A handler may have emitted one of that name, with data of its own."""
    return (
        fact.kind in _PLAIN
        and len(record.sheets) < PER_TASK
        and len(fact.task_id) + len(fact.actor) <= NAMES_MOST
        and _NUMBERS.fullmatch(fact.data) is not None
    )


def written(fact: Fact) -> Fact:
    """As it stands on a sheet: the run's name is a user's."""
    return fact if fact.run_id is None else msgspec.structs.replace(fact, run_id=None)


def event_id(seq: int, place: int = 0) -> int:
    return seq * PLACES + place


def last_id(seq: int) -> int:
    """The highest that an event of this message can have."""
    return event_id(seq, PLACES - 1)


def message_of(event: int) -> int:
    return event // PLACES


def facts_on(sheet: Found) -> Iterator[tuple[int, Fact]]:
    """With their ids."""
    return ((event_id(sheet.seq, place), fact) for place, fact in enumerate(understood(decode_sheet, sheet)))


class Sheets:
    def __init__(self, reader: Reader, subjects: Subjects) -> None:
        self._reader = reader
        self._subjects = subjects

    async def read(self, seqs: Sequence[int]) -> list[Found]:
        """Those of them that are there."""
        found: list[Found] = []
        for part in portions(seqs, READ_AT_ONCE):
            read = await asyncio.gather(*map(self._read_one, part))
            found += [one for one in read if one is not None]
        return found

    async def _read_one(self, seq: int) -> Found | None:
        found = await self._reader.after(self._subjects.sheets, seq - 1, limit=1)
        return found[0] if found and found[0].seq == seq else await self._reader.at(seq)

    async def lives(self, task_ids: Iterable[str], *, upto: int | None = None) -> dict[str, Found]:
        """By id: what was submitted. What stands on a sheet that is older is of another task of the same id."""
        names = {self._subjects.spec(task_id): task_id for task_id in dict.fromkeys(task_ids)}
        return {names[name]: one for name, one in (await self._reader.last(list(names), upto=upto)).items()}

    async def empty(self, sheets: Sequence[Found], gone: Container[str]) -> list[str]:
        """The names of those that hold nothing of a task that exists. `gone`: some that do not.

        Mostly one of the first that are asked for does.
        """
        left = [(one, [fact.task_id for _, fact in facts_on(one) if fact.task_id not in gone]) for one in sheets]
        empty: list[str] = []
        most = ASKED_FIRST
        while left:
            lives = await self.lives(task_id for _, task_ids in left for task_id in task_ids[:most])
            undecided = []
            for one, task_ids in left:
                if any(task_id in lives and lives[task_id].seq < one.seq for task_id in task_ids[:most]):
                    continue
                if len(task_ids) > most:
                    undecided.append((one, task_ids[most:]))
                else:
                    empty.append(one.subject)
            left, most = undecided, 2 * most
        return empty

    async def sweep(self, seqs: Iterable[int], gone: Container[str]) -> None:
        """Remove those of them that hold nothing any more. Whatever else is left of who is gone was removed before: of
        two who delete the last tasks of a sheet at once, one finds it empty.
        """
        for part in portions(sorted(set(seqs)), READ_AT_ONCE):
            names = await self.empty(await self.read(part), gone)
            await asyncio.gather(*map(self._reader.purge, names))
