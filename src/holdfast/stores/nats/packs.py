"""Submits that are too large for one atomic step: written down whole first, then unpacked.

    1  one step: all that is submitted, in a few messages (`pack.<first id>.<n>`), its keys, and the row
       `r.pack.<first id>`. From here on it is submitted.
    2  steps of some hundred tasks: each task in its place. Replicas keep these aside.
    3  the row is taken away: all of them are claimable at once. What was packed is purged.

Whoever finds a row goes on with it: each step expects what the one before has left, and is passed over where it was
done. A submit is acknowledged after the third.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from holdfast.clock import span_micros, to_micros
from holdfast.errors import NotSupported
from holdfast.model.task import NewTask
from holdfast.policy import workflow
from holdfast.stores.nats.changes import Rule
from holdfast.stores.nats.images import Kept, Spec, born, encode
from holdfast.stores.nats.messages import MARKER_TTL, Plan
from holdfast.stores.nats.reader import Reader
from holdfast.stores.nats.rows import PACK, PackRow
from holdfast.stores.nats.specs import Known
from holdfast.stores.nats.subjects import Subjects
from holdfast.stores.nats.unreadable import understood
from holdfast.stores.nats.wire import BATCH_MOST, Conflict, Message, Wire

PART_BYTES = 256 << 10
STEP_TASKS = 240
"""Four messages each at most."""


class Packed(msgspec.Struct, array_like=True, gc=False, frozen=True):
    spec: Spec
    run_at: int
    dependents: int = 0


_part = msgspec.msgpack.Decoder(list[Packed])


def births(fresh: Sequence[NewTask], now: int) -> list[Kept]:
    dependents = workflow.dependents(fresh)
    records = []
    for new in fresh:
        run_at = now + span_micros(new.delay_seconds) if new.run_at is None else to_micros(new.run_at)
        record = born(new, run_at, now)
        record.dependents = dependents.get(new.id, 0)
        records.append(record)
    return records


class Packs:
    def __init__(self, wire: Wire, reader: Reader, subjects: Subjects) -> None:
        self._wire = wire
        self._reader = reader
        self._subjects = subjects

    async def submit(self, pack: str, records: Sequence[Kept], known: Known) -> None:
        await self._ensure_new(records, known)
        plan = Plan(self._subjects, known)
        for number, part in enumerate(_parts(records)):
            plan.keep(self._subjects.packed(pack, number), encode(part))
        for record in records:
            plan.key(record.new)
        for queue in dict.fromkeys(record.new.queue for record in records):
            if queue not in known.queues:
                plan.rule(queue, encode(Rule()), 0)
        plan.row(PACK, pack, PackRow(records[0].created_at, len(records)), 0)
        if plan.size > BATCH_MOST:
            raise NotSupported(
                f"{len(records):,} tasks with so many idempotency keys, or so large, cannot be submitted in one atomic "
                f"step of {BATCH_MOST:,} messages on NATS; submit them in parts"
            )
        await self._wire.write(plan.messages)
        await self.finish(pack)

    async def _ensure_new(self, records: Sequence[Kept], known: Known) -> None:
        """Unpacking takes a task that is there for unpacked: so none may be there before."""
        for task_id in known.left_ids:
            await self._reader.purge(self._subjects.events(task_id))
        if await self._reader.last([self._subjects.spec(record.new.id) for record in records]):
            raise Conflict

    async def finish(self, pack: str) -> bool:
        """Go on with what somebody has begun; False if there is nothing."""
        subject = self._subjects.table(PACK, pack)
        row = (await self._reader.last([subject])).get(subject)
        if row is None or not row.body:
            return False
        async for found in self._reader.every(self._subjects.packed(pack)):
            for step in _steps(understood(_part.decode, found)):
                await self._unpack(pack, step)
        try:
            await self._wire.write([Message(subject, b"", row.seq, MARKER_TTL)])
        except Conflict:
            return True  # somebody else was faster, and has done all of it
        await self._reader.purge(self._subjects.packed(pack))
        return True

    async def ids(self, pack: str) -> list[str]:
        """Of the tasks in it, as long as it is not unpacked."""
        parts = self._reader.every(self._subjects.packed(pack))
        return [one.spec.new.id async for found in parts for one in understood(_part.decode, found)]

    async def _unpack(self, pack: str, packed: Sequence[Packed]) -> None:
        while True:
            found = await self._reader.last([self._subjects.spec(one.spec.new.id) for one in packed])
            missing = [one for one in packed if self._subjects.spec(one.spec.new.id) not in found]
            if not missing:
                return
            plan = Plan(self._subjects, Known())
            for one in missing:
                record = born(one.spec.new, one.run_at, one.spec.created_at)
                record.pack, record.dependents = pack, one.dependents
                plan.birth(record, keyed=False)
            try:
                await self._wire.write(plan.messages)
            except Conflict:
                continue


def _parts(records: Sequence[Kept]) -> Iterator[list[Packed]]:
    part: list[Packed] = []
    size = 0
    for record in records:
        new = record.new
        part.append(Packed(Spec(new, record.created_at, record.status.value), record.run_at, record.dependents))
        size += len(new.payload) + len(new.meta or "") + 40 * len(new.parents) + 300
        if size > PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part


def _steps(packed: Sequence[Packed]) -> Iterator[Sequence[Packed]]:
    for at in range(0, len(packed), STEP_TASKS):
        yield packed[at : at + STEP_TASKS]
