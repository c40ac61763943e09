"""The acts of an operator: on tasks, and on queues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.model.limits import NO_LIMITS, Limits
from holdfast.model.transition import Amended, Change
from holdfast.policy import refusals
from holdfast.policy.amendment import amendment
from holdfast.policy.limits import changed
from holdfast.stores.memory.admitting import ensure_text
from holdfast.stores.memory.leasing import Leasing
from holdfast.stores.memory.record import Record


class Amending(Leasing):
    # Tasks

    def amend(self, change: Change, task_ids: Sequence[str], actor: str, now: int) -> list[Amended | HoldfastError]:
        answers = [self._amend_one(change, task_id, actor, now) for task_id in task_ids]
        self._advancing.inline(now)
        return answers

    def _amend_one(self, change: Change, task_id: str, actor: str, now: int) -> Amended | HoldfastError:
        record = self._state.records.get(task_id)
        if record is None:
            return refusals.not_found(task_id)
        before = record.status, record.cancel_requested_at
        if record.expired(now) and change is not Change.DELETE:
            if change is Change.CANCEL:
                self._state.touch(record)
                record.cancel_requested_at = now
            self.reap_one(record, actor, now)
            if change is Change.RELEASE:
                return Amended(task_id, record.status, changed=True)
        amended = amendment(
            change,
            task_id,
            record.status,
            record.facts,
            record.claimed_by,
            pending=record.pending,
            blocked_by=self._state.blocked_by(record) if change is Change.REQUEUE else None,
        )
        if isinstance(amended, HoldfastError):
            return amended
        if change is Change.DELETE:
            return self._delete_one(record, actor, now)
        if amended is not None:
            self._state.write(record, amended, now, actor)
        return Amended(task_id, record.status, changed=(record.status, record.cancel_requested_at) != before)

    def _delete_one(self, record: Record, actor: str, now: int) -> Amended | HoldfastError:
        if self._state.live_run(record):
            return refusals.live_run(record.new.id, str(record.new.run_id))
        self._state.remove(record)
        self._state.bury(record, now, actor)
        return Amended(record.new.id, None, changed=True)

    # Queues

    def pause(self, queue: str, paused: bool) -> None:
        ensure_text(queue)
        self._state.pause(queue, paused=paused)

    def limit(self, queue: str, changes: Mapping[str, Any], now: int) -> Limits:
        ensure_text(queue)
        line = self._state.lines.get(queue)
        made = changed(queue, NO_LIMITS if line is None else line.limits, changes)
        self._state.limit(queue, made, now)
        return made
