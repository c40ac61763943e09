"""What a handler can ask and say about its own attempt.

A completion in a transaction of the handler's own (C7.6) passes through here: it is written with what the attempt has
emitted so far, and the runner is told by `ending` that it need not be written again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from enum import Enum
from functools import partial
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, overload

import msgspec

from holdfast import ids
from holdfast.calls import Call
from holdfast.errors import HoldfastError, InvalidTask
from holdfast.model.claim import Claim, Lease
from holdfast.model.outcome import Completed, Emitted, Outcome, Settlement
from holdfast.model.task import NewTask
from holdfast.outputs import DatasetReader, PinnedInputs, Rows, Written, output_of
from holdfast.policy import workflow
from holdfast.policy.admission import META_BYTES, checked_name, json_text
from holdfast.settings import Span
from holdfast.steps import Recorder, Steps
from holdfast.stores.protocol import Joining, OwnTransaction
from holdfast.workflows.workflow import Submission, Workflow

P = ParamSpec("P")
R = TypeVar("R")

RESERVED_KINDS = ("task.", "run.")


class Reporter(Recorder, DatasetReader, Protocol):
    """How a context reaches the store: through its worker, or through the pipe of a child process."""

    def report(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        """Record an event now; from plain code only."""

    async def areport(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None: ...

    def joining(self) -> Joining:
        """How to write in a transaction of the handler's; from plain code only."""

    async def ajoining(self) -> Joining: ...

    def own_transaction(self) -> OwnTransaction: ...


class Ending(Enum):
    """What has become of a completion in the handler's own transaction."""

    NONE = "none"
    OPEN = "open"
    """Written; the transaction is open, or its end is known to its owner only. The record is locked meanwhile."""
    COMMITTED = "committed"
    UNDONE = "undone"


