"""What every verb of the memory store begins with: the lock, the clock, and who may go on at all."""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from holdfast import ids
from holdfast.clock import span_micros, to_micros
from holdfast.errors import HoldfastError, StoreClosed, StoreUnavailable
from holdfast.model.claim import Lease
from holdfast.model.task import NewTask, Submitted
from holdfast.model.transition import Fact
from holdfast.policy import refusals
from holdfast.policy.backoff import Rng
from holdfast.policy.repetition import admitted
from holdfast.stores.memory.advancing import Advancing
from holdfast.stores.memory.record import Record
from holdfast.stores.memory.state import MemoryState


class Handle:
    def __init__(self, state: MemoryState, *, name: str = "", rng: Rng = ids.JITTER) -> None:
        self._state = state
        self._advancing = Advancing(state)
        self._rng = rng
        self._closed = False
        self.label = f"memory://{name}"
        self.wakeups = self.endings = (state.hub,)

    def _now(self) -> int:
        """Every verb starts here, with the lock held: may it go on, and what time is it?"""
        if self._closed:
            raise StoreClosed(f"{self.label} was closed; open it again to go on")
        if os.getpid() != self._state.pid:
            raise StoreUnavailable(
                f"{self.label} lives in process {self._state.pid} and this is process {os.getpid()}; "
                "use a SQLite or PostgreSQL URL to share tasks between processes"
            )
        self._state.ensure_here()
        return self._state.clock.micros()

    def _admitted(self, tasks: Sequence[NewTask]) -> tuple[list[Submitted], list[NewTask]]:
        """The answers and what is new, or the refusal of all; nothing is written yet."""
        ensure_text(tasks)
        answers, fresh = admitted(
            tasks,
            by_id=lambda task_id: _submitted(self._state.records.get(task_id)),
            by_key=lambda key: _submitted(self._state.keys.get(key)),
        )
        self._state.datasets.check_pins(fresh)
        return answers, fresh

    def _add(self, new: NewTask, now: int) -> None:
        run_at = now + span_micros(new.delay_seconds) if new.run_at is None else to_micros(new.run_at)
        record = self._state.add(new, run_at, now)
        data = {"name": new.name, "queue": new.queue, "status": record.status.value}
        self._state.note(record, Fact("task.enqueued", data), now, "client")

    def _known(self, task_id: str) -> Record:
        record = self._state.records.get(task_id)
        if record is None:
            raise refusals.not_found(task_id)
        return record


def ensure_text(*given: object) -> None:
    """Refuses what a store with a file could not keep."""
    try:
        msgspec.json.encode(given)
    except UnicodeEncodeError:
        raise refusals.not_text() from None


def _submitted(record: Record | None) -> NewTask | None:
    return None if record is None else record.new


def lost(record: Record, lease: Lease) -> HoldfastError:
    return refusals.lease_lost(lease, refusals.why_lost(lease, status=record.status, attempt=record.attempt))
