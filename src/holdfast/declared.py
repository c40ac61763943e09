"""A declared task: still the function it was, and the typed way to submit it.

Options go only through `using`, so that `enqueue` takes exactly the function's own parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, Protocol, TypeVar, Unpack, overload

from holdfast.calls import Call, Options, Template, Then, Then2, Then3, Then4, new_tasks
from holdfast.client import Client
from holdfast.context import Context
from holdfast.errors import InvalidTask
from holdfast.handle import Handle
from holdfast.model.task import Submitted
from holdfast.registry import Definition

P = ParamSpec("P")
R = TypeVar("R", covariant=True)
C = TypeVar("C", covariant=True)
"""What a plain call gives: the value, or a coroutine of it."""
Q = ParamSpec("Q")
"""The parameters that are left when results of other tasks are the first ones."""
I1 = TypeVar("I1", contravariant=True)
I2 = TypeVar("I2", contravariant=True)
I3 = TypeVar("I3", contravariant=True)
I4 = TypeVar("I4", contravariant=True)
A = TypeVar("A")
A2 = TypeVar("A2")
A3 = TypeVar("A3")
A4 = TypeVar("A4")
B = TypeVar("B")


# A submitter by its first parameters. Protocols, because mypy finds the first parameter's type in the signature
# of a method, and not in a Submitter[Concatenate[…], R].


class Takes1(Protocol[I1, Q, R]):
    def s(self, first: I1, /, *args: Q.args, **kwargs: Q.kwargs) -> Call[R]: ...


class Takes2(Protocol[I1, I2, Q, R]):
    def s(self, first: I1, second: I2, /, *args: Q.args, **kwargs: Q.kwargs) -> Call[R]: ...


class Takes3(Protocol[I1, I2, I3, Q, R]):
    def s(self, first: I1, second: I2, third: I3, /, *args: Q.args, **kwargs: Q.kwargs) -> Call[R]: ...


class Takes4(Protocol[I1, I2, I3, I4, Q, R]):
    def s(self, first: I1, second: I2, third: I3, fourth: I4, /, *args: Q.args, **kwargs: Q.kwargs) -> Call[R]: ...


class Submitter(Generic[P, R]):
    """Submits one task with fixed options."""

    def __init__(self, client: Client, template: Template, connection: Any = None) -> None:
        self._client = client
        self._template = template
        self._connection = connection

    @property
    def task_name(self) -> str:
        return self._template.prototype.name

    def using(self, **options: Unpack[Options]) -> Submitter[P, R]:
        """The same task with other options: queue, priority, delay, run_at, idempotency_key, …"""
        connection = options.get("connection", self._connection)
        return Submitter(self._client, self._template.using(options), connection)

    def s(self, *args: P.args, **kwargs: P.kwargs) -> Call[R]:
        """A complete call, for `enqueue_many`, follow-ups and workflows."""
        self._check_no_connection()
        return self._template.call(args, kwargs)

    @overload
    def then(self: Takes1[A, Q, B], *args: Q.args, **kwargs: Q.kwargs) -> Then[A, B]: ...  # type: ignore[overload-overlap]
    @overload
    def then(self: Takes2[A, A2, Q, B], *args: Q.args, **kwargs: Q.kwargs) -> Then2[A, A2, B]: ...  # type: ignore[overload-overlap]
    @overload
    def then(self: Takes3[A, A2, A3, Q, B], *args: Q.args, **kwargs: Q.kwargs) -> Then3[A, A2, A3, B]: ...  # type: ignore[overload-overlap]
    @overload
    def then(self: Takes4[A, A2, A3, A4, Q, B], *args: Q.args, **kwargs: Q.kwargs) -> Then4[A, A2, A3, A4, B]: ...
    def then(self, *args: Any, **kwargs: Any) -> Any:
        """A call whose first argument is the result of the step before, or, in a graph, one per parent; these are the
        other arguments.
        """
        self._check_no_connection()
        return self._template.then(args, kwargs)

    def _check_no_connection(self) -> None:
        if self._connection is not None:
            raise InvalidTask(
                "a call carries no connection; write app.enqueue_many(calls, connection=…) or "
                "workflow.using(connection=…)"
            )

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Submit a call; durable when this returns, or when the transaction of `using(connection=…)` commits."""
        call = self._template.call(args, kwargs)
        return enqueue_all(self._client, [call], self._connection, plain="enqueue")[0]

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        call = self._template.call(args, kwargs)
        return (await aenqueue_all(self._client, [call], self._connection))[0]


class DeclaredTask(Submitter[P, R], Generic[P, R, C]):
    """What `@app.task` makes of a function. Calling it runs the function, here and now."""

    def __init__(self, client: Client, template: Template, function: Callable[..., C], definition: Definition) -> None:
        super().__init__(client, template)
        self._function = function
        self.definition = definition
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> C:
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<task {self.definition.name}>"


class ContextTask(DeclaredTask[P, R, C]):
    """A declared task whose function takes the context first; submits do not mention it."""

    def __call__(self, context: Context, /, *args: P.args, **kwargs: P.kwargs) -> C:  # type: ignore[override]
        return self._function(context, *args, **kwargs)


def enqueue_all(client: Client, calls: Sequence[Call[R]], connection: Any, *, plain: str) -> list[Handle[R]]:
    return _handles(client, client.submit_plainly(new_tasks(calls), connection, plain=plain))


async def aenqueue_all(client: Client, calls: Sequence[Call[R]], connection: Any) -> list[Handle[R]]:
    return _handles(client, await client.submit(new_tasks(calls), connection))


def _handles(client: Client, answers: Sequence[Submitted]) -> list[Handle[Any]]:
    return [Handle(client, answer.id, created=answer.created) for answer in answers]