class Context:
    """The attempt that is running. In plain functions poll `cancel_requested`; coroutines are canceled."""

    def __init__(self, claim: Claim, reporter: Reporter) -> None:
        self._claim = claim
        self.reporter = reporter
        self._canceled = False
        self.ending = Ending.NONE
        self.emitted: list[Emitted] = []
        self.follow_ups: list[NewTask] = []
        self.written = Written()
        self._steps: Steps | None = None
        self._inputs: PinnedInputs | None = None
        self.transacting = False
        """Inside of `ctx.transaction()`."""

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

    def output(self, dataset: str, rows: Rows, *, mode: Literal["append", "replace"] = "append") -> None:
        """Write these rows, pairs of a key and a JSON value, into a dataset: with this attempt's completion, or not at
        all. `append` adds to the latest version what it does not have yet, by key; with `replace` the new version is
        exactly these rows. Several calls for one dataset make one version; of a key the first value counts.
        """
        if self.ending in (Ending.OPEN, Ending.COMMITTED):
            raise InvalidTask(f"task {self.id} is completed already; write outputs before the completion")
        self.written.add(output_of(dataset, rows, mode))

    def input(self, dataset: str) -> list[tuple[str, Any]]:
        """The rows of the version that this task has pinned, by key: the same ones on every attempt.

        In coroutines: `await ctx.ainput(…)`.
        """
        return self._pinned().rows(dataset)

    async def ainput(self, dataset: str) -> list[tuple[str, Any]]:
        return await self._pinned().arows(dataset)

    def _pinned(self) -> PinnedInputs:
        if self._inputs is None:
            self._inputs = PinnedInputs(self._claim, self.reporter)
        return self._inputs

    def step(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        """What `function` gives, recorded at once under this name; on later attempts what was recorded, without a call.

        The result must be JSON that comes back equal, at most 1 MiB. A name belongs to one step of the handler. A step
        may run again if the worker dies before it is recorded. In coroutines: `await ctx.astep(…)`.
        """
        result: R = self._stepping().call(name, partial(function, *args, **kwargs))
        return result

    @overload
    async def astep(
        self, name: str, function: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R: ...
    @overload
    async def astep(self, name: str, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    async def astep(self, name: str, function: Callable[P, Any], /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return await self._stepping().acall(name, partial(function, *args, **kwargs))

    def sleep(self, span: Span, *, name: str | None = None) -> Awaitable[None]:
        """Go on after so many seconds, which hold no slot and cost no failure: the attempt ends here, and the handler
        starts anew when they are over, with its steps remembered. In coroutines: `await ctx.sleep(…)`, or `asleep`.

        Sleeps are told apart by their order in the handler, or by `name`. The length that counts is the first one.
        """
        return self._stepping().sleep(span, name)

    async def asleep(self, span: Span, *, name: str | None = None) -> None:
        await self._stepping().asleep(span, name)

    def _stepping(self) -> Steps:
        if self.transacting or self.ending is Ending.OPEN:
            # It would be recorded by another connection, which on SQLite waits for this transaction to end.
            raise InvalidTask(
                f"task {self.id}: a step or sleep cannot be part of a transaction; take it out of the block"
            )
        if self._steps is None:
            self._steps = Steps(self._claim, self.reporter)
        return self._steps

    def transaction(self) -> Transacting:
        """A transaction of this attempt's own in the store's database: what is written there and the completion are
        kept together, or neither is. `async with` in coroutines, `with` in plain functions (SQLite only).
        """
        return Transacting(self, self.reporter)

    def complete_in(self, connection: Any, result: Any = None) -> None:
        """Complete this attempt in the transaction that is open on a connection of yours; LeaseLost if it cannot be.

        Let LeaseLost end the transaction. In coroutines: `await ctx.acomplete_in(…)`.
        """
        joined = self.reporter.joining().into(connection)
        if joined.awaited:
            raise RuntimeError("complete_in() cannot wait for an async connection; use `await ctx.acomplete_in(…)`")
        settlement = self._completion(result)
        with self._ending():
            joined.complete(settlement)

    async def acomplete_in(self, connection: Any, result: Any = None) -> None:
        joined = (await self.reporter.ajoining()).into(connection)
        settlement = self._completion(result)
        with self._ending():
            await joined.acomplete(settlement)

    def _completion(self, result: Any) -> Settlement:
        outcome = Completed(json_text(result, what=f"the result of {self.name!r}"))
        return self.settlement(outcome)

    def settlement(self, outcome: Outcome) -> Settlement:
        """This end of the attempt, with all that goes along with it."""
        outputs = self.written.outputs() if isinstance(outcome, Completed) else ()
        return Settlement(self._claim.lease, outcome, tuple(self.emitted), tuple(self.follow_ups), outputs)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """Before it is written, not after: from then on the record is locked, and nobody should wait for it."""
        before, self.ending = self.ending, Ending.OPEN
        try:
            yield
        except BaseException:
            self.ending = before
            raise

    def follow_up(self, call: Call[Any] | Workflow[Any] | Submission[Any]) -> str:
        """Submit `call` together with this attempt's completion, or not at all; the new task's id.

        Of a workflow all tasks are submitted, and the id is that of its run.
        """
        if isinstance(call, Call):
            new = call.new_task(ids.task_id())
            workflow.check([new])
            self.follow_ups.append(new)
            return new.id
        if not isinstance(call, Workflow | Submission):
            raise TypeError(f"a follow-up is task.s(…), app.s(name, …) or a workflow, not {type(call).__name__}")
        planned = (call.using() if isinstance(call, Workflow) else call).follow_up()
        workflow.check(planned.tasks)
        self.follow_ups.extend(planned.tasks)
        return planned.run_id


class Transacting:
    """`async with ctx.transaction() as tx`, or `with`. The block commits where tx.complete() was its last word.

    Left without a completion, or after LeaseLost (also one that the handler caught), it is rolled back.
    """

    def __init__(self, context: Context, reporter: Reporter) -> None:
        self._context = context
        self._reporter = reporter
        self._own: OwnTransaction | None = None
        self._tx: PlainTx | AsyncTx | None = None

    def __enter__(self) -> PlainTx:
        self._own = self._reporter.own_transaction()
        self._tx = PlainTx(self._context, self._own.enter())
        self._context.transacting = True
        return self._tx

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._own is not None
        assert self._tx is not None
        commit = kind is None and self._tx.completed
        try:
            self._own.leave(commit=commit)
        finally:
            self._left(commit=commit)
        self._check(kind)

    async def __aenter__(self) -> AsyncTx:
        self._own = self._reporter.own_transaction()
        self._tx = AsyncTx(self._context, await self._own.aenter())
        self._context.transacting = True
        return self._tx

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._own is not None
        assert self._tx is not None
        commit = kind is None and self._tx.completed
        try:
            await self._own.aleave(commit=commit)
        finally:
            self._left(commit=commit)
        self._check(kind)

    def _left(self, *, commit: bool) -> None:
        """A commit that raised may have happened: the store will know."""
        self._context.transacting = False
        if self._context.ending is Ending.OPEN:
            self._context.ending = Ending.COMMITTED if commit else Ending.UNDONE

    def _check(self, kind: type[BaseException] | None) -> None:
        assert self._tx is not None
        if kind is None and self._tx.refused is not None:
            raise self._tx.refused
        if kind is None and not self._tx.completed:
            raise HoldfastError(
                f"the transaction of task {self._context.id} ended without tx.complete(…); it was rolled back"
            )


class _Tx:
    def __init__(self, context: Context, connection: Any) -> None:
        self._context = context
        self.connection = connection
        self.completed = False
        self.refused: HoldfastError | None = None


class PlainTx(_Tx):
    """What `with ctx.transaction()` gives."""

    def complete(self, result: Any = None) -> None:
        """Fenced. The last statement of the block."""
        try:
            self._context.complete_in(self.connection, result)
        except HoldfastError as refused:
            self.refused = refused
            raise
        self.completed = True


class AsyncTx(_Tx):
    """What `async with ctx.transaction()` gives."""

    async def complete(self, result: Any = None) -> None:
        """Fenced. The last statement of the block."""
        try:
            await self._context.acomplete_in(self.connection, result)
        except HoldfastError as refused:
            self.refused = refused
            raise
        self.completed = True


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
