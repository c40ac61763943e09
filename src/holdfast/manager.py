"""TaskManager: a small facade over any store for people who drive their own loop (contract section 17).

It follows the Tasks design: claims by id and by worker, no backoff, the budget compared with attempts. Beneath it are
the store's own leases and fences; the manager keeps its claims alive until they are settled or it is closed, so that no
claim expires under a living process.
"""

from __future__ import annotations

import asyncio
from builtins import list as List  # noqa: N812  this class has a method named list
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from holdfast import ids
from holdfast.errors import (
    HoldfastError,
    InvalidTask,
    LeaseLost,
    MaxAttemptsReached,
    StoreClosed,
    TaskNotClaimed,
    WrongWorker,
)
from holdfast.events.bus import Bus
from holdfast.events.log import write
from holdfast.health import StoreHealth
from holdfast.maintenance.advancer import Advancer
from holdfast.maintenance.reaper import Reaper
from holdfast.model.backoff import IMMEDIATELY
from holdfast.model.claim import Claim, ClaimRequest
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Outcome, Settlement
from holdfast.model.output import Output
from holdfast.model.task import NewTask, Task, TaskStatus
from holdfast.model.transition import Change
from holdfast.outputs import Rows, Written, output_of, pinned_version, read_rows
from holdfast.policy import refusals
from holdfast.policy.admission import (
    MAX_ATTEMPTS_HIGHEST,
    checked_int,
    checked_name,
    checked_worker_id,
    json_text,
    maybe_name,
)
from holdfast.policy.error_text import MESSAGE_CHARS, error_info, safe_text
from holdfast.policy.outputs import checked_pins
from holdfast.runtime.lease_keeper import LeaseKeeper
from holdfast.runtime.side_loop import SideLoop
from holdfast.settings import Defaults
from holdfast.stores.open import store_factory
from holdfast.stores.protocol import Store

PAGE = 1000


