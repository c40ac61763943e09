"""What the memory store shows of its tasks, queues and events."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from holdfast.clock import from_micros, to_micros
from holdfast.errors import InvalidTask
from holdfast.model.event import Event
from holdfast.model.query import QueueInfo, TaskFilter
from holdfast.model.task import Task, TaskStatus
from holdfast.policy.limits import next_start
from holdfast.stores.memory.handle import Handle
from holdfast.stores.memory.record import Record, oldest_due, shown


class ReadVerbs(Handle):
    # Reads

    async def get(self, task_id: str) -> Task | None:
        with self._state.lock:
            self._now()
            record = self._state.records.get(task_id)
            return None if record is None else shown(record)

    async def find(self, idempotency_key: str) -> Task | None:
        with self._state.lock:
            self._now()
            record = self._state.keys.get(idempotency_key)
            return None if record is None else shown(record)

    async def ended(self, task_ids: Sequence[str], *, limit: int) -> dict[str, Task | None]:
        with self._state.lock:
            self._now()
            unknown = [task_id for task_id in task_ids if task_id not in self._state.records]
            over = (record for task_id in task_ids if (record := self._state.ended.get(task_id)) is not None)
            return dict.fromkeys(unknown) | {record.new.id: shown(record) for record in islice(over, limit)}

    async def page(self, wanted: TaskFilter) -> list[Task]:
        with self._state.lock:
            self._now()
            below = None
            if wanted.after is not None:
                if wanted.after not in self._state.records:
                    raise InvalidTask(
                        f"`after` names task {wanted.after}, which does not exist; start from the first page"
                    )
                below = self._state.records[wanted.after].seq
            matching = (record for record in reversed(self._state.records.values()) if _matches(record, wanted, below))
            return [shown(record) for record in islice(matching, wanted.limit)]

    async def events(self, task_id: str | None, *, after: int, limit: int) -> list[Event]:
        with self._state.lock:
            self._now()
            every = self._state.events(after)
            return list(islice((event for event in every if task_id is None or event.task_id == task_id), limit))

    async def last_event(self) -> int:
        with self._state.lock:
            self._now()
            return len(self._state.log)

    async def oldest_due(self) -> dict[str, datetime]:
        with self._state.lock:
            now = self._now()
            return oldest_due(self._state.records.values(), now)

    async def queues(self) -> list[QueueInfo]:
        with self._state.lock:
            now = self._now()
            return [self._queue_info(name, now) for name in sorted(self._state.lines)]

    def _queue_info(self, name: str, now: int) -> QueueInfo:
        counts = {status.value: self._state.counts[name, status] for status in TaskStatus}
        shown_counts = {status: count for status, count in counts.items() if count}
        line = self._state.lines[name]
        return QueueInfo(
            name=name,
            paused=line.paused,
            counts=shown_counts,
            limits=line.limits,
            next_start_at=next_start(line.limits, line.tat, now),
        )

    async def now(self) -> datetime:
        with self._state.lock:
            return from_micros(self._now())


def _matches(record: Record, wanted: TaskFilter, below: int | None) -> bool:
    return (
        (below is None or record.seq < below)
        and (wanted.status is None or record.status == wanted.status)
        and (wanted.queue is None or record.new.queue == wanted.queue)
        and (wanted.name is None or record.new.name == wanted.name)
        and (wanted.run_id is None or record.new.run_id == wanted.run_id)
        and (not wanted.last or not record.awaited)
        and (
            wanted.finished_before is None
            or (record.finished_at is not None and record.finished_at < to_micros(wanted.finished_before))
        )
    )
