"""A workflow, and how it is submitted: all of it in one atomic step, as one run."""

from __future__ import annotations

from typing import Any, Generic, TypedDict, TypeVar, Unpack

from holdfast.errors import InvalidTask
from holdfast.policy.admission import maybe_name
from holdfast.workflows.plan import NOTHING, Composite, Plan, Planned, Ways
from holdfast.workflows.run import Run

R = TypeVar("R", covariant=True)


class RunOptions(TypedDict, total=False):
    """What `using(…)` of a workflow takes."""

    run_id: str | None
    idempotency_key: str | None
    """The same again gives the run that is there already, whatever became of it."""
    connection: Any
    """The caller's own, with its transaction open: the run exists if and only if that commits (C4.4)."""


class Submission(Generic[R]):
    """A workflow with its options. No step of another one: options belong to the whole."""

    def __init__(self, workflow: Composite[R], options: RunOptions) -> None:
        unknown = [name for name in options if name not in RunOptions.__annotations__]
        if unknown:
            names = ", ".join(RunOptions.__annotations__)
            raise TypeError(f"using() of a workflow takes no option {unknown[0]!r}; it takes {names}")
        self._workflow = workflow
        self._options = options
        self._run_id = maybe_name(options.get("run_id"), what="the run id")
        self._key = maybe_name(options.get("idempotency_key"), what="the idempotency key")
        self._connection = options.get("connection")

    def using(self, **options: Unpack[RunOptions]) -> Submission[R]:
        return Submission(self._workflow, {**self._options, **options})

    def enqueue(self) -> Run[R]:
        """Submit it; durable when this returns, or when the transaction of `using(connection=…)` commits."""
        planned = self._planned()
        found = planned.client.submit_run_plainly(planned.tasks, self._connection, plain="enqueue")
        return _run(planned, *found)

    async def aenqueue(self) -> Run[R]:
        planned = self._planned()
        return _run(planned, *await planned.client.submit_run(planned.tasks, self._connection))

    def follow_up(self) -> Planned:
        """For a settle, which submits it."""
        if self._connection is not None:
            raise InvalidTask("a follow-up is submitted with the completion; it takes no connection")
        return self._planned()

    def _planned(self) -> Planned:
        plan = Plan()
        output = plan.place(self._workflow, NOTHING, Ways())
        return plan.planned(output, run_id=self._run_id, idempotency_key=self._key)


class Workflow(Composite[R], Generic[R]):
    def using(self, **options: Unpack[RunOptions]) -> Submission[R]:
        """With a run id of your own, an idempotency key, or as part of the transaction open on a connection."""
        return Submission(self, options)

    def enqueue(self) -> Run[R]:
        """Submit it: every task of it exists when this returns, or none."""
        return self.using().enqueue()

    async def aenqueue(self) -> Run[R]:
        return await self.using().aenqueue()


def _run(planned: Planned, run_id: str, created: bool) -> Run[Any]:
    return Run(planned.client, run_id, created, planned.outcome)
