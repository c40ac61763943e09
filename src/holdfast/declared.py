"""A declared task: still the function it was, and the typed way to submit it.

Options go only through `using`, so that `enqueue` takes exactly the function's own parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, Unpack

from holdfast.calls import Call, Options, Template
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
        if self._connection is not None:
            raise InvalidTask("a call carries no connection; write app.enqueue_many(calls, connection=…)")
        return self._template.call(args, kwargs)

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
    return _handles(client, client.submit_plainly(calls, connection, plain=plain))


async def aenqueue_all(client: Client, calls: Sequence[Call[R]], connection: Any) -> list[Handle[R]]:
    return _handles(client, await client.submit(calls, connection))


def _handles(client: Client, answers: Sequence[Submitted]) -> list[Handle[Any]]:
    return [Handle(client, answer.id, created=answer.created) for answer in answers]
