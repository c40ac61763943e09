"""Look and act: `app.tasks`, `app.dlq`, `app.queues`, `app.runs`, `app.workers`, `app.schedules`.

Every call twice, plain and async. Reads are plain lists of records; what an act may do is decided by the store
(contract sections 8 and 18).
"""

from __future__ import annotations

from builtins import list as List  # noqa: N812  these classes have a method named list
from collections.abc import Callable, Coroutine
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, Literal, TypedDict, TypeVar, Unpack

from holdfast import ids
from holdfast.calls import Call
from holdfast.client import Client
from holdfast.errors import InvalidTask
from holdfast.handle import Handle
from holdfast.model.event import Event
from holdfast.model.limits import WHOLE_STORE, Limits, Rate
from holdfast.model.query import QueueInfo, TaskFilter, WorkerInfo
from holdfast.model.schedule import Schedule, Timing
from holdfast.model.task import Task, TaskStatus
from holdfast.model.transition import Change
from holdfast.model.workflow import RunInfo
from holdfast.policy import firing, refusals
from holdfast.policy.admission import checked_int, checked_name, maybe_name
from holdfast.settings import Span, seconds

T = TypeVar("T")
Progress = Callable[[int], None]


class _Omitted(Enum):
    """An argument that was not given, where None means something."""

    OMITTED = "unchanged"

    def __repr__(self) -> str:
        return self.value


_OMITTED = _Omitted.OMITTED


class Desk:
    def __init__(self, client: Client) -> None:
        self._client = client

    def _plainly(self, call: Callable[[], Coroutine[Any, Any, T]], plain: str) -> T:
        return self._client.plainly(call, plain=plain)