class TaskManager:
    """Open it with `await TaskManager.open(url)`; async only."""

    def __init__(self, store: Store, keeper: LeaseKeeper, side: SideLoop, defaults: Defaults) -> None:
        self._store = store
        self._keeper = keeper
        self._side = side
        self._defaults = defaults
        self._claims: dict[str, Claim] = {}
        self._closed = False

    @classmethod
    async def open(cls, url: str = "memory://", **store_options: Any) -> TaskManager:
        factory = store_factory(url, **store_options)
        claims: dict[str, Claim] = {}

        def forget(token: str, _why: str) -> None:
            for task_id, claim in list(claims.items()):
                if claim.lease.token == token:
                    del claims[task_id]

        loop = asyncio.get_running_loop()
        keeper = LeaseKeeper(tell=loop.call_soon_threadsafe, lost=forget, cancel_requested=lambda _token: None)
        bus = Bus(write)
        actor = f"manager-{ids.nonce()}"
        store = factory()
        rescuers = [] if store.capabilities.maintained else [Reaper(actor, bus).run, Advancer(actor).run]
        parts = [keeper.run, *rescuers]
        side = SideLoop(factory, bus, StoreHealth(bus), enter=_nothing, parts=parts, leave=_nothing)
        await side.start()
        manager = cls(store, keeper, side, Defaults.from_environment())
        manager._claims = claims
        return manager

    async def submit(
        self,
        payload: Any,
        *,
        name: str = "task",
        idempotency_key: str | None = None,
        max_attempts: int | None = None,
        queue: str = "default",
        inputs: Mapping[str, int] | None = None,
        id: str | None = None,  # noqa: A002  the field's own name
    ) -> str:
        """The id of the new task, or of the one that has this idempotency key already."""
        self._ensure_open()
        if payload is None:
            raise InvalidTask("a task needs a payload; None is not one")
        budget = self._defaults.max_attempts if max_attempts is None else max_attempts
        new = NewTask(
            id=ids.task_id() if id is None else checked_name(id, what="the id"),
            name=checked_name(name, what="the task name"),
            payload=json_text(payload, what="the payload"),
            queue=checked_name(queue, what="the queue"),
            max_attempts=checked_int(budget, 0, MAX_ATTEMPTS_HIGHEST, what="max_attempts"),
            backoff=IMMEDIATELY,
            idempotency_key=maybe_name(idempotency_key, what="the idempotency key"),
            inputs=checked_pins(inputs or {}),
        )
        (submitted,) = await self._store.submit([new])
        return submitted.id

    async def claim(self, task_id: str, worker_id: str) -> Task:
        """The task, now running under this worker; the same again for a claim that it holds already."""
        self._ensure_open()
        checked_worker_id(worker_id)
        held = self._claims.get(task_id)
        if held is None or held.worker_id != worker_id or not await self._still_held(held):
            request = ClaimRequest(
                worker_id=worker_id,
                claim_id=ids.token(),
                task_id=task_id,
                lease_seconds=self._defaults.lease_seconds,
            )
            (claim,) = (await self._store.claim(request)).claims
            self._claims[task_id] = claim
            self._keeper.hold([claim])
        return await self.get(task_id)

    async def _still_held(self, claim: Claim) -> bool:
        task = await self._store.get(claim.task_id)
        return task is not None and task.status is TaskStatus.RUNNING and task.attempt == claim.lease.attempt

    async def input(self, task_id: str, dataset: str) -> List[tuple[str, Any]]:
        """The rows of the version that this task has pinned, by key."""
        self._ensure_open()
        version = pinned_version(await self._store.pinned(task_id), dataset, f"task {task_id}")
        return await read_rows(self._store, dataset, version)

    async def complete(
        self,
        task_id: str,
        result: Any = None,
        *,
        worker_id: str,
        outputs: Mapping[str, Rows] | None = None,
        mode: Literal["append", "replace"] = "append",
    ) -> Task:
        """`outputs`: rows by name of the dataset, committed with the completion or not at all."""
        written = Written()
        for dataset, rows in (outputs or {}).items():
            written.add(output_of(dataset, rows, mode))
        return await self._settle(
            task_id, worker_id, Completed(json_text(result, what="the result")), written.outputs()
        )

    async def fail(self, task_id: str, error: BaseException | str, *, worker_id: str) -> Task:
        """Back to the queue at once, or a dead letter once the attempts are spent."""
        task = await self.get(task_id)
        spent = task.max_attempts != 0 and task.attempt >= task.max_attempts
        info = (
            error_info(error) if isinstance(error, BaseException) else ErrorInfo(safe_text(str(error), MESSAGE_CHARS))
        )
        return await self._settle(task_id, worker_id, Failed(info, unrecoverable=spent))

    async def _settle(self, task_id: str, worker_id: str, outcome: Outcome, outputs: tuple[Output, ...] = ()) -> Task:
        self._ensure_open()
        checked_worker_id(worker_id)
        task = await self.get(task_id)
        if task.status.terminal:
            raise refusals.ended(task_id, task.status)
        if task.status is not TaskStatus.RUNNING:
            raise TaskNotClaimed(f"task {task_id} is {task.status.value}; claim it before you settle it")
        if task.claimed_by != worker_id:
            raise WrongWorker(f"task {task_id} is claimed by {task.claimed_by!r}, not by {worker_id!r}")
        claim = self._claims.get(task_id)
        if claim is None:
            raise LeaseLost(f"task {task_id} was claimed by {worker_id!r} through another manager; settle it there")
        (answer,) = await self._store.settle([Settlement(claim.lease, outcome, outputs=outputs)])
        self._let_go(claim)
        if isinstance(answer, HoldfastError):
            raise answer
        return await self.get(task_id)

    async def retry(self, task_id: str) -> Task:
        """Back to the queue, by anyone: a running task loses its lease, a failed one gets its next attempt."""
        self._ensure_open()
        task = await self.get(task_id)
        if task.status is TaskStatus.COMPLETED:
            raise refusals.ended(task_id, task.status)
        if task.max_attempts != 0 and task.attempt >= task.max_attempts:
            raise MaxAttemptsReached(f"task {task_id} has used its {task.max_attempts} attempts")
        change = Change.RELEASE if task.status is TaskStatus.RUNNING else Change.REQUEUE
        (answer,) = await self._store.amend(change, [task_id], actor="manager")
        if isinstance(answer, HoldfastError):
            raise answer
        claim = self._claims.get(task_id)
        if claim is not None:
            self._let_go(claim)
        return await self.get(task_id)

    def _let_go(self, claim: Claim) -> None:
        self._keeper.drop(claim)
        self._claims.pop(claim.task_id, None)

    async def get(self, task_id: str) -> Task:
        self._ensure_open()
        task = await self._store.get(task_id)
        if task is None:
            raise refusals.not_found(task_id)
        return task

    async def get_by_idempotency_key(self, key: str) -> Task:
        self._ensure_open()
        task = await self._store.find(key)
        if task is None:
            raise refusals.not_found(f"with idempotency key {key!r}")
        return task

    async def list(self, status: str | None = None) -> List[Task]:
        """Every task with this status, newest first."""
        self._ensure_open()
        from holdfast.desks import task_filter

        found: List[Task] = []
        wanted = task_filter(status=status, limit=PAGE)
        while True:
            page = await self._store.page(wanted)
            found.extend(page)
            if len(page) < PAGE:
                return found
            wanted = msgspec.structs.replace(wanted, after=page[-1].id)

    async def delete(self, task_id: str) -> None:
        self._ensure_open()
        (answer,) = await self._store.amend(Change.DELETE, [task_id], actor="manager")
        if isinstance(answer, HoldfastError):
            raise answer

    async def close(self) -> None:
        """Claims that are still held run out from here on; nothing is settled."""
        if not self._closed:
            self._closed = True
            await self._side.stop(timeout=10)
            await self._store.close()

    async def __aenter__(self) -> TaskManager:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _ensure_open(self) -> None:
        if self._closed:
            raise StoreClosed("this TaskManager was closed; open another one")


async def _nothing(*_: object) -> None:
    pass
