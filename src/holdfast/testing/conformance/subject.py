"""The store under test, fresh, in virtual time, with short words for what cases do with it again and again.

A store's author writes one function that makes a Subject; see the package's docstring.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, NamedTuple, TypeVar

from holdfast import ids
from holdfast.errors import HoldfastError
from holdfast.model.claim import Claim, Claimed, ClaimRequest, Extended, Lease
from holdfast.model.event import Event
from holdfast.model.outcome import Canceled, Completed, Emitted, ErrorInfo, Failed, Outcome, Settlement
from holdfast.model.output import Output
from holdfast.model.query import QueueInfo, TaskFilter, WorkerInfo
from holdfast.model.task import NewTask, Submitted, Task, TaskStatus
from holdfast.model.transition import Amended, Change, Settled
from holdfast.stores.protocol import Store, StoreFactory
from holdfast.testing.conformance import checks
from holdfast.testing.virtual_clock import VirtualClock

T = TypeVar("T")

EVERYTHING = 100_000
A_YEAR = 365 * 24 * 3600.0
WORKER = "worker-1"
REAPER = "reaper-1"
OPERATOR = "operator-1"

END: dict[TaskStatus, Outcome] = {
    TaskStatus.COMPLETED: Completed(),
    TaskStatus.FAILED: Failed(ErrorInfo("no such account"), unrecoverable=True),
    TaskStatus.CANCELED: Canceled(),
}
"""The outcome that ends an attempt, and its task, in this way."""


class Snapshot(NamedTuple):
    """All that a store shows of its tasks. Two that are equal mean that nothing has changed."""

    tasks: list[Task]
    events: list[Event]
    queues: list[QueueInfo]


class Subject:
    def __init__(
        self,
        open_handle: StoreFactory,
        clock: VirtualClock,
        *,
        outage: Callable[[], AbstractAsyncContextManager[None]] | None = None,
        vanish: Callable[[str], Awaitable[None]] | None = None,
        dispose: Callable[[], None] | None = None,
    ) -> None:
        """`open_handle` opens handles on one fresh, empty store whose clock is `clock`.

        `outage`: a context in which the store is away. `vanish`: takes away the evidence that an enrolled worker
        lives, as its being killed would. `dispose`: called at the end, with every handle closed.
        """
        self._open = open_handle
        self.clock = clock
        self._outage = outage
        self._vanish = vanish
        self._dispose = dispose
        self._handles: list[Store] = []

    async def __aenter__(self) -> Subject:
        await self.another_handle()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_handles()
        if self._dispose is not None:
            self._dispose()

    # Handles and abilities

    @property
    def store(self) -> Store:
        return self._handles[0]

    async def another_handle(self) -> Store:
        handle = self._open()
        self._handles.append(handle)
        return handle

    async def close_handles(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            await handle.close()

    def lacks(self, needs: Sequence[str]) -> str | None:
        """The first of these that the store or its harness cannot do."""
        abilities = {"outage": self._outage is not None, "vanish": self._vanish is not None}
        for need in needs:
            if not (abilities[need] if need in abilities else getattr(self.store.capabilities, need)):
                return need
        return None

    def outage(self) -> AbstractAsyncContextManager[None]:
        assert self._outage is not None
        return self._outage()

    async def vanish(self, worker_id: str) -> None:
        assert self._vanish is not None
        await self._vanish(worker_id)

    async def race(self, acts: Sequence[Callable[[Store], Awaitable[T]]]) -> list[T | HoldfastError]:
        """The answers of these acts: each in a thread, an event loop and a handle of its own, let go all at once."""
        barrier = threading.Barrier(len(acts), timeout=60)

        def enter(act: Callable[[Store], Awaitable[T]]) -> T | HoldfastError:
            return asyncio.run(self._race_one(barrier, act))

        with ThreadPoolExecutor(len(acts)) as threads:
            loop = asyncio.get_running_loop()
            return await asyncio.gather(*(loop.run_in_executor(threads, enter, act) for act in acts))

    async def _race_one(self, barrier: threading.Barrier, act: Callable[[Store], Awaitable[T]]) -> T | HoldfastError:
        handle = self._open()
        try:
            await self._line_up(handle, barrier)
            return await act(handle)
        except HoldfastError as refusal:
            return refusal
        finally:
            await handle.close()

    async def _line_up(self, handle: Store, barrier: threading.Barrier) -> None:
        try:
            await handle.now()
        except HoldfastError as refusal:
            barrier.abort()
            raise checks.Broken(f"a fresh store opens for many at once\n  got: {refusal!r}") from refusal
        barrier.wait()

    # The verbs, one thing at a time; a refusal is raised

    async def submit(self, **fields: Any) -> str:
        return (await self.submit_all(new_task(**fields)))[0].id

    async def submit_all(self, *tasks: NewTask) -> list[Submitted]:
        return await self.store.submit(tasks)

    async def claim_many(self, limit: int = EVERYTHING, **fields: Any) -> list[Claim]:
        return (await self.ask(limit=limit, **fields)).claims

    async def claim(self, task_id: str | None = None, **fields: Any) -> Claim:
        claims = (await self.ask(task_id=task_id, **fields)).claims
        checks.equal(len(claims), 1, "there was one task to claim")
        return claims[0]

    async def ask(self, **fields: Any) -> Claimed:
        return await self.store.claim(claim_request(**fields))

    async def extend(self, lease: Lease) -> Extended:
        return _only(await self.store.extend([lease]))

    async def settle(
        self,
        lease: Lease,
        outcome: Outcome,
        *,
        emitted: tuple[Emitted, ...] = (),
        follow_ups: tuple[NewTask, ...] = (),
        outputs: tuple[Output, ...] = (),
    ) -> Settled:
        return _only(await self.store.settle([Settlement(lease, outcome, emitted, follow_ups, outputs)]))

    async def reap(self, limit: int = EVERYTHING) -> list[Settled]:
        return await self.store.reap(limit=limit, actor=REAPER)

    async def amend(self, change: Change, task_id: str) -> Amended:
        return _only(await self.store.amend(change, [task_id], actor=OPERATOR))

    async def progress(self, lease: Lease) -> None:
        await self.store.report(lease, "task.progress", {"done": 1, "total": 3})

    # Reads

    async def get(self, task_id: str) -> Task:
        return checks.present(await self.store.get(task_id), f"the record of task {task_id}")

    async def events(self, task_id: str | None = None) -> list[Event]:
        return await self.store.events(task_id, after=0, limit=EVERYTHING)

    async def kinds(self, task_id: str) -> list[str]:
        return [event.kind for event in await self.events(task_id)]

    async def snapshot(self) -> Snapshot:
        tasks = await self.store.page(TaskFilter(limit=EVERYTHING))
        return Snapshot(tasks, await self.events(), await self.store.queues())

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """What is done inside changes no record, no event and no queue."""
        before = await self.snapshot()
        yield
        after = await self.snapshot()
        checks.equal(after.tasks, before.tasks, "no record changes")
        checks.equal(after.events, before.events, "no event is written")
        checks.equal(after.queues, before.queues, "no queue changes")

    async def refuses(self, call: Awaitable[Any], error: type[HoldfastError]) -> HoldfastError:
        """The refusal of `call`, which has changed nothing."""
        async with self.unchanged():
            return await checks.refused(call, error)

    # Ways through a life

    async def expire(self, task_id: str) -> None:
        """Let time pass until the lease of this running task has just expired."""
        self.clock.advance_to(checks.present((await self.get(task_id)).lease_expires_at, "the lease's end"))

    async def run_to(self, status: TaskStatus, **fields: Any) -> str:
        """A new task that has reached `status` by the shortest way."""
        if status is TaskStatus.WAITING:
            _, child = await self.submit_all(*with_parent(**fields))
            return child.id
        task_id = await self.submit(**fields)
        if status is TaskStatus.QUEUED:
            return task_id
        lease = (await self.claim(task_id)).lease
        if status is not TaskStatus.RUNNING:
            await self.settle(lease, END[status])
        return task_id


def new_task(**fields: Any) -> NewTask:
    return NewTask(**({"id": ids.task_id(), "name": "probe", "payload": "null"} | fields))


def with_parent(**fields: Any) -> tuple[NewTask, NewTask]:
    """A parent that is not due for long, in a queue and a state of its own, and a task that waits for it."""
    parent_id, task_id = ids.task_ids(2)
    run_id = fields.pop("run_id", parent_id)
    parent = new_task(id=parent_id, name="parent", queue="parents", run_id=run_id, delay_seconds=A_YEAR)
    return parent, new_task(**({"id": task_id} | fields), run_id=run_id, parents=(parent_id,))


def claim_request(**fields: Any) -> ClaimRequest:
    return ClaimRequest(**({"worker_id": WORKER, "claim_id": ids.token()} | fields))


def guessed(lease: Lease) -> Lease:
    """The right task and attempt with a token that nobody was given."""
    return Lease(lease.task_id, lease.attempt, ids.token())


def worker_info(worker_id: str = WORKER) -> WorkerInfo:
    return WorkerInfo(id=worker_id, host="here", pid=4711, queues=["default"], concurrency=8, version="1")


def _only(answers: Sequence[T | HoldfastError]) -> T:
    checks.equal(len(answers), 1, "one answer for one thing")
    answer = answers[0]
    if isinstance(answer, HoldfastError):
        raise answer
    return answer
