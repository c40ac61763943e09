"""What a submit gives back: a task that can be looked at, waited for and acted on."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

import msgspec

from holdfast.client import Client
from holdfast.errors import TaskCanceled, TaskFailed
from holdfast.model.event import Event
from holdfast.model.task import Task, TaskStatus
from holdfast.model.transition import Change

R = TypeVar("R", covariant=True)


class Handle(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """`created` is False where an idempotency key matched a task that was there already."""

    _client: Client
    id: str
    created: bool

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"

    def task(self) -> Task:
        """The record as it stands."""
        return self._client.plainly(self.atask, plain="task")

    async def atask(self) -> Task:
        return await self._client.task(self.id)

    def result(self, timeout: float | None = None) -> R:
        """Wait for the end: the handler's value, or TaskFailed, TaskCanceled, TimeoutError."""
        return self._client.plainly(lambda: self.aresult(timeout), plain="result")

    async def aresult(self, timeout: float | None = None) -> R:
        task = await self._client.ended(self.id, timeout=timeout)
        match task.status:
            case TaskStatus.FAILED:
                error: dict[str, Any] = task.last_error or {}
                message = f"task {self.id} ({task.name}) failed in attempt {task.attempt}: {error.get('message')}"
                raise TaskFailed(message, error)
            case TaskStatus.CANCELED:
                cause = "" if task.canceled_because is None else f" because of task {task.canceled_because}"
                raise TaskCanceled(f"task {self.id} ({task.name}) was canceled{cause}")
        return cast(R, task.result)

    def cancel(self) -> None:
        """Cancel it; a running handler is asked first."""
        self._client.plainly(self.acancel, plain="cancel")

    async def acancel(self) -> None:
        await self._client.amend(Change.CANCEL, self.id)

    def retry(self) -> None:
        """Queue it again with a fresh budget, after it failed or was canceled."""
        self._client.plainly(self.aretry, plain="retry")

    async def aretry(self) -> None:
        await self._client.amend(Change.REQUEUE, self.id)

    def events(self) -> list[Event]:
        """What happened to it so far."""
        return self._client.plainly(self.aevents, plain="events")

    async def aevents(self) -> list[Event]:
        return await self._client.events(self.id)
