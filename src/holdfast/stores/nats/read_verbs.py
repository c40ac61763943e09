"""What the NATS store shows: a task and its events from the stream itself (history.py), lists and counts by its
indexes.

Live tasks are listed from the replica, ended ones by the names of their places, walking back in time (walk.py); counts
read nothing at all.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime

from holdfast.clock import from_micros, to_micros
from holdfast.errors import InvalidTask
from holdfast.model.event import Event
from holdfast.model.query import QueueInfo, TaskFilter
from holdfast.model.task import TERMINAL, Task, TaskStatus
from holdfast.policy.limits import next_start
from holdfast.stores.memory.record import oldest_due, shown
from holdfast.stores.nats import walk
from holdfast.stores.nats.handle import Handle
from holdfast.stores.nats.history import History
from holdfast.stores.nats.images import Image, Kept, Spec, decode_image, made
from holdfast.stores.nats.reader import Found
from holdfast.stores.nats.sheets import last_id
from holdfast.stores.nats.unreadable import understood
from holdfast.stores.portions import portions

PAGE_READ = 200
ENDED_READ = 80


class ReadVerbs(Handle):
    async def get(self, task_id: str) -> Task | None:
        await self._ledger.ready()
        return (await self._tasks([task_id])).get(task_id)

    async def find(self, idempotency_key: str) -> Task | None:
        await self._ledger.ready()
        subject = self._ledger.subjects.idem(idempotency_key)
        reader = self._ledger.reader
        holder = (await reader.last([subject])).get(subject)
        if holder is None:
            holder = next(iter(await reader.missed(await reader.subjects(subject))), None)
        return await self.get(holder.body.decode()) if holder is not None and holder.body else None

    async def _tasks(self, task_ids: Sequence[str], *, last: bool = False) -> dict[str, Task]:
        """Those of them that exist; `last`: and for which nobody waits."""
        homes = await self._ledger.homes(task_ids)
        if last:
            homes = {task_id: one for task_id, one in homes.items() if not understood(decode_image, one).dependents}
        specs = await self._ledger.specs.of(list(homes)) if homes else {}
        return {task_id: _shown(task_id, found, specs[task_id]) for task_id, found in homes.items()}

    async def ended(self, task_ids: Sequence[str], *, limit: int) -> dict[str, Task | None]:
        await self._ledger.ready()
        await self._ledger.hear_ends()
        answer: dict[str, Task | None] = {}
        for part in portions(list(dict.fromkeys(task_ids)), ENDED_READ):
            homes = await self._ledger.homes(part)
            answer |= dict.fromkeys(task_id for task_id in part if task_id not in homes)
            over = {task_id: one for task_id, one in homes.items() if understood(decode_image, one).status.terminal}
            over = dict(list(over.items())[: max(0, limit - len(answer))])
            specs = await self._ledger.specs.of(list(over)) if over else {}
            answer |= {task_id: _shown(task_id, one, specs[task_id]) for task_id, one in over.items()}
        return answer

    # Lists

    async def page(self, wanted: TaskFilter) -> list[Task]:
        await self._ledger.ready()
        if wanted.after is not None and not await self._ledger.homes([wanted.after]):
            raise InvalidTask(f"`after` names task {wanted.after}, which does not exist; start from the first page")
        page: list[Task] = []
        async for part in self._listed(wanted):
            tasks = await self._tasks(part, last=wanted.last)
            page += [tasks[task_id] for task_id in part if task_id in tasks and _matches(tasks[task_id], wanted)]
            if len(page) >= wanted.limit:
                break
        return page[: wanted.limit]

    async def _listed(self, wanted: TaskFilter) -> AsyncIterator[Sequence[str]]:
        """Newest first; some may be listed in vain."""
        async with self._ledger.steady():
            waiting = set(self._live_ids(wanted))
        if wanted.status is None or wanted.status in TERMINAL:
            async for floor, found in self._ended_ids(wanted):
                waiting |= set(found)
                ready = {task_id for task_id in waiting if task_id >= floor}
                waiting -= ready
                for part in portions(_newest(ready, wanted.after), PAGE_READ):
                    yield part
        for part in portions(_newest(waiting, wanted.after), PAGE_READ):
            yield part

    def _live_ids(self, wanted: TaskFilter) -> list[str]:
        if wanted.finished_before is not None:
            return []
        return [
            task_id
            for task_id, record in self._ledger.replica.records.items()
            if (wanted.status is None or record.status is wanted.status)
            and (wanted.queue is None or record.new.queue == wanted.queue)
            and (wanted.name is None or record.new.name == wanted.name)
            and (wanted.run_id is None or record.new.run_id == wanted.run_id)
        ]

    async def _ended_ids(self, wanted: TaskFilter) -> AsyncIterator[tuple[str, Sequence[str]]]:
        """And down to where all of them have been given."""
        if wanted.run_id is not None:
            yield "", await self._ledger.members.ids(wanted.run_id)
            return
        async for floor, names in walk.ended(self._ledger, wanted):
            yield floor, [self._ledger.subjects.task_of(name) for name in names]

    async def oldest_due(self) -> dict[str, datetime]:
        async with self._ledger.steady():
            return oldest_due(self._ledger.replica.records.values(), self._ledger.clock.micros())

    async def queues(self) -> list[QueueInfo]:
        async with self._ledger.steady():
            replica, now = self._ledger.replica, self._ledger.clock.micros()
            ended = replica.ended_counts()
            return [self._queue_info(name, ended, now) for name in sorted(replica.lines)]

    def _queue_info(self, name: str, ended: dict[tuple[str, str], int], now: int) -> QueueInfo:
        replica = self._ledger.replica
        counts = {
            status.value: ended.get((name, status.value), 0) if status in TERMINAL else replica.counts[name, status]
            for status in TaskStatus
        }
        line = replica.lines[name]
        return QueueInfo(
            name=name,
            paused=line.paused,
            counts={status: count for status, count in counts.items() if count},
            limits=line.limits,
            next_start_at=next_start(line.limits, line.tat, now),
        )

    # Events

    async def events(self, task_id: str | None, *, after: int, limit: int) -> list[Event]:
        await self._ledger.ready()
        history = History(self._ledger)
        if task_id is None:
            return await history.of_all(max(after, 0), limit)
        return await history.of_task(task_id, max(after, 0), limit)

    async def last_event(self) -> int:
        await self._ledger.ready()
        return last_id(await self._ledger.stream.last())

    async def now(self) -> datetime:
        await self._ledger.ready()
        await self._ledger.stream.last()
        return from_micros(self._ledger.clock.micros())


def _newest(task_ids: set[str], after: str | None) -> list[str]:
    return sorted((one for one in task_ids if after is None or one < after), reverse=True)


def _shown(task_id: str, found: Found, spec: Spec) -> Task:
    image: Image = understood(decode_image, found)
    record: Kept = made(task_id, image, found.seq)
    record.new = spec.new
    return shown(record)


def _matches(task: Task, wanted: TaskFilter) -> bool:
    """It may have changed since it was listed."""
    return (
        (wanted.status is None or task.status is wanted.status)
        and (wanted.queue is None or task.queue == wanted.queue)
        and (wanted.name is None or task.name == wanted.name)
        and (wanted.run_id is None or task.run_id == wanted.run_id)
        and (
            wanted.finished_before is None
            or (task.finished_at is not None and to_micros(task.finished_at) < to_micros(wanted.finished_before))
        )
    )
