"""ENQUEUE, and every other question or order a program has for the store. The producer's door.

Async throughout; the plain forms of the public face come here through the portal. What may be submitted is checked
in calls.py, before this is reached.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

from holdfast import ids
from holdfast.calls import Call
from holdfast.connections import Connections
from holdfast.errors import HoldfastError, InvalidTask, StoreClosed
from holdfast.model.event import Event
from holdfast.model.query import TaskFilter
from holdfast.model.task import NewTask, Submitted, Task
from holdfast.model.transition import Amended, Change
from holdfast.policy import refusals
from holdfast.policy.admission import BATCH_LONGEST
from holdfast.portal import Portal
from holdfast.stores.protocol import Joining, Store, StoreFactory
from holdfast.wakeups.bell import Bell

T = TypeVar("T")

AMEND_BATCH = 500
FIRST_LOOK_SECONDS, LAST_LOOK_SECONDS = 0.01, 0.5


class Client:
    def __init__(self, connections: Connections, *, actor: str = "client") -> None:
        self._connections = connections
        self._portal = Portal()
        self._joins: tuple[StoreFactory | None, Joining | None] = None, None
        self.actor = actor

    @property
    def store(self) -> Store:
        return self._connections.store()

    def plainly(self, call: Callable[[], Coroutine[Any, Any, T]], *, plain: str) -> T:
        try:
            return self._portal.run(call, plain=plain)
        except CancelledError:
            words = f"the app was closed while {plain}() was under way; what it asked for may have happened"
            raise StoreClosed(words) from None

    async def submit(self, calls: Sequence[Call[Any]], connection: Any = None) -> list[Submitted]:
        """Store all of these calls or none; durable when this returns, or when the connection's transaction commits."""
        tasks = _new_tasks(calls)
        if connection is None:
            return await self.store.submit(tasks) if tasks else []
        joined = (await self._learn_to_join()).into(connection)
        return await joined.asubmit(tasks) if tasks else []

    def submit_plainly(self, calls: Sequence[Call[Any]], connection: Any, *, plain: str) -> list[Submitted]:
        """The same for plain code; with a plain connection also in a running event loop, which that blocks anyway."""
        if connection is None:
            return self.plainly(lambda: self.submit(calls), plain=plain)
        tasks = _new_tasks(calls)
        joining = self._joining()
        joined = (self._portal.wait(self._learn_to_join) if joining is None else joining).into(connection)
        if joined.awaited:
            raise RuntimeError(f"{plain}() cannot wait for an async connection; use `await a{plain}(…)` here")
        return joined.submit(tasks) if tasks else []

    def _joining(self) -> Joining | None:
        """What is known of the store that is in use now."""
        factory, joining = self._joins
        return joining if factory is self._connections.factory else None

    async def _learn_to_join(self) -> Joining:
        joining = self._joining()
        if joining is None:
            factory = self._connections.factory
            joining = await self.store.joining()
            self._joins = factory, joining
        return joining

    async def task(self, task_id: str) -> Task:
        task = await self.store.get(task_id)
        if task is None:
            raise refusals.not_found(task_id)
        return task

    async def events(self, task_id: str, *, after: int = 0, limit: int = 10_000) -> list[Event]:
        if not isinstance(task_id, str):
            raise refusals.not_found(str(task_id))  # to a store, None would mean the events of all tasks
        events = await self.store.events(task_id, after=after, limit=limit)
        if not events and after == 0:
            await self.task(task_id)
        return events

    async def amend(self, change: Change, task_id: str) -> Amended:
        """One act on one task; a refusal is raised."""
        (answer,) = await self.store.amend(change, [task_id], actor=self.actor)
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def amend_all(
        self, change: Change, wanted: TaskFilter, *, progress: Callable[[int], None] | None = None
    ) -> int:
        """The same act on every task that matches, in bounded batches; how many changed.

        What is refused is passed over: tasks move on while this runs.
        """
        changed = 0
        async for page in self.pages(wanted):
            answers = await self.store.amend(change, [task.id for task in page], actor=self.actor)
            changed += sum(1 for answer in answers if isinstance(answer, Amended) and answer.changed)
            if progress is not None:
                progress(changed)
        return changed

    async def pages(self, wanted: TaskFilter) -> AsyncIterator[list[Task]]:
        """Everything that matches, newest first, page by page.

        The next page is read before this one is handed out: its tasks may be deleted by then, and with them the place
        from which to read on.
        """
        page = await self._page(wanted, None)
        while page:
            following = await self._page(wanted, page[-1].id) if len(page) == AMEND_BATCH else []
            yield page
            page = following

    async def _page(self, wanted: TaskFilter, after: str | None) -> list[Task]:
        return await self.store.page(
            TaskFilter(
                status=wanted.status,
                queue=wanted.queue,
                name=wanted.name,
                run_id=wanted.run_id,
                finished_before=wanted.finished_before,
                limit=AMEND_BATCH,
                after=after,
            )
        )

    async def ended(self, task_id: str, *, timeout: float | None) -> Task:
        """The task, once it has ended. Looks when something happened in the store, and now and then besides."""
        async with asyncio.timeout(timeout):
            with Bell(self.store.wakeups) as bell:
                pause = FIRST_LOOK_SECONDS
                while True:
                    task = await self.task(task_id)
                    if task.status.terminal:
                        return task
                    await bell.wait(pause)
                    pause = min(2 * pause, LAST_LOOK_SECONDS)

    async def close(self) -> None:
        await self._connections.close()

    def shut(self) -> None:
        self._portal.close()


def _new_tasks(calls: Sequence[Call[Any]]) -> list[NewTask]:
    if len(calls) > BATCH_LONGEST:
        raise InvalidTask(f"{len(calls):,} tasks in one call; submit at most {BATCH_LONGEST:,} at once")
    for call in calls:
        if not isinstance(call, Call):
            kind = type(call).__name__
            raise TypeError(f"enqueue_many takes calls, made with task.s(…) or app.s(name, …), not {kind}")
    made = ids.task_ids(len(calls))
    return [call.new_task(task_id) for call, task_id in zip(calls, made, strict=True)]