class TasksDesk(Desk):
    def list(
        self,
        status: str | None = None,
        queue: str | None = None,
        name: str | None = None,
        run_id: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> List[Task]:
        """Newest first; `after` is the id of the last task of the page before."""
        return self._plainly(lambda: self.alist(status, queue, name, run_id, limit, after), "list")

    async def alist(
        self,
        status: str | None = None,
        queue: str | None = None,
        name: str | None = None,
        run_id: str | None = None,
        limit: int = 100,
        after: str | None = None,
    ) -> List[Task]:
        wanted = task_filter(status=status, queue=queue, name=name, run_id=run_id, limit=limit, after=after)
        return await self._client.store.page(wanted)

    def get(self, task_id: str) -> Task:
        return self._plainly(lambda: self.aget(task_id), "get")

    async def aget(self, task_id: str) -> Task:
        return await self._client.task(task_id)

    def events(self, task_id: str) -> List[Event]:
        return self._plainly(lambda: self.aevents(task_id), "events")

    async def aevents(self, task_id: str) -> List[Event]:
        return await self._client.events(task_id)

    def count(self, queue: str | None = None) -> dict[str, int]:
        """Tasks per status, of one queue or of all."""
        return self._plainly(lambda: self.acount(queue), "count")

    async def acount(self, queue: str | None = None) -> dict[str, int]:
        counts = dict.fromkeys((status.value for status in TaskStatus), 0)
        for info in await self._client.store.queues():
            if queue is None or info.name == queue:
                for status, number in info.counts.items():
                    counts[status] += number
        return counts

    def cancel(self, task_id: str) -> None:
        """A waiting or queued task ends at once; a running one is asked first."""
        self._plainly(lambda: self.acancel(task_id), "cancel")

    async def acancel(self, task_id: str) -> None:
        await self._client.amend(Change.CANCEL, task_id)

    def retry(self, task_id: str) -> None:
        """A failed or canceled task is queued again with a fresh budget."""
        self._plainly(lambda: self.aretry(task_id), "retry")

    async def aretry(self, task_id: str) -> None:
        await self._client.amend(Change.REQUEUE, task_id)

    def delete(self, task_id: str) -> None:
        """An ended task goes, with its events and its idempotency key."""
        self._plainly(lambda: self.adelete(task_id), "delete")

    async def adelete(self, task_id: str) -> None:
        await self._client.amend(Change.DELETE, task_id)

    def release(self, task_id: str) -> None:
        """By force: ends the lease of a running task; its worker is fenced off and the task is queued again."""
        self._plainly(lambda: self.arelease(task_id), "release")

    async def arelease(self, task_id: str) -> None:
        await self._client.amend(Change.RELEASE, task_id)


class DeadLetterDesk(Desk):
    """The tasks in state `failed`."""

    def list(
        self, queue: str | None = None, name: str | None = None, limit: int = 100, after: str | None = None
    ) -> List[Task]:
        return self._plainly(lambda: self.alist(queue, name, limit, after), "list")

    async def alist(
        self, queue: str | None = None, name: str | None = None, limit: int = 100, after: str | None = None
    ) -> List[Task]:
        wanted = task_filter(status="failed", queue=queue, name=name, limit=limit, after=after)
        return await self._client.store.page(wanted)

    def requeue(self, task_id: str) -> None:
        self._plainly(lambda: self.arequeue(task_id), "requeue")

    async def arequeue(self, task_id: str) -> None:
        await self._client.amend(Change.REQUEUE, task_id)

    def requeue_all(
        self, queue: str | None = None, name: str | None = None, *, progress: Progress | None = None
    ) -> int:
        """Every dead letter that matches is queued again; how many. Works in bounded batches."""
        return self._plainly(lambda: self.arequeue_all(queue, name, progress=progress), "requeue_all")

    async def arequeue_all(
        self, queue: str | None = None, name: str | None = None, *, progress: Progress | None = None
    ) -> int:
        wanted = task_filter(status="failed", queue=queue, name=name)
        return await self._client.amend_all(Change.REQUEUE, wanted, progress=progress)

    def purge(
        self, older_than: Span | datetime | None = None, queue: str | None = None, *, progress: Progress | None = None
    ) -> int:
        """Delete dead letters that ended before `older_than` (an age or an instant; None: all); how many."""
        return self._plainly(lambda: self.apurge(older_than, queue, progress=progress), "purge")

    async def apurge(
        self, older_than: Span | datetime | None = None, queue: str | None = None, *, progress: Progress | None = None
    ) -> int:
        if older_than is not None and not isinstance(older_than, datetime):
            age = timedelta(seconds=seconds(older_than, what="older_than"))
            older_than = await self._client.store.now() - age
        wanted = task_filter(status="failed", queue=queue, finished_before=older_than)
        return await self._client.amend_all(Change.DELETE, wanted, progress=progress)


class QueuesDesk(Desk):
    def list(self) -> List[QueueInfo]:
        return self._plainly(self.alist, "list")

    async def alist(self) -> List[QueueInfo]:
        return await self._client.store.queues()

    def pause(self, queue: str) -> None:
        """No worker claims from it any more; what runs goes on. Stored, for all workers."""
        self._plainly(lambda: self.apause(queue), "pause")

    async def apause(self, queue: str) -> None:
        await self._client.store.pause(_one_queue(queue), paused=True)

    def resume(self, queue: str) -> None:
        self._plainly(lambda: self.aresume(queue), "resume")

    async def aresume(self, queue: str) -> None:
        await self._client.store.pause(_one_queue(queue), paused=False)

    def limit(
        self,
        queue: str,
        *,
        max_running: int | _Omitted | None = _OMITTED,
        rate: str | Rate | _Omitted | None = _OMITTED,
        burst: int | _Omitted | None = _OMITTED,
        max_running_per_key: int | _Omitted | None = _OMITTED,
    ) -> Limits:
        """What holds from now on for a queue, or for the whole store (`*`): all workers follow within a second.

        What is omitted stays as it is; None clears it. `rate` is a text such as "100/s" or "500/15m".
        """
        given = {"max_running": max_running, "rate": rate, "burst": burst, "max_running_per_key": max_running_per_key}
        return self._plainly(lambda: self._limit(queue, given), "limit")

    async def alimit(
        self,
        queue: str,
        *,
        max_running: int | _Omitted | None = _OMITTED,
        rate: str | Rate | _Omitted | None = _OMITTED,
        burst: int | _Omitted | None = _OMITTED,
        max_running_per_key: int | _Omitted | None = _OMITTED,
    ) -> Limits:
        given = {"max_running": max_running, "rate": rate, "burst": burst, "max_running_per_key": max_running_per_key}
        return await self._limit(queue, given)

    async def _limit(self, queue: str, given: dict[str, Any]) -> Limits:
        changes = {name: value for name, value in given.items() if value is not _OMITTED}
        return await self._client.store.limit(checked_name(queue, what="the queue"), changes)


def _one_queue(queue: str) -> str:
    if checked_name(queue, what="the queue") == WHOLE_STORE:
        raise InvalidTask("'*' is the whole store, which can be limited but not paused; pause its queues one by one")
    return queue


class RunsDesk(Desk):
    def list(self, limit: int = 100, after: str | None = None) -> List[RunInfo]:
        """Newest first; `after` is the id of the last run of the page before."""
        return self._plainly(lambda: self.alist(limit, after), "list")

    async def alist(self, limit: int = 100, after: str | None = None) -> List[RunInfo]:
        checked_int(limit, 1, 10_000, what="limit")
        return await self._client.store.runs(limit=limit, after=maybe_name(after, what="after"))

    def get(self, run_id: str) -> RunInfo:
        """Its status, and its tasks per status; RunNotFound."""
        return self._plainly(lambda: self.aget(run_id), "get")

    async def aget(self, run_id: str) -> RunInfo:
        return await self._client.run(run_id)

    def cancel(self, run_id: str, *, progress: Progress | None = None) -> int:
        """Every task of it that has not ended is canceled, or asked if it runs; how many. Works in bounded batches."""
        return self._plainly(lambda: self.acancel(run_id, progress=progress), "cancel")

    async def acancel(self, run_id: str, *, progress: Progress | None = None) -> int:
        return await self._client.cancel_run(run_id, progress=progress)


class WorkersDesk(Desk):
    def list(self) -> List[WorkerInfo]:
        return self._plainly(self.alist, "list")

    async def alist(self) -> List[WorkerInfo]:
        return await self._client.store.workers()


Missed = Literal["skip", "once", "all"]


class TimingOptions(TypedDict, total=False):
    """When a schedule fires, besides its cron expression; the defaults are those of timing_given()."""

    every: Span | None
    timezone: str
    missed: Missed
    missed_most: int
    jitter: Span


class SchedulesDesk(Desk):
    """Those that workers declared, and those put here at run time, which every worker fires."""

    def put(
        self,
        name: str,
        call: Call[Any],
        cron: str | None = None,
        **options: Unpack[TimingOptions],
    ) -> Schedule:
        """Make a schedule of this call, or change it; one that fires at other times than before begins anew."""
        timing = timing_given(cron, **options)
        return self._plainly(lambda: self._put(name, call, timing), "put")

    async def aput(
        self,
        name: str,
        call: Call[Any],
        cron: str | None = None,
        **options: Unpack[TimingOptions],
    ) -> Schedule:
        timing = timing_given(cron, **options)
        return await self._put(name, call, timing)

    async def _put(self, name: str, call: Call[Any], timing: Timing) -> Schedule:
        if not isinstance(call, Call):
            raise TypeError(
                f"a schedule takes a call, made with task.s(…) or app.s(name, …), not {type(call).__name__}"
            )
        new = firing.new_schedule(name, timing, call.new_task(""), declared=False)
        return await self._client.store.declare_schedule(new)

    def list(self) -> List[Schedule]:
        """By name."""
        return self._plainly(self.alist, "list")

    async def alist(self) -> List[Schedule]:
        return await self._client.store.schedules()

    def get(self, name: str) -> Schedule:
        return self._plainly(lambda: self.aget(name), "get")

    async def aget(self, name: str) -> Schedule:
        for schedule in await self.alist():
            if schedule.name == name:
                return schedule
        raise refusals.schedule_not_found(name)

    def run(self, name: str) -> Handle[Any]:
        """Submit its task now, besides the plan, which stays as it is; also while it is paused."""
        return self._plainly(lambda: self.arun(name), "run")

    async def arun(self, name: str) -> Handle[Any]:
        schedule = await self.aget(name)
        store = self._client.store
        new = firing.task_now(schedule, await store.now(), ids.task_id())
        (answer,) = await store.submit([new])
        return Handle(self._client, answer.id, created=answer.created)

    def pause(self, name: str) -> None:
        """It fires no more, for all workers, until it is resumed. What it submitted goes on."""
        self._plainly(lambda: self.apause(name), "pause")

    async def apause(self, name: str) -> None:
        await self._client.store.pause_schedule(name, paused=True)

    def resume(self, name: str) -> None:
        """It goes on from now; what would have fired meanwhile is not missed."""
        self._plainly(lambda: self.aresume(name), "resume")

    async def aresume(self, name: str) -> None:
        await self._client.store.pause_schedule(name, paused=False)

    def delete(self, name: str) -> None:
        """It is forgotten; its tasks stay. One that code declares comes back with the next worker that starts."""
        self._plainly(lambda: self.adelete(name), "delete")

    async def adelete(self, name: str) -> None:
        await self._client.store.delete_schedule(name)


def timing_given(
    cron: str | None,
    *,
    every: Span | None = None,
    timezone: str = "UTC",
    missed: Missed = "once",
    missed_most: int = 100,
    jitter: Span = 0,
) -> Timing:
    return firing.timing_of(
        cron,
        None if every is None else seconds(every, what="every"),
        timezone=timezone,
        jitter=seconds(jitter, what="jitter"),
        missed=missed,
        missed_most=missed_most,
    )


def task_filter(
    *,
    status: str | None = None,
    queue: str | None = None,
    name: str | None = None,
    run_id: str | None = None,
    finished_before: datetime | None = None,
    limit: int = 100,
    after: str | None = None,
) -> TaskFilter:
    try:
        wanted = None if status is None else TaskStatus(status)
    except ValueError:
        known = ", ".join(status.value for status in TaskStatus)
        raise InvalidTask(f"there is no status {status!r}; there are: {known}") from None
    return TaskFilter(
        status=wanted,
        queue=maybe_name(queue, what="the queue"),
        name=maybe_name(name, what="the task name"),
        run_id=maybe_name(run_id, what="the run id"),
        finished_before=finished_before,
        limit=checked_int(limit, 1, 10_000, what="limit"),
        after=after,
    )
