"""ENQUEUE, and every other question or order a program has for the store. The producer's door.

Async throughout; the plain forms of the public face come here through the portal. What may be submitted is checked
in calls.py and workflows/, before this is reached.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import CancelledError
from typing import Any, TypeVar

import msgspec

from holdfast.connections import Connections
from holdfast.errors import HoldfastError, IdempotencyConflict, InvalidTask, StoreClosed
from holdfast.events.bus import Bus
from holdfast.health import StoreHealth
from holdfast.model.event import Event
from holdfast.model.outbox import NewSink
from holdfast.model.query import TaskFilter
from holdfast.model.task import NewTask, Submitted, Task, TaskStatus
from holdfast.model.transition import Amended, Change
from holdfast.model.workflow import RunInfo
from holdfast.policy import refusals
from holdfast.policy.workflow import LIVE
from holdfast.portal import Portal
from holdfast.sinks.declaring import declare
from holdfast.stores.protocol import Joining, Store, StoreFactory
from holdfast.waiting import Waiter, run_ended

T = TypeVar("T")

log = logging.getLogger("holdfast")

AMEND_BATCH = 500


class Client:
    def __init__(
        self, connections: Connections, *, actor: str = "client", sinks: Callable[[], Sequence[NewSink]] = tuple
    ) -> None:
        self._connections = connections
        self._portal = Portal()
        self._waiters: dict[Store, Waiter] = {}
        self._health = StoreHealth(Bus())
        """Of what is waited for; nobody is told."""
        self._joins: tuple[StoreFactory | None, Joining | None] = None, None
        self.actor = actor
        self._sinks = sinks
        """Whom the program's code wants to be told."""
        self._declared: tuple[StoreFactory | None, Sequence[NewSink]] = None, ()

    @property
    def store(self) -> Store:
        return self._connections.store()

    def plainly(self, call: Callable[[], Coroutine[Any, Any, T]], *, plain: str) -> T:
        try:
            return self._portal.run(call, plain=plain)
        except CancelledError:
            words = f"the app was closed while {plain}() was under way; what it asked for may have happened"
            raise StoreClosed(words) from None

    async def submit(self, tasks: Sequence[NewTask], connection: Any = None) -> list[Submitted]:
        """Store all of these tasks or none; durable when this returns, or when the connection's transaction commits."""
        if connection is None:
            await self._ensure_declared()
            return await self.store.submit(tasks) if tasks else []
        joined = (await self._learn_to_join()).into(connection)
        return await joined.asubmit(tasks) if tasks else []

    async def _ensure_declared(self) -> None:
        """Once per process and store. Not where a submit joins a transaction: on SQLite that would wait for itself."""
        sinks, factory = self._sinks(), self._connections.factory
        if sinks and self._declared != (factory, sinks):
            await declare(self.store, sinks, _warn_undeclared)
            self._declared = factory, sinks

    async def declare_sinks(self) -> None:
        """The same on demand; what cannot be declared is raised."""
        await declare(self.store, self._sinks(), _raise_undeclared)

    async def declare_sink(self, sink: NewSink) -> None:
        """One that no code declares."""
        await declare(self.store, [sink], _raise_undeclared)

    def submit_plainly(self, tasks: Sequence[NewTask], connection: Any, *, plain: str) -> list[Submitted]:
        """The same for plain code; with a plain connection also in a running event loop, which that blocks anyway."""
        if connection is None:
            return self.plainly(lambda: self.submit(tasks), plain=plain)
        joining = self._joining()
        joined = (self._portal.wait(self._learn_to_join) if joining is None else joining).into(connection)
        if joined.awaited:
            raise RuntimeError(f"{plain}() cannot wait for an async connection; use `await a{plain}(…)` here")
        return joined.submit(tasks) if tasks else []

    async def submit_run(self, tasks: Sequence[NewTask], connection: Any = None) -> tuple[str, bool]:
        """Store the tasks of a workflow; its run's id, and whether it is new. Where a key is known, so is its run."""
        first = (await self.submit(tasks, connection))[0]
        return (_run_of(tasks[0]), True) if first.created else (await self._known_run(first.id), False)

    def submit_run_plainly(self, tasks: Sequence[NewTask], connection: Any, *, plain: str) -> tuple[str, bool]:
        first = self.submit_plainly(tasks, connection, plain=plain)[0]
        if first.created:
            return _run_of(tasks[0]), True
        return self._portal.wait(lambda: self._known_run(first.id)), False

    async def _known_run(self, task_id: str) -> str:
        known = await self.store.get(task_id)
        if known is None:
            raise InvalidTask(
                f"the workflow has the idempotency key of task {task_id}, which was submitted in a transaction that is "
                "still open; keep the run that you got for it"
            )
        if known.run_id is None:
            raise IdempotencyConflict(
                f"the workflow's idempotency key belongs to task {task_id} ({known.name}), which is of no run"
            )
        return known.run_id

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
        return await self.store.page(msgspec.structs.replace(wanted, limit=AMEND_BATCH, after=after))

    async def ended(self, task_id: str, *, timeout: float | None) -> Task:
        """The task, once it has ended. All who wait on this event loop share their looks at the store."""
        store = self.store
        waiter = self._waiters.setdefault(store, Waiter(store, self._health))
        try:
            async with asyncio.timeout(timeout):
                task = await waiter.ended(task_id)
        except TimeoutError as late:
            why = "the store is away" if self._health.away else f"`holdfast tasks why {task_id}` says why"
            raise TimeoutError(f"task {task_id} has not ended within {timeout} s; {why}") from late
        finally:
            if waiter.idle:
                self._waiters.pop(store, None)
        if task is None:
            raise refusals.not_found(task_id)
        return task

    async def run(self, run_id: str) -> RunInfo:
        info = await self.store.run(run_id)
        if info is None:
            raise refusals.run_not_found(run_id)
        return info

    async def run_ended(self, run_id: str, *, timeout: float | None) -> RunInfo:
        """The run, once nothing of it can run any more."""
        try:
            async with asyncio.timeout(timeout):
                await run_ended(self.store, run_id, self._health)
                return await self._health.persist(lambda: self.run(run_id))
        except TimeoutError as late:
            how = f"`holdfast runs show {run_id}` shows how far it has come"
            raise TimeoutError(f"run {run_id} has not ended within {timeout} s; {how}") from late

    async def run_tasks(self, run_id: str, *, last: bool = False) -> list[Task]:
        """In the order of submission; `last`: only those that no other waits for."""
        pages = [page async for page in self.pages(TaskFilter(run_id=run_id, last=last))]
        return [task for page in reversed(pages) for task in reversed(page)]

    async def failed_of(self, run_id: str) -> Task | None:
        """A task of this run that failed for good: the newest."""
        found = await self.store.page(TaskFilter(run_id=run_id, status=TaskStatus.FAILED, limit=1))
        return found[0] if found else None

    async def cancel_run(self, run_id: str, *, progress: Callable[[int], None] | None = None) -> int:
        """Cancel every member that has not ended; how many, those counted that run and were asked.

        Newest first, or a member that runs in spite of its parents' failure would begin when they are canceled. Again
        until there is nothing to do: a member may be promoted while this goes on.
        """
        await self.run(run_id)
        changed, before = 0, -1
        while changed > before:
            before = changed
            for status in LIVE:
                told = None if progress is None else _counted_from(progress, changed)
                wanted = TaskFilter(run_id=run_id, status=status)
                changed += await self.amend_all(Change.CANCEL, wanted, progress=told)
        return changed

    async def close(self) -> None:
        await self._connections.close()

    def shut(self) -> None:
        self._portal.close()


def _warn_undeclared(sink: str, error: HoldfastError) -> None:
    log.warning("sink.failed sink=%r error=%r; it is not declared, and will not be told", sink, str(error))


def _raise_undeclared(_sink: str, error: HoldfastError) -> None:
    raise error


def _run_of(task: NewTask) -> str:
    assert task.run_id is not None, "a plan gives all its tasks a run"
    return task.run_id


def _counted_from(progress: Callable[[int], None], done: int) -> Callable[[int], None]:
    return lambda number: progress(done + number)
