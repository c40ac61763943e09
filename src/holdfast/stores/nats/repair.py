"""`holdfast doctor --repair`: makes the indexes of a NATS store what its tasks say.

    homes     of tasks that have two               one stays (torn.py)
    tally     how many tasks have ended            recounted (census.py)
    queues    the row that each queue has          made anew, open and without limits
    heads     where ended tasks are looked for     completed (walk.py)
    tallies   of handles that are gone             merged (tallies.py)
    runs      the lists of their members           completed (rosters.py)
    leftovers of tasks that are gone, and sheets   removed (leftovers.py)

Others may go on working meanwhile. Replicas read everything anew afterwards, because they are not told of what somebody
has removed by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast.errors import StoreUnavailable
from holdfast.model.repair import Repair
from holdfast.stores.nats import tallies
from holdfast.stores.nats.census import CORRECTION, Census
from holdfast.stores.nats.changes import Rule, added
from holdfast.stores.nats.images import encode
from holdfast.stores.nats.leftovers import Leftovers
from holdfast.stores.nats.messages import MARKER_TTL
from holdfast.stores.nats.rosters import Rosters
from holdfast.stores.nats.subjects import REPAIRED, head_of
from holdfast.stores.nats.torn import Torn
from holdfast.stores.nats.wire import Conflict, Message
from holdfast.stores.portions import portions

if TYPE_CHECKING:
    from holdfast.stores.nats.ledger import Ledger

TRIES = 10
HEADS_MOST = 500


class Repairs:
    def __init__(self, ledger: Ledger, told: Callable[[str], None], *, dry_run: bool) -> None:
        self._ledger = ledger
        self._told = told
        self._dry = dry_run
        self._done: list[Repair] = []

    def _note(self, what: str, number: int, words: str) -> bool:
        """Whether there is something to do, and it shall be done."""
        if number:
            self._done.append(Repair(what, number, words))
        return bool(number) and not self._dry

    async def all(self) -> list[Repair]:
        ledger = self._ledger
        await ledger.fresh()
        census = await self._tally()
        followed = bool(self._done)
        followed |= await self._queues(census)
        followed |= await self._heads(census)
        if followed and not self._dry:
            await ledger.wire.write([Message(ledger.subjects.mark(REPAIRED), b"", None, MARKER_TTL)])
        await self._old_tallies()
        await self._leftovers(census)
        return self._done

    # What is followed

    async def _tally(self) -> Census:
        mended = 0
        for _ in range(TRIES):
            census = Census(self._ledger, self._told)
            wrong, known, rev = await census.take()
            torn = Torn(self._ledger)
            doubles = await torn.find(census.ended)
            mended += len(doubles)
            if doubles and not self._dry:
                await torn.mend(doubles)
                continue
            if doubles:
                wrong = census.without(one.subject for double in doubles for one in double.goes)
            if wrong and not self._dry:
                subject = self._ledger.subjects.tally(CORRECTION)
                try:
                    await self._ledger.wire.write([Message(subject, encode(added(known, wrong)), rev)])
                except Conflict:
                    continue  # somebody else repairs, or has merged it
            self._note("homes", mended, f"tasks that were in two places: {mended:,}")
            for (queue, status), number in sorted(wrong.items()):
                there = census.counts[queue, status]
                said = there - number
                self._note("tally", abs(number), f"{there:,} {status} in {queue!r}, counted as {said:,}")
            return census
        raise StoreUnavailable(f"{self._ledger.options.label}: somebody else repairs at the same time")

    async def _queues(self, census: Census) -> bool:
        ledger = self._ledger
        queues = {queue for queue, _ in census.counts} | {one.new.queue for one in ledger.replica.records.values()}
        subjects = {ledger.subjects.queue(queue): queue for queue in sorted(queues)}
        known = await ledger.reader.last(list(subjects))
        missing = {subject: queue for subject, queue in subjects.items() if subject not in known}
        for subject, queue in missing.items():
            if self._note("queues", 1, f"{queue!r} was unknown; it is open and has no limits"):
                try:
                    await ledger.wire.write([Message(subject, encode(Rule()), 0)])
                except Conflict:
                    continue  # it has come by itself
        return bool(missing)

    async def _heads(self, census: Census) -> bool:
        subjects = self._ledger.subjects
        heads = {head_of(subjects.task_of(name)) for name in census.ended}
        known = await self._ledger.reader.subjects(subjects.head("*"))
        missing = sorted({subjects.head(head) for head in heads} - set(known))
        if self._note("heads", len(missing), f"spans of time whose ended tasks were in no list: {len(missing):,}"):
            for part in portions(missing, HEADS_MOST):
                await self._ledger.wire.write([Message(subject, b"1") for subject in part])
        return bool(missing)

    async def _old_tallies(self) -> None:
        await self._ledger.fresh()
        old = await tallies.old_tallies(self._ledger)
        if self._note("tallies", len(old), f"of {len(old):,} processes that are gone, merged into one"):
            await tallies.merge(self._ledger, old)

    # What is left over

    async def _leftovers(self, census: Census) -> None:
        subjects = self._ledger.subjects
        left = Leftovers(self._ledger, map(subjects.task_of, census.ended), self._told)
        await left.begin()
        gone = await left.histories()
        if self._note("events", len(gone), f"events and payloads of {_gone(gone)}"):
            await left.purge([subjects.events(task_id) for task_id in gone])
        sheets = await left.sheets()
        if self._note("sheets", len(sheets), f"sheets with events of tasks that are all gone: {len(sheets):,}"):
            await left.purge(sheets)
        gone = await left.steps()
        if self._note("steps", len(gone), f"steps of {_gone(gone)}"):
            await left.purge([subjects.steps(task_id) for task_id in gone])
        keys = await left.keys()
        if self._note("keys", len(keys), f"idempotency keys of {_gone(keys)}"):
            await left.free(keys)
        packs = await left.packs()
        await self._rosters(census, left)
        if self._note("packs", len(packs), f"large submits that are unpacked: {len(packs):,}"):
            await left.purge([subjects.packed(pack) for pack in packs])

    async def _rosters(self, census: Census, left: Leftovers) -> None:
        rosters = Rosters(self._ledger, left)
        await rosters.read()
        missing = await rosters.missing(census.members)
        number = sum(map(len, missing.values()))
        if self._note("runs", number, f"members of runs that were in no list: {number:,}"):
            await rosters.write(missing)
        if self._note("lists", len(rosters.empty), f"lists of runs' members who are gone: {len(rosters.empty):,}"):
            await left.purge(rosters.empty)


def _gone(left: Sequence[object]) -> str:
    return "1 task that is gone" if len(left) == 1 else f"{len(left):,} tasks that are gone"
