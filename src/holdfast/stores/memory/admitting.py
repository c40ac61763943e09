"""What is submitted becomes records: what is new of it, what is refused, what is kept."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.clock import span_micros, to_micros
from holdfast.model.task import NewTask, Submitted
from holdfast.model.transition import Fact
from holdfast.policy import refusals
from holdfast.policy.backoff import Rng
from holdfast.policy.repetition import admitted
from holdfast.stores.memory.advancing import Advancing
from holdfast.stores.memory.record import Record
from holdfast.stores.memory.state import MemoryState


class Admitting:
    def __init__(self, state: MemoryState, rng: Rng) -> None:
        self._state = state
        self._rng = rng
        self._advancing = Advancing(state)

    def submit(self, tasks: Sequence[NewTask], now: int) -> list[Submitted]:
        answers, fresh = self._admitted(tasks)
        self._add(fresh, now)
        return answers

    def fire(self, name: str, last_fired_at: datetime, upto: datetime, tasks: Sequence[NewTask], now: int) -> bool:
        if not self._state.schedules.stands_at(name, last_fired_at):
            return False
        _, fresh = self._admitted(tasks)
        self._state.schedules.move(name, upto)
        self._add(fresh, now)
        return True

    def known_id(self, task_id: str) -> NewTask | None:
        """What was submitted under this id, if the task still exists."""
        return _submitted(self._state.records.get(task_id))

    def known_key(self, key: str) -> NewTask | None:
        """What was submitted with this idempotency key, if the task still exists."""
        return _submitted(self._state.keys.get(key))

    def _admitted(self, tasks: Sequence[NewTask]) -> tuple[list[Submitted], list[NewTask]]:
        """The answers and what is new, or the refusal of all; nothing is written yet."""
        ensure_text(tasks)
        answers, fresh = admitted(tasks, by_id=self.known_id, by_key=self.known_key)
        self._state.datasets.check_pins(fresh)
        return answers, fresh

    def _add(self, fresh: Sequence[NewTask], now: int) -> None:
        for new in fresh:
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
