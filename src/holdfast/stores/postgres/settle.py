"""The ends of attempts: settled by their owners, or recorded as lost (contract section 7, C6.5).

The fence is checked and the end is written in one transaction. What an outcome leads to is decided in
policy/verdict.py; only the plain completion, which leads nowhere else, has a shorter way (completion.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.errors import HoldfastError
from holdfast.model.claim import Lease
from holdfast.model.outcome import Completed, Expired, Recorded, Settlement
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Settled
from holdfast.policy import refusals
from holdfast.policy.backoff import Rng
from holdfast.policy.verdict import verdict
from holdfast.stores.postgres import datasets, records, submit
from holdfast.stores.postgres.fronts import Queued
from holdfast.stores.postgres.leases import lost
from holdfast.stores.postgres.rows import Record
from holdfast.stores.postgres.tx import Tx


class Settling:
    """Settlements for which policy is asked."""

    def __init__(self, tx: Tx, found: dict[str, Record], rng: Rng) -> None:
        self._tx = tx
        self._rng = rng
        self._records = found
        self._changed: dict[str, Record] = {}

    async def lock_datasets(self, settlements: Sequence[Settlement]) -> None:
        """Of all of them at once, in one order, before anything else that others may wait for."""
        written = {output.dataset for one in settlements if self._writes(one) for output in one.outputs}
        if written:
            await datasets.lock(self._tx, written)

    def _writes(self, settlement: Settlement) -> bool:
        record = self._records.get(settlement.lease.task_id)
        held = record is not None and record.holds(settlement.lease, self._tx.now)
        return held and isinstance(settlement.outcome, Completed)

    async def answer(self, settlement: Settlement) -> Settled | HoldfastError:
        lease = settlement.lease
        record = self._records.get(lease.task_id)
        if record is None:
            return refusals.not_found(lease.task_id)
        if not record.holds(lease, self._tx.now):
            return self._replayed(record, settlement) or lost(record, lease)
        return await self._follow_verdict(record, settlement)

    def _replayed(self, record: Record, settlement: Settlement) -> Settled | None:
        replayed = _replayed(record, settlement.lease, settlement.outcome.kind)
        if replayed is not None and isinstance(settlement.outcome, Recorded) and record.dependents:
            self._tx.resumed.append(record.id)
        return replayed

    async def save(self) -> None:
        await records.save(self._tx, self._changed.values())

    async def _follow_verdict(self, record: Record, settlement: Settlement) -> Settled | HoldfastError:
        tx, actor, outcome = self._tx, str(record.claimed_by), settlement.outcome
        transition = verdict(record.facts, outcome, self._rng)
        if settlement.follow_ups and transition.status is TaskStatus.COMPLETED:
            try:
                submit.check(settlement.follow_ups)
                _, fresh = await submit.add(tx.session, settlement.follow_ups, tx.now)
            except HoldfastError as refused:
                return refused
            tx.queued += [Queued(new.queue, new.priority, new.run_at or tx.now) for new in fresh if not new.parents]
        for emitted in settlement.emitted:
            tx.note(record.id, emitted.kind, actor, {"attempt": record.attempt, **emitted.data})
        if transition.status is TaskStatus.COMPLETED:
            await datasets.write(tx, record.id, settlement.outputs)
        records.write(tx, record, transition, actor)
        record.settled_token, record.settled_as = settlement.lease.token, outcome.kind
        record.settled_status = transition.status
        self._changed[record.id] = record
        return Settled(record.id, record.attempt, transition.status)


async def settle(tx: Tx, settlements: Sequence[Settlement], rng: Rng) -> list[Settled | HoldfastError]:
    found = await records.load(tx, [settlement.lease.task_id for settlement in settlements])
    settling = Settling(tx, found, rng)
    await settling.lock_datasets(settlements)
    answers = [await settling.answer(settlement) for settlement in settlements]
    await settling.save()
    return answers


async def reap(tx: Tx, limit: int, since: datetime, actor: str, rng: Rng) -> list[Settled]:
    expired = await records.load_expired(tx, limit, since)
    settled = [reap_one(tx, record, actor, rng) for record in expired]
    await records.save(tx, expired)
    return settled


def reap_one(tx: Tx, record: Record, actor: str, rng: Rng) -> Settled:
    """An expired attempt is recorded as lost; save() is still to follow."""
    transition = verdict(record.facts, Expired(), rng)
    records.write(tx, record, transition, actor)
    return Settled(record.id, record.attempt, transition.status)


def _replayed(record: Record, lease: Lease, kind: str) -> Settled | None:
    """The first answer once more, for a settle whose reply was lost."""
    recorded = (record.attempt, record.settled_token, record.settled_as)
    if recorded != (lease.attempt, lease.token, kind) or record.settled_status is None:
        return None
    return Settled(lease.task_id, lease.attempt, record.settled_status)
