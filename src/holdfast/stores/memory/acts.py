"""What every verb that changes tasks does to the tables: plain functions of what was asked and what time it is.

No lock, no clock, no announcement: those are the affair of the store that acts. Another store that keeps its tasks in
a MemoryState too, and writes elsewhere what was changed there, acts by the same rules (see MemoryState.touch).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.clock import from_micros
from holdfast.errors import HoldfastError
from holdfast.model.claim import Lease
from holdfast.model.outcome import Settlement
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Fact, Settled
from holdfast.model.workflow import Step
from holdfast.policy import refusals
from holdfast.policy.verdict import verdict
from holdfast.stores.memory.amending import Amending
from holdfast.stores.memory.leasing import lost
from holdfast.stores.memory.record import Record


class Acts(Amending):
    """Submits are in admitting.py, claims and reaping in leasing.py, an operator's acts in amending.py."""

    # While an attempt runs

    def report(self, lease: Lease, kind: str, data: Mapping[str, Any], now: int) -> None:
        record = self._held(lease, now)
        self._state.note(record, Fact(kind, {"attempt": record.attempt, **data}), now, str(record.claimed_by))

    def record_step(self, lease: Lease, name: str, result: str, now: int) -> Step:
        record = self._held(lease, now)
        self._state.touch(record)
        return record.keep(Step(name, result, from_micros(now)))

    def _held(self, lease: Lease, now: int) -> Record:
        record = self._known(lease.task_id)
        if not record.holds(lease, now):
            raise lost(record, lease)
        return record

    # Its end

    def settle(self, settlements: Sequence[Settlement], now: int) -> list[Settled | HoldfastError]:
        answers = [self._settle_one(settlement, now) for settlement in settlements]
        self._advancing.inline(now)
        return answers

    def _settle_one(self, settlement: Settlement, now: int) -> Settled | HoldfastError:
        lease, outcome = settlement.lease, settlement.outcome
        record = self._state.records.get(lease.task_id)
        if record is None:
            return refusals.not_found(lease.task_id)
        if not record.holds(lease, now):
            return _replayed(record, lease, outcome.kind) or lost(record, lease)
        actor = str(record.claimed_by)
        transition = verdict(record.facts, outcome, self._rng)
        follow_ups = settlement.follow_ups if transition.status is TaskStatus.COMPLETED else ()
        try:
            _, fresh = self._admitted(follow_ups) if follow_ups else ((), ())
        except HoldfastError as refused:
            return refused
        for emitted in settlement.emitted:
            self._state.note(record, Fact(emitted.kind, {"attempt": record.attempt, **emitted.data}), now, actor)
        self._state.write(record, transition, now, actor)
        record.settled_token, record.settled_as = lease.token, outcome.kind
        record.settled_status = transition.status
        if transition.status is TaskStatus.COMPLETED:
            self._state.datasets.write(settlement.outputs, lease.task_id, now)
        self._add(fresh, now)
        return Settled(lease.task_id, lease.attempt, transition.status)

    # What that leaves to be done

    def advance(self, limit: int, now: int) -> int:
        return self._advancing.advance(now, limit)


def _replayed(record: Record, lease: Lease, kind: str) -> Settled | None:
    """The first answer once more, for a settle whose reply was lost."""
    recorded = (record.attempt, record.settled_token, record.settled_as)
    if recorded != (lease.attempt, lease.token, kind) or record.settled_status is None:
        return None
    return Settled(lease.task_id, lease.attempt, record.settled_status)
