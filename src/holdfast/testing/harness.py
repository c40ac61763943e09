"""`app.testing()`: a fresh memory store and a virtual clock for the length of a block, through the real path.

    with app.testing() as t:
        send.using(delay=3600).enqueue(7)
        t.assert_enqueued(send, user_id=7)
        t.advance(hours=1)
        t.drain()

Submits are validated, encoded, claimed, run, settled and retried as in production; only time and place are different.
Subscribers are told; what is meant for webhooks and wake-up transports stays in the outbox, to be looked at.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from holdfast.clock import from_micros
from holdfast.declared import Submitter
from holdfast.errors import HoldfastError
from holdfast.model.limits import WHOLE_STORE
from holdfast.model.query import TaskFilter
from holdfast.model.schedule import NewSchedule
from holdfast.model.task import Task, TaskStatus
from holdfast.portal import Portal, in_event_loop
from holdfast.stores.open import store_factory
from holdfast.testing.virtual_clock import VirtualClock

if TYPE_CHECKING:
    from holdfast.app import Holdfast

JUMPS_MOST = 10_000
_FROM_A_PARENT = object()


class Testing:
    """Both a plain and an async context manager; whatever waits has an `a…` twin for async tests."""

    __test__ = False  # pytest: this is no test class

    def __init__(self, app: Holdfast) -> None:
        self._app = app
        self.clock = VirtualClock()
        self._factory = store_factory("memory://", clock=self.clock)
        self._begun: set[str] = set()

    def __enter__(self) -> Testing:
        self._before = self._app.connections.exchange(self._factory)
        self._outside_before, self._app.outside = self._app.outside, False
        return self

    def __exit__(self, *_: object) -> None:
        self._app.outside = self._outside_before
        self._app.connections.restore(self._before)

    async def __aenter__(self) -> Testing:
        return self.__enter__()

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    # Time

    def now(self) -> datetime:
        return from_micros(self.clock.micros())

    def advance(self, span: timedelta | None = None, /, **parts: float) -> None:
        """Move the clock: `advance(hours=1)`, `advance(timedelta(minutes=5))`.

        Schedules of the app begin before it moves; the next drain fires those that are due by then.
        """
        self._begin_schedules()
        self.clock.advance((span or timedelta()) + timedelta(**parts))

    def _begin_schedules(self) -> None:
        new = [schedule for schedule in self._app.registry.schedules if schedule.name not in self._begun]
        if new:
            portal = Portal()
            portal.wait(lambda: self._declare(new))
            portal.close()

    async def _declare(self, schedules: Sequence[NewSchedule]) -> None:
        store = self._factory()
        for new in schedules:
            await store.declare_schedule(new)
            self._begun.add(new.name)

    # Work

    def drain(self) -> int:
        """Run everything that is due, and every retry when its time comes; how many attempts ran.

        The clock jumps to the next retry or snooze, and to when a rate lets the next task start, as often as needed;
        never to work that was scheduled for later.
        """
        if in_event_loop():
            raise RuntimeError("drain() would block the running event loop; use `await adrain()` here")
        return asyncio.run(self.adrain())

    async def adrain(self) -> int:
        before = await self._attempts()
        for _ in range(JUMPS_MOST):
            await self._app.worker(concurrency=10, poll_interval=0.01).arun(until_idle=True)
            coming = [at for at in (await self._next_retry(), await self._next_token()) if at is not None]
            if not coming:
                return await self._attempts() - before
            self.clock.advance_to(min(coming))
        raise HoldfastError(f"drain() has jumped {JUMPS_MOST:,} times; some task snoozes or retries for ever")

    async def _next_retry(self) -> datetime | None:
        """A name that nobody declared is snoozed for ever, and a paused queue holds what is due: neither counts."""
        now, registry = self.now(), self._app.registry
        queued = [task for task in await self.atasks() if task.status is TaskStatus.QUEUED and task.attempt > 0]
        later = (task.run_at for task in queued if task.run_at > now and registry.get(task.name) is not None)
        return min(later, default=None)

    async def _next_token(self) -> datetime | None:
        """When the next task may start of those that are due and held by a rate."""
        now, store = self.now(), self._factory()
        due = {task.queue for task in await self.atasks() if task.status is TaskStatus.QUEUED and task.run_at <= now}
        infos = await store.queues()
        open_due = due.difference(info.name for info in infos if info.paused)
        held = (
            info.next_start_at for info in infos if info.name in open_due or (info.name == WHOLE_STORE and open_due)
        )
        return min((at for at in held if at is not None), default=None)

    async def _attempts(self) -> int:
        return sum(task.attempt for task in await self.atasks())

    # Look

    def tasks(self) -> list[Task]:
        """Every task of this block, oldest first."""
        if in_event_loop():
            raise RuntimeError("tasks() would block the running event loop; use `await atasks()` here")
        return asyncio.run(self.atasks())

    async def atasks(self) -> list[Task]:
        store = self._factory()
        return list(reversed(await store.page(TaskFilter(limit=1_000_000))))

    def assert_enqueued(self, task: Submitter[..., Any] | str, /, **arguments: Any) -> Task:
        """The newest task of this name whose call has these arguments, by parameter name; AssertionError if none."""
        return self._one(self.tasks(), task, arguments)

    async def aassert_enqueued(self, task: Submitter[..., Any] | str, /, **arguments: Any) -> Task:
        return self._one(await self.atasks(), task, arguments)

    def refute_enqueued(self, task: Submitter[..., Any] | str, /, **arguments: Any) -> None:
        """AssertionError if there is such a task."""
        self._none(self.tasks(), task, arguments)

    async def arefute_enqueued(self, task: Submitter[..., Any] | str, /, **arguments: Any) -> None:
        self._none(await self.atasks(), task, arguments)

    def _one(self, tasks: list[Task], wanted: Submitter[..., Any] | str, arguments: dict[str, Any]) -> Task:
        found = self._found(tasks, wanted, arguments)
        if found is None:
            seen = "".join(f"\n  {task.name} with {self._named_arguments(task)}" for task in tasks[-20:])
            raise AssertionError(
                f"no task {self._name(wanted)!r} with {arguments} was enqueued; there is:{seen or ' nothing at all'}"
            )
        return found

    def _none(self, tasks: list[Task], unwanted: Submitter[..., Any] | str, arguments: dict[str, Any]) -> None:
        found = self._found(tasks, unwanted, arguments)
        if found is not None:
            raise AssertionError(f"task {found.id} was enqueued: {found.name} with {found.payload}")

    def _found(self, tasks: list[Task], wanted: Submitter[..., Any] | str, arguments: dict[str, Any]) -> Task | None:
        name = self._name(wanted)
        for task in reversed(tasks):
            if task.name == name and arguments.items() <= self._named_arguments(task).items():
                return task
        return None

    def _name(self, task: Submitter[..., Any] | str) -> str:
        return task if isinstance(task, str) else task.task_name

    def _named_arguments(self, task: Task) -> dict[str, Any]:
        """A call's arguments by parameter name, defaults included; by position where the handler is not known.

        What a task gets from its parents is not part of its call, and left out.
        """
        inputs = [_FROM_A_PARENT] * len(task.payload.get("inputs", []))
        args, kwargs = [*inputs, *task.payload["args"]], task.payload["kwargs"]
        definition = self._app.registry.get(task.name)
        if definition is None:
            named = {str(position): value for position, value in enumerate(args)} | dict(kwargs)
        else:
            bound = definition.signature.bind(*args, **kwargs)
            bound.apply_defaults()
            named = bound.arguments
        return {name: value for name, value in named.items() if value is not _FROM_A_PARENT}
