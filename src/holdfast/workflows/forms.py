"""`chain`, `group`, `chord`: the common shapes, typed so that a checker follows results from step to step.

Steps that begin with `then` make a workflow that is open: no run of its own, but a step of another one, which hands the
result before it to whoever takes it. For checkers that is a Step, which has no `enqueue`; at run time it is refused.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, TypeVar, Unpack, overload

from holdfast.calls import Step, Whole
from holdfast.errors import InvalidTask
from holdfast.policy.admission import WORKFLOW_TASKS
from holdfast.workflows.plan import Before, How, Manner, OnParentFailure, Output, Plan, Ways, gathered
from holdfast.workflows.workflow import Workflow

R = TypeVar("R", covariant=True)
I = TypeVar("I")  # noqa: E741  the input
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")


class Chain(Workflow[R]):
    def __init__(self, steps: tuple[Step[Any, Any], ...], manner: Manner) -> None:
        self._steps = steps
        self._manner = manner

    def lay(self, plan: Plan, before: Before, ways: Ways) -> Output:
        ways = plan.ways(self._manner, ways)
        first, *rest = self._steps
        output = plan.place(first, before, ways)
        for step in rest:
            output = plan.place(step, Before([output]), ways)
        return output


class Group(Workflow[R]):
    def __init__(self, members: tuple[Step[Any, Any], ...], manner: Manner) -> None:
        self._members = members
        self._manner = manner

    def lay(self, plan: Plan, before: Before, ways: Ways) -> Output:
        ways = plan.ways(self._manner, ways)
        return gathered([plan.place(member, before, ways) for member in self._members], before)


@overload
def chain(a: Whole[A], /, **how: Unpack[How]) -> Workflow[A]: ...
@overload
def chain(a: Whole[A], b: Step[A, B], /, **how: Unpack[How]) -> Workflow[B]: ...
@overload
def chain(a: Whole[A], b: Step[A, B], c: Step[B, C], /, **how: Unpack[How]) -> Workflow[C]: ...
@overload
def chain(a: Whole[A], b: Step[A, B], c: Step[B, C], d: Step[C, D], /, **how: Unpack[How]) -> Workflow[D]: ...
@overload
def chain(
    a: Whole[A], b: Step[A, B], c: Step[B, C], d: Step[C, D], e: Step[D, E], /, **how: Unpack[How]
) -> Workflow[E]: ...
@overload
def chain(
    a: Whole[A], b: Step[A, B], c: Step[B, C], d: Step[C, D], e: Step[D, E], f: Step[E, F], /, **how: Unpack[How]
) -> Workflow[F]: ...
@overload
def chain(
    a: Whole[A],
    b: Step[A, B],
    c: Step[B, C],
    d: Step[C, D],
    e: Step[D, E],
    f: Step[E, F],
    /,
    *more: Step[Any, Any],
    **how: Unpack[How],
) -> Workflow[Any]: ...
@overload
def chain(a: Step[I, A], /, **how: Unpack[How]) -> Step[I, A]: ...
@overload
def chain(a: Step[I, A], b: Step[A, B], /, **how: Unpack[How]) -> Step[I, B]: ...
@overload
def chain(a: Step[I, A], b: Step[A, B], c: Step[B, C], /, **how: Unpack[How]) -> Step[I, C]: ...
@overload
def chain(a: Step[I, A], b: Step[A, B], c: Step[B, C], d: Step[C, D], /, **how: Unpack[How]) -> Step[I, D]: ...
@overload
def chain(
    a: Step[I, A], b: Step[A, B], c: Step[B, C], d: Step[C, D], /, *more: Step[Any, Any], **how: Unpack[How]
) -> Step[I, Any]: ...
def chain(*steps: Any, on_parent_failure: OnParentFailure | None = None, fail_fast: bool = False) -> Any:
    """One after the other; a step that is a `then` takes the result of the one before it.

    `on_parent_failure="run"`: a step runs also after a failure, and gets it as its input; by default it is canceled.
    `fail_fast`: a task that fails takes the others of this workflow with it, also those that run.
    """
    if not steps:
        raise InvalidTask("chain() has no steps")
    return Chain(steps, Manner(on_parent_failure, fail_fast))


@overload
def group(steps: Iterable[Whole[A]], /, **how: Unpack[How]) -> Workflow[list[A]]: ...
@overload
def group(steps: Iterable[Step[I, A]], /, **how: Unpack[How]) -> Step[I, list[A]]: ...
def group(steps: Iterable[Any], /, *, on_parent_failure: OnParentFailure | None = None, fail_fast: bool = False) -> Any:
    """Side by side; gives the list of their results, in this order. Members that are a `then` all take the result of
    the step before the group.
    """
    members = tuple(islice(steps, WORKFLOW_TASKS + 1))
    if len(members) > WORKFLOW_TASKS:
        raise InvalidTask(f"a group of more than {WORKFLOW_TASKS:,} tasks; make several of it")
    return Group(members, Manner(on_parent_failure, fail_fast))


@overload
def chord(steps: Iterable[Whole[A]], finalizer: Step[list[A], B], /, **how: Unpack[How]) -> Workflow[B]: ...
@overload
def chord(steps: Iterable[Step[I, A]], finalizer: Step[list[A], B], /, **how: Unpack[How]) -> Step[I, B]: ...
def chord(
    steps: Iterable[Any],
    finalizer: Any,
    /,
    *,
    on_parent_failure: OnParentFailure | None = None,
    fail_fast: bool = False,
) -> Any:
    """A group, and then a step that takes the list of its results; enqueued once, when the last member has ended."""
    return Chain((group(steps), finalizer), Manner(on_parent_failure, fail_fast))
