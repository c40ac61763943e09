"""Reads how the parents of a task have ended, after its claim and before its handler starts (contract C10.5).

An attempt whose parents are being read has its slot, its lease is kept, and it is stopped as one that runs is. What the
values are is decided in workflows/inputs.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from holdfast.executors.protocol import Ended, Job
from holdfast.health import StoreHealth
from holdfast.model.outcome import ErrorInfo, Failed, Outcome, Released
from holdfast.model.workflow import ParentEnd
from holdfast.policy.error_text import error_info
from holdfast.stores.protocol import WorkflowStore
from holdfast.workflows.inputs import Inputs, wanted

PAGE = 1000


class InputReader:
    def __init__(self, store: WorkflowStore, health: StoreHealth) -> None:
        self._store = store
        self._health = health
        self._loop = asyncio.get_running_loop()

    def start(self, job: Job, ready: Callable[[], None], ended: Ended) -> None:
        """Call `ready` once the job has its inputs, or `ended` if it will never start."""
        job.handle = self._loop.create_task(self._read(job, ready, ended))

    def stop(self, job: Job) -> bool:
        # Not at once: a task that is canceled before its first step never enters _read, and would never be said to end.
        self._loop.call_soon(job.handle.cancel)
        return True

    def ask(self, job: Job) -> None:
        job.context.request_cancel()
        self.stop(job)

    async def _read(self, job: Job, ready: Callable[[], None], ended: Ended) -> None:
        layout = job.inputs.layout
        try:
            job.inputs = Inputs(layout, await self._ends(job.claim.task_id, wanted(layout)))
            ready()
        except BaseException as error:
            ended(_outcome(error))

    async def _ends(self, task_id: str, number: int) -> list[ParentEnd]:
        """Of the first `number` parents. More may have been waited for, without their results being wanted."""
        ends: list[ParentEnd] = []
        while len(ends) < number:
            after, limit = len(ends), min(PAGE, number - len(ends))
            page = await self._page(task_id, after, limit)
            if len(page) < limit:
                raise _Unfit(f"of the {number} parents whose results it takes some are gone", "parent_gone")
            ends += page
            await asyncio.sleep(0)  # a store in memory answers without ever giving way
        return ends

    async def _page(self, task_id: str, after: int, limit: int) -> list[ParentEnd]:
        return await self._health.persist(lambda: self._store.parents(task_id, after=after, limit=limit))


class _Unfit(Exception):
    """No later attempt would find more."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.error = ErrorInfo(message, code)


def _outcome(error: BaseException) -> Outcome:
    match error:
        case asyncio.CancelledError():
            return Released()  # who stopped it says what that means
        case _Unfit():
            return Failed(error.error, unrecoverable=True)
    return Failed(error_info(error))
