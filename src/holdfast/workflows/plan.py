"""From a workflow to the tasks of one submit: parents before children, ids ascending, one run.

Each step is placed with what stands before it and answers with what it gives; a Composite places its parts. Nothing is
written here: what is refused is refused before any of it exists.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, Generic, Literal, TypeAlias, TypedDict, TypeVar

import msgspec

from holdfast import ids
from holdfast.calls import Call, Step, Then, Whole
from holdfast.client import Client
from holdfast.errors import InvalidTask
from holdfast.model.task import NewTask
from holdfast.policy.admission import WORKFLOW_EDGES, WORKFLOW_TASKS, checked_name, json_text
from holdfast.workflows.shapes import Outcome, Shape

R = TypeVar("R", covariant=True)
OnParentFailure: TypeAlias = Literal["cancel", "run"]


class How(TypedDict, total=False):
    """What chain, group, chord and add take besides their steps."""

    on_parent_failure: OnParentFailure | None
    fail_fast: bool


DEPTH = 100
"""How deep workflows may stand in each other."""


class Output(msgspec.Struct, frozen=True, gc=False):
    """What a step gives. Tasks are known by their place in the plan."""

    shape: Shape
    tasks: tuple[int, ...]
    """Whose results it is made of, in order."""
    also: tuple[int, ...] = ()
    """Who has to have ended besides: before an empty group, what stands before that."""


class Before:
    """What a step waits for, and what of it is handed over. One for all members of a group."""

    __slots__ = ("inputs", "parents", "shapes")

    def __init__(self, outputs: Sequence[Output], also: Iterable[Output] = ()) -> None:
        others = [place for output in outputs for place in output.also]
        others += [place for output in also for place in (*output.tasks, *output.also)]
        self.parents = tuple(dict.fromkeys([*(place for output in outputs for place in output.tasks), *others]))
        self.shapes = [output.shape for output in outputs]
        self.inputs = json_text(self.shapes, what="what a step takes", limit_bytes=sys.maxsize)


NOTHING = Before([])


def gathered(outputs: Sequence[Output], before: Before) -> Output:
    """The list of what these give, which were all placed after the same."""
    if not outputs:
        return Output(0, (), before.parents)
    plain = all(output.shape is None for output in outputs)
    return Output(
        len(outputs) if plain else [output.shape for output in outputs],
        tuple(place for output in outputs for place in output.tasks),
        tuple(dict.fromkeys(place for output in outputs for place in output.also)),
    )


class Manner(msgspec.Struct, frozen=True):
    """How the tasks of a workflow take the failure of others. None: as the workflow around it."""

    on_parent_failure: str | None = None
    fail_fast: bool = False

    def __post_init__(self) -> None:
        if self.on_parent_failure not in (None, "cancel", "run"):
            raise InvalidTask(f"on_parent_failure is {self.on_parent_failure!r}; give 'cancel' or 'run'")


class Ways(msgspec.Struct, frozen=True):
    """The same as it holds for one task."""

    on_parent_failure: str = "cancel"
    fail_fast: int | None = None
    """A number within the plan."""


class Composite(Whole[R], Generic[R]):
    """A step that is made of steps."""

    @abstractmethod
    def lay(self, plan: Plan, before: Before, ways: Ways) -> Output:
        """Place its parts."""


class Planned(msgspec.Struct, frozen=True):
    """Ready to be submitted."""

    client: Client
    run_id: str
    tasks: list[NewTask]
    outcome: Outcome


class _Draft(msgspec.Struct, frozen=True, gc=False):
    step: Call[Any] | Then[Any, Any]
    before: Before
    ways: Ways


class Plan:
    """Filled by one workflow, from its outermost composite inwards."""

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._edges = 0
        self._fast = 0
        self._depth = 0
        self._client: Client | None = None

    def place(self, step: Step[Any, Any], before: Before, ways: Ways) -> Output:
        if isinstance(step, Composite):
            return self._lay(step, before, ways)
        if not isinstance(step, Call | Then):
            raise TypeError(f"a workflow is made of task.s(…), task.then(…) and workflows, not {type(step).__name__}")
        self._check(step, before)
        self._drafts.append(_Draft(step, before, ways))
        self._edges += len(before.parents)
        self._check_size()
        return Output(None, (len(self._drafts) - 1,))

    def _lay(self, step: Composite[Any], before: Before, ways: Ways) -> Output:
        if self._depth == DEPTH:
            raise InvalidTask(f"the workflow is nested too deeply, or in itself; at most {DEPTH} levels are allowed")
        self._depth += 1
        output = step.lay(self, before, ways)
        self._depth -= 1
        return output

    def ways(self, manner: Manner, around: Ways) -> Ways:
        """Who fails fast does so with the outermost workflow that asked for it."""
        fail_fast = around.fail_fast
        if manner.fail_fast and fail_fast is None:
            self._fast += 1
            fail_fast = self._fast
        return Ways(manner.on_parent_failure or around.on_parent_failure, fail_fast)

    def _check(self, step: Call[Any] | Then[Any, Any], before: Before) -> None:
        if isinstance(step, Then):
            if not before.shapes:
                raise InvalidTask(f"{step.name}.then(…) takes the result of a step before it, and none stands there")
            step.check(len(before.shapes))
        known = step.template.prototype
        if known.run_id is not None or known.idempotency_key is not None:
            option = "run_id" if known.run_id is not None else "idempotency_key"
            raise InvalidTask(f"the call of {step.name} has its own {option}; give it to the workflow with using(…)")
        if self._client is None:
            self._client = step.template.client
        elif step.template.client is not self._client:
            raise InvalidTask(f"{step.name} belongs to another app than the steps before it; a run has one store")

    def _check_size(self) -> None:
        if len(self._drafts) > WORKFLOW_TASKS:
            raise InvalidTask(f"a workflow has at most {WORKFLOW_TASKS:,} tasks; make several of it")
        if self._edges > WORKFLOW_EDGES:
            raise InvalidTask(
                f"a workflow has at most {WORKFLOW_EDGES:,} edges (each member of a group waits for every task before "
                "it); put a task in between that gathers what stands before"
            )

    def planned(self, output: Output, *, run_id: str | None, idempotency_key: str | None) -> Planned:
        if self._client is None:
            raise InvalidTask("this workflow has no task; an empty group gives [] only within another workflow")
        run, *made = ids.task_ids(1 + len(self._drafts))
        keys = {} if idempotency_key is None else self._keys(idempotency_key)
        tasks = self._tasks(keys, made, run_id or run)
        depended = {parent for draft in self._drafts for parent in draft.before.parents}
        last = [place for place in range(len(self._drafts)) if place not in depended]
        seat = {place: position for position, place in enumerate(last)}
        chosen = None if len(last) == len(output.tasks) else tuple(seat[place] for place in output.tasks)
        return Planned(self._client, run_id or run, tasks, Outcome(output.shape, chosen))

    def _keys(self, key: str) -> dict[int, str]:
        """The key of one task stands for the run where tasks wait for each other; else each needs its own."""
        if self._edges:
            return {0: key}
        checked_name(f"{key}#{len(self._drafts)}", what="the idempotency key with its number")
        return {place: f"{key}#{place}" for place in range(len(self._drafts))}

    def _tasks(self, keys: dict[int, str], made: Sequence[str], run_id: str) -> list[NewTask]:
        parents: dict[int, tuple[str, ...]] = {}
        # A run may hold several workflows, whose numbers are the same.
        fast = {number: f"{made[0]}.{number}" for number in range(1, self._fast + 1)}
        tasks = []
        for place, draft in enumerate(self._drafts):
            step, before = draft.step, draft.before
            if id(before) not in parents:
                parents[id(before)] = tuple(made[parent] for parent in before.parents)
            tasks.append(
                msgspec.structs.replace(
                    step.template.prototype,
                    id=made[place],
                    payload=step.payload_with(before.inputs) if isinstance(step, Then) else step.payload,
                    run_id=run_id,
                    idempotency_key=keys.get(place),
                    parents=parents[id(before)],
                    on_parent_failure=draft.ways.on_parent_failure,
                    fail_fast=None if draft.ways.fail_fast is None else fast[draft.ways.fail_fast],
                )
            )
        return tasks
