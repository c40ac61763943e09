"""What is left of tasks that are gone, because somebody who deleted them was stopped on the way.

What is looked for was written before a certain moment, and only that is removed: whoever submits a task under the same
id or key meanwhile loses nothing. Names are compared with the replica and a census first; of the few that are in
neither, the leader is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from holdfast.stores.nats.messages import MARKER_TTL
from holdfast.stores.nats.reader import Found
from holdfast.stores.nats.rows import PACK
from holdfast.stores.nats.sheets import facts_on
from holdfast.stores.nats.subjects import text
from holdfast.stores.nats.wire import Conflict, Message
from holdfast.stores.portions import portions

if TYPE_CHECKING:
    from holdfast.stores.nats.ledger import Ledger

ASKED = 1000
PURGED = 50
KEYS_FREED = 500
SHEETS_READ = 50


class Leftovers:
    def __init__(self, ledger: Ledger, ended: Iterable[str], told: Callable[[str], None]) -> None:
        """`ended`: ids of those that had ended some time ago."""
        self._ledger = ledger
        self._ended = set(ended)
        self._told = told
        self._upto = 0
        self._packed: set[str] = set()

    async def begin(self) -> None:
        """From here on the moment is fixed. Tasks of large submits that are not unpacked yet exist."""
        ledger = self._ledger
        self._upto = await ledger.stream.last()
        await ledger.fresh()
        for pack, (row, _) in list(ledger.replica.tables.get(PACK, {}).items()):
            if row is not None:
                self._packed |= set(await ledger.packs.ids(pack))

    def knows(self, task_id: str) -> bool:
        """It exists, or did a moment ago."""
        return task_id in self._ended or task_id in self._packed or task_id in self._ledger.replica.records

    async def gone(self, task_ids: Iterable[str]) -> set[str]:
        """Those of them that do not exist, by the leader's word."""
        suspects = [one for one in dict.fromkeys(task_ids) if not self.knows(one)]
        gone: set[str] = set()
        for part in portions(suspects, ASKED):
            gone |= set(part) - set(await self._ledger.members.homes(part))
        return gone

    async def histories(self) -> list[str]:
        """Ids of tasks that are gone, and have left what was submitted, or events."""
        subjects = self._ledger.subjects
        return await self._of_gone(subjects.history, subjects.task_in_history)

    async def sheets(self) -> list[str]:
        """The names of those on which nobody stands who exists (sheets.py)."""
        empty: list[str] = []
        part: list[Found] = []
        async for found in self._ledger.reader.every(self._ledger.subjects.sheets):
            if found.seq > self._upto:
                break
            part.append(found)
            if len(part) == SHEETS_READ:
                empty += await self._empty(part)
                part = []
        return empty + await self._empty(part)

    async def _empty(self, sheets: Sequence[Found]) -> list[str]:
        gone = await self.gone(fact.task_id for sheet in sheets for _, fact in facts_on(sheet))
        return await self._ledger.sheets.empty(sheets, gone)

    async def steps(self) -> list[str]:
        return await self._of_gone(self._ledger.subjects.all_steps, lambda name: text(name.split(".")[-2]))

    async def _of_gone(self, pattern: str, task_in: Callable[[str], str | None]) -> list[str]:
        gone: set[str] = set()
        seen = 0
        async for names in self._ledger.reader.name_pages(pattern):
            gone |= await self.gone(task_id for name in names if (task_id := task_in(name)) is not None)
            seen += len(names)
            self._told(f"{seen:,} names under {pattern} compared")
        return sorted(gone)

    async def packs(self) -> list[str]:
        """Ids under which parts of large submits lie that are unpacked."""
        names = await self._ledger.reader.subjects(self._ledger.subjects.all_packed)
        rows = self._ledger.replica.tables.get(PACK, {})
        packs = dict.fromkeys(text(name.split(".")[-2]) for name in names)
        return [pack for pack in packs if rows.get(pack, (None, 0))[0] is None]

    async def purge(self, patterns: Sequence[str]) -> None:
        for part in portions(patterns, PURGED):
            await asyncio.gather(*(self._ledger.reader.purge(one, upto=self._upto) for one in part))

    # Keys

    async def keys(self) -> list[Message]:
        """What frees the idempotency keys whose holders are gone, if nobody has taken them by then."""
        freed: list[Message] = []
        async for part in self._key_parts():
            gone = await self.gone(part)
            freed += [message for holder, messages in part.items() if holder in gone for message in messages]
        return freed

    async def _key_parts(self) -> AsyncIterator[dict[str, list[Message]]]:
        """By holder."""
        part: dict[str, list[Message]] = {}
        async for found in self._ledger.reader.every(self._ledger.subjects.keys):
            if found.seq > self._upto:
                break
            if found.body:
                freeing = Message(found.subject, b"", found.seq, MARKER_TTL)
                part.setdefault(found.body.decode(), []).append(freeing)
            if len(part) == ASKED:
                yield part
                part = {}
        yield part

    async def free(self, freed: Sequence[Message]) -> None:
        for part in portions(freed, KEYS_FREED):
            try:
                await self._ledger.wire.write(part)
            except Conflict:
                for one in part:
                    await self._free_one(one)

    async def _free_one(self, one: Message) -> None:
        try:
            await self._ledger.wire.write([one])
        except Conflict:
            return  # it has a new holder
