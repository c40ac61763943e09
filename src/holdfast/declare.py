"""`@app.task`: what it takes, what it refuses, and how checkers see it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypedDict, TypeVar, overload

from holdfast.calls import checked_budget, checked_priority
from holdfast.context import Context
from holdfast.declared import ContextTask, DeclaredTask
from holdfast.errors import InvalidTask
from holdfast.model.backoff import Backoff
from holdfast.policy.admission import checked_name
from holdfast.policy.backoff import as_backoff
from holdfast.registry import Definition, RunIn, natural_place, plain_counts
from holdfast.settings import Defaults, Span, maybe_seconds

P = ParamSpec("P")
R = TypeVar("R")

ExceptionTypes = type[BaseException] | Sequence[type[BaseException]]


class TaskOptions(TypedDict, total=False):
    name: str
    queue: str
    priority: int
    max_attempts: int
    timeout: Span | None
    lease: Span | None
    backoff: Backoff | Callable[[int], float]
    retry_on: ExceptionTypes
    give_up_on: ExceptionTypes
    run_in: RunIn


class Decorator(Protocol):
    @overload
    def __call__(
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> DeclaredTask[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> DeclaredTask[P, R, R]: ...


class ContextDecorator(Protocol):
    @overload
    def __call__(
        self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> ContextTask[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R], /) -> ContextTask[P, R, R]: ...


def definition_of(
    function: Callable[..., Any], options: TaskOptions, *, takes_context: bool, defaults: Defaults
) -> Definition:
    unknown = set(options) - set(TaskOptions.__annotations__)
    if unknown:
        raise TypeError(
            f"@app.task takes no option {sorted(unknown)[0]!r}; it takes {', '.join(TaskOptions.__annotations__)}"
        )
    signature = _enqueue_signature(function, takes_context)
    fewest, most = plain_counts(signature)
    budget = checked_budget(options.get("max_attempts", defaults.max_attempts))
    name = options.get("name") or f"{function.__module__}.{function.__qualname__}"
    return Definition(
        name=checked_name(name, what="the task name"),
        handler=function,
        signature=signature,
        queue=checked_name(options.get("queue", "default"), what="the queue"),
        priority=checked_priority(options.get("priority", 0)),
        max_attempts=budget,
        timeout=maybe_seconds(options.get("timeout"), what="timeout"),
        lease=maybe_seconds(options.get("lease"), what="lease"),
        backoff=as_backoff(options.get("backoff", defaults.backoff), budget),
        retry_on=_types(options.get("retry_on", ())),
        give_up_on=_types(options.get("give_up_on", ())),
        run_in=_checked_place(function, options.get("run_in")),
        takes_context=takes_context,
        fewest=fewest,
        most=most,
    )


def _enqueue_signature(function: Callable[..., Any], takes_context: bool) -> inspect.Signature:
    signature = inspect.signature(function)
    if not takes_context:
        return signature
    parameters = list(signature.parameters.values())
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if not parameters or parameters[0].kind not in positional:
        raise InvalidTask(f"{function.__qualname__} is declared with takes_context=True and has no parameter for it")
    return signature.replace(parameters=parameters[1:])


def _types(kinds: ExceptionTypes) -> tuple[type[BaseException], ...]:
    return (kinds,) if isinstance(kinds, type) else tuple(kinds)


def _checked_place(function: Callable[..., Any], run_in: RunIn | None) -> RunIn:
    is_async = inspect.iscoroutinefunction(function)
    if run_in is None:
        return natural_place(function)
    if run_in not in ("loop", "thread", "process"):
        raise InvalidTask(f"run_in is {run_in!r}; say 'loop', 'thread' or 'process'")
    if run_in == "loop" and not is_async:
        raise InvalidTask(f"{function.__qualname__} is a plain function and would block the event loop; use 'thread'")
    if run_in == "thread" and is_async:
        raise InvalidTask(f"{function.__qualname__} is a coroutine function; run it in 'loop' or 'process'")
    return run_in
