"""What a handler can ask and say about its own attempt."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from holdfast import ids
from holdfast.calls import Call
from holdfast.errors import HoldfastError, InvalidTask
from holdfast.model.claim import Claim, Lease
from holdfast.model.outcome import Emitted
from holdfast.model.task import NewTask
from holdfast.policy.admission import META_BYTES, checked_name, json_text

RESERVED_KINDS = ("task.", "run.")


class Reporter(Protocol):
    """How a context reaches the store: through its worker, or through the pipe of a child process."""

    def report(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        """Record an event now; from plain code only."""

    async def areport(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None: ...


class Context:
    """The attempt that is running. In plain functions poll `cancel_requested`; coroutines are canceled."""

    def __init__(self, claim: Claim, reporter: Reporter) -> None:
        self._claim = claim
        self.reporter = reporter
        self._canceled = False
        self.emitted: list[Emitted] = []
        self.follow_ups: list[NewTask] = []

    def __repr__(self) -> str:
        return f"<Context of {self.name} {self.id}, attempt {self.attempt}>"

    @property
    def id(self) -> str:
        return self._claim.lease.task_id

    @property
    def name(self) -> str:
        return self._claim.name

    @property
    def queue(self) -> str:
        return self._claim.queue

    @property
    def attempt(self) -> int:
        """Grows with every claim: a fencing number for systems of your own."""
        return self._claim.lease.attempt

    @property
    def failures(self) -> int:
        return self._claim.failures

    @property
    def max_attempts(self) -> int:
        return self._claim.max_attempts

    @property
    def worker_id(self) -> str:
        return self._claim.worker_id

    @property
    def lease_token(self) -> str:
        return self._claim.lease.token

    @property
    def run_id(self) -> str | None:
        return self._claim.run_id

    @property
    def meta(self) -> dict[str, Any]:
        return {} if self._claim.meta is None else msgspec.json.decode(self._claim.meta)

    @property
    def deadline(self) -> datetime | None:
        """When the attempt times out, by the store's clock."""
        timeout = self._claim.timeout
        return None if timeout is None else self._claim.claimed_at + timedelta(seconds=timeout)

    @property
    def cancel_requested(self) -> bool:
        """True once the attempt should stop: canceled, timed out, its lease lost, or the worker is leaving."""
        return self._canceled

    def request_cancel(self) -> None:
        self._canceled = True

    def progress(self, done: float, total: float | None = None, message: str = "") -> None:
        """Record how far the attempt is, at once. In coroutines: `await ctx.aprogress(…)`."""
        self.reporter.report(self._claim.lease, "task.progress", _progress(done, total, message))

    async def aprogress(self, done: float, total: float | None = None, message: str = "") -> None:
        await self.reporter.areport(self._claim.lease, "task.progress", _progress(done, total, message))

    def emit(self, kind: str, data: Mapping[str, Any] | None = None) -> None:
        """An event of your own, recorded when this attempt is settled."""
        checked_name(kind, what="the event kind")
        if kind.startswith(RESERVED_KINDS):
            raise InvalidTask(f"event kind {kind!r}: kinds that start with task. or run. are Holdfast's own")
        if data is not None and not isinstance(data, Mapping):
            raise InvalidTask(f"event data is {data!r}; give a dict")
        text = json_text(dict(data or {}), what=f"the data of event {kind!r}", limit_bytes=META_BYTES)
        self.emitted.append(Emitted(kind, msgspec.json.decode(text)))

    def follow_up(self, call: Call[Any]) -> str:
        """Submit `call` together with this attempt's completion, or not at all; the new task's id."""
        new = call.new_task(ids.task_id())
        self.follow_ups.append(new)
        return new.id


def _progress(done: float, total: float | None, message: str) -> dict[str, Any]:
    data = {"done": done, "total": total, "message": message}
    json_text(data, what="progress", limit_bytes=META_BYTES)
    return data


CURRENT: ContextVar[Context] = ContextVar("holdfast_current_task")


def current_task() -> Context:
    """The context of the handler that is running here."""
    try:
        return CURRENT.get()
    except LookupError:
        raise HoldfastError(
            "current_task() was called outside of a handler; only a running task has a context"
        ) from None
