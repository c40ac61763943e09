"""Reads through a dispatcher. Its pages are bounded; whoever wants more gets it page by page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from holdfast.dispatcher import queries, wire, wire_flows
from holdfast.errors import TaskNotFound
from holdfast.model.event import Event
from holdfast.model.query import QueueInfo, TaskFilter
from holdfast.model.task import Task
from holdfast.stores.portions import portions
from holdfast.stores.remote.caller import Caller, pages
from holdfast.stores.remote.forms import nameable


class ReadVerbs(Caller):
    async def get(self, task_id: str) -> Task | None:
        try:
            return await self._ask("task", Task, task_id=task_id)
        except TaskNotFound:
            return None

    async def find(self, idempotency_key: str) -> Task | None:
        if not nameable(idempotency_key):
            return None
        try:
            return await self._ask("task_by_key", Task, queries.KeyQuery(key=idempotency_key))
        except TaskNotFound:
            return None

    async def ended(self, task_ids: Sequence[str], *, limit: int) -> dict[str, Task | None]:
        known = [task_id for task_id in task_ids if nameable(task_id)]
        found: dict[str, Task | None] = dict.fromkeys(set(task_ids).difference(known))
        for some in portions(known, wire.TASKS_MOST):
            if len(found) < limit:
                most = min(limit - len(found), wire.PAGE_MOST)
                answer = await self._ask("ended", wire.EndedAnswer, wire.EndedCall(ids=list(some), limit=most))
                found |= answer.tasks
        return found

    async def page(self, wanted: TaskFilter) -> list[Task]:
        async def page(most: int, found: Sequence[Task]) -> list[Task]:
            after = found[-1].id if found else wanted.after
            query = queries.TasksQuery(**msgspec.structs.asdict(wanted) | {"limit": most, "after": after})
            return (await self._ask("tasks", wire.TasksAnswer, query)).tasks

        return await pages(wanted.limit, page)

    async def events(self, task_id: str | None, *, after: int, limit: int) -> list[Event]:
        route = "events" if task_id is None else "task_events"

        async def page(most: int, found: Sequence[Event]) -> list[Event]:
            query = queries.EventsQuery(after=found[-1].id if found else after, limit=most)
            return (await self._ask(route, wire.EventsAnswer, query, task_id=task_id or "")).events

        return await pages(limit, page)

    async def last_event(self) -> int:
        return (await self._ask("events", wire.EventsAnswer, queries.EventsQuery(after="now", limit=1))).after

    async def oldest_due(self) -> dict[str, datetime]:
        return (await self._ask("queues", wire_flows.QueuesAnswer)).oldest_due

    async def queues(self) -> list[QueueInfo]:
        return (await self._ask("queues", wire_flows.QueuesAnswer)).queues

    async def now(self) -> datetime:
        return (await self._ask("now", wire.NowAnswer)).now
