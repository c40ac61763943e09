"""What a submitted workflow gives back: a run that can be looked at, waited for and canceled."""

from __future__ import annotations

from typing import Generic, TypeVar, cast

import msgspec

from holdfast.client import Client
from holdfast.errors import TaskCanceled, TaskFailed
from holdfast.model.task import Task
from holdfast.model.workflow import RunInfo, RunStatus
from holdfast.workflows.shapes import Outcome

R = TypeVar("R", covariant=True)


class Run(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """`created` is False where an idempotency key matched a run that was there already."""

    _client: Client
    id: str
    created: bool
    _outcome: Outcome | None = None
    """What the workflow makes of its last tasks' results; None where the workflow is not at hand."""

    def __repr__(self) -> str:
        return f"<Run {self.id}>"

    def info(self) -> RunInfo:
        """How it stands: its status, its tasks per status, when it began and ended."""
        return self._client.plainly(self.ainfo, plain="info")

    async def ainfo(self) -> RunInfo:
        return await self._client.run(self.id)

    def status(self) -> RunStatus:
        return self._client.plainly(self.astatus, plain="status")

    async def astatus(self) -> RunStatus:
        return (await self.ainfo()).status

    def tasks(self) -> list[Task]:
        """Its tasks, in the order of submission: parents before children."""
        return self._client.plainly(self.atasks, plain="tasks")

    async def atasks(self) -> list[Task]:
        return await self._client.run_tasks(self.id)

    def result(self, timeout: float | None = None) -> R:
        """Wait for the end: what the workflow gives, or TaskFailed, TaskCanceled, TimeoutError.

        By `app.run_handle(id)` it is the result of the last task, or the list of their results where several are last.
        """
        return self._client.plainly(lambda: self.aresult(timeout), plain="result")

    async def aresult(self, timeout: float | None = None) -> R:
        info = await self._client.run_ended(self.id, timeout=timeout)
        if info.status is not RunStatus.COMPLETED:
            raise await self._refusal(info)
        results = [task.result for task in await self._client.run_tasks(self.id, last=True)]
        if self._outcome is not None:
            return cast(R, self._outcome.of(results))
        return cast(R, results[0] if len(results) == 1 else results)

    async def _refusal(self, info: RunInfo) -> TaskFailed | TaskCanceled:
        culprit = await self._client.failed_of(self.id)
        if culprit is None:
            return TaskCanceled(f"run {self.id} was canceled; `holdfast runs show {self.id}` shows how far it came")
        error = culprit.last_error or {}
        others = info.counts.get("failed", 0) - 1
        more = f" (and {others:,} other tasks failed)" if others > 0 else ""
        words = f"task {culprit.id} ({culprit.name}) failed in attempt {culprit.attempt}: {error.get('message')}"
        return TaskFailed(f"run {self.id} failed: {words}{more}", error)

    def cancel(self) -> None:
        """Cancel every task of it that has not ended; running handlers are asked first."""
        self._client.plainly(self.acancel, plain="cancel")

    async def acancel(self) -> None:
        await self._client.cancel_run(self.id)
