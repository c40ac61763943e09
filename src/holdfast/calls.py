"""From a call to a NewTask: options are checked once, arguments every time, both before anything is written.

A Template is everything about a task but its id and payload. It is made once per declared task or `using(…)`, so that
a submit of many costs little more than encoding their arguments.

A Step is what a workflow is made of: it takes the result of the step before and gives its own. A Call is whole and
takes nothing; a Then lacks its first arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar

import msgspec

from holdfast import ids
from holdfast.client import Client
from holdfast.errors import InvalidTask, PayloadTooLarge
from holdfast.model.backoff import Backoff
from holdfast.model.task import NewTask
from holdfast.policy.admission import (
    BATCH_LONGEST,
    MAX_ATTEMPTS_HIGHEST,
    META_BYTES,
    PAYLOAD_BYTES,
    PRIORITY_HIGHEST,
    PRIORITY_LOWEST,
    checked_instant,
    checked_int,
    checked_name,
    json_text,
    maybe_name,
)
from holdfast.policy.backoff import as_backoff
from holdfast.policy.outputs import checked_pins
from holdfast.registry import Definition
from holdfast.settings import Defaults, Span, maybe_seconds, seconds

R = TypeVar("R", covariant=True)
I = TypeVar("I", contravariant=True)  # noqa: E741  the input
I2 = TypeVar("I2", contravariant=True)
I3 = TypeVar("I3", contravariant=True)
I4 = TypeVar("I4", contravariant=True)


class Options(TypedDict, total=False):
    """What `using(…)` takes."""

    queue: str
    priority: int
    delay: Span
    run_at: datetime
    max_attempts: int
    timeout: Span | None
    lease: Span | None
    backoff: Backoff | Callable[[int], float]
    idempotency_key: str | None
    concurrency_key: str | None
    run_id: str | None
    meta: Mapping[str, Any]
    inputs: Mapping[str, int | Literal["parent"]]
    """Versions of datasets that the handler reads, by name (C13.3): `{"orders": 3}`, or what a parent writes."""
    connection: Any
    """The caller's own, with its transaction open: the task exists if and only if that commits (C4.4)."""


class Template(msgspec.Struct, frozen=True):
    prototype: NewTask
    definition: Definition | None
    """None for a task that is submitted by name, without its handler's code."""
    payload_bytes: int
    client: Client

    def payload(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        arguments = {"args": list(args), "kwargs": kwargs}
        return json_text(arguments, what=f"the arguments of {self.prototype.name!r}", limit_bytes=self.payload_bytes)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Call[Any]:
        if self.definition is not None:
            self.definition.check(args, kwargs)
        return Call(self, self.payload(args, kwargs))

    def then(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Then[Any, Any]:
        return Then(self, self.payload(args, kwargs), len(args), tuple(kwargs))

    def using(self, options: Options) -> Template:
        return msgspec.structs.replace(self, prototype=_with(self.prototype, options))


class Step(Generic[I, R]):
    """A part of a workflow, for checkers: what it takes of the step before, and what it gives."""

    __slots__ = ()


class Whole(Step[object, R], Generic[R]):
    """A step that takes nothing, and so can stand first or alone."""

    __slots__ = ()


class Call(Whole[R], msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A complete call of a task, checked and encoded, not submitted yet."""

    template: Template
    payload: str

    @property
    def name(self) -> str:
        return self.template.prototype.name

    def __repr__(self) -> str:
        return f"<call of {self.name} with {self.payload[:80]}>"

    def new_task(self, task_id: str) -> NewTask:
        return msgspec.structs.replace(self.template.prototype, id=task_id, payload=self.payload)


class Then(Step[I, R], msgspec.Struct, Generic[I, R], frozen=True, gc=False):
    """A call whose first arguments are results of steps before it, one per parent; the others are checked and encoded.

    Whether they are as many as the function takes is known once the parents are.
    """

    template: Template
    payload: str
    args: int
    keywords: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.template.prototype.name

    def __repr__(self) -> str:
        return f"<call of {self.name} with what comes before and {self.payload[:80]}>"

    def check(self, inputs: int) -> None:
        """Refuse so many inputs if the handler could not take them with the other arguments."""
        if self.template.definition is not None:
            self.template.definition.check((None,) * (inputs + self.args), dict.fromkeys(self.keywords))

    def payload_with(self, inputs: str) -> str:
        """`inputs`: how the results of the parents become the first arguments, as JSON."""
        payload, most = f'{self.payload[:-1]},"inputs":{inputs}}}', self.template.payload_bytes
        if len(payload.encode()) > most:
            raise PayloadTooLarge(f"the arguments of {self.name!r} with their inputs take more than {most:,} bytes")
        return payload


# What checkers make of a Then that takes the results of several parents: a node of a graph, and no step of a chain.


class Then2(Generic[I, I2, R]): ...


class Then3(Generic[I, I2, I3, R]): ...


class Then4(Generic[I, I2, I3, I4, R]): ...


def new_tasks(calls: Sequence[Call[Any]]) -> list[NewTask]:
    """For one submit."""
    if len(calls) > BATCH_LONGEST:
        raise InvalidTask(f"{len(calls):,} tasks in one call; submit at most {BATCH_LONGEST:,} at once")
    for call in calls:
        if not isinstance(call, Call):
            kind = type(call).__name__
            raise TypeError(f"enqueue_many takes calls, made with task.s(…) or app.s(name, …), not {kind}")
    made = ids.task_ids(len(calls))
    return [call.new_task(task_id) for call, task_id in zip(calls, made, strict=True)]


def template_of(definition: Definition, client: Client, *, payload_bytes: int = PAYLOAD_BYTES) -> Template:
    prototype = NewTask(
        id="",
        name=definition.name,
        payload="",
        queue=definition.queue,
        priority=definition.priority,
        max_attempts=definition.max_attempts,
        backoff=definition.backoff,
        timeout=definition.timeout,
        lease=definition.lease,
    )
    return Template(prototype, definition, payload_bytes, client)


def template_by_name(name: str, defaults: Defaults, client: Client, *, payload_bytes: int = PAYLOAD_BYTES) -> Template:
    prototype = NewTask(
        id="",
        name=checked_name(name, what="the task name"),
        payload="",
        max_attempts=defaults.max_attempts,
        backoff=defaults.backoff,
    )
    return Template(prototype, None, payload_bytes, client)


def _with(known: NewTask, options: Options) -> NewTask:
    if "delay" in options and "run_at" in options:
        raise InvalidTask("give `delay` or `run_at`, not both")
    unknown = [name for name in options if name not in _CHECKS and name != "connection"]
    if unknown:
        raise TypeError(f"using() takes no option {unknown[0]!r}; it takes {', '.join(_CHECKS)}, connection")
    given = [(name, value) for name, value in options.items() if name != "connection"]
    changes: dict[str, Any] = {_FIELDS.get(name, name): _CHECKS[name](value) for name, value in given}
    if "delay" in options:
        changes["run_at"] = None
    if "backoff" in options:
        changes["backoff"] = as_backoff(options["backoff"], changes.get("max_attempts", known.max_attempts))
    return msgspec.structs.replace(known, **changes)


def checked_priority(priority: Any) -> int:
    return checked_int(priority, PRIORITY_LOWEST, PRIORITY_HIGHEST, what="priority")


def checked_budget(max_attempts: Any) -> int:
    return checked_int(max_attempts, 0, MAX_ATTEMPTS_HIGHEST, what="max_attempts")


def _meta_text(meta: Any) -> str | None:
    if not isinstance(meta, Mapping):
        raise InvalidTask(f"meta is {meta!r}; give a dict")
    return json_text(dict(meta), what="meta", limit_bytes=META_BYTES) if meta else None


_FIELDS = {"delay": "delay_seconds"}
_CHECKS: dict[str, Callable[[Any], Any]] = {
    "queue": lambda queue: checked_name(queue, what="the queue"),
    "priority": checked_priority,
    "delay": lambda delay: seconds(delay, what="delay"),
    "run_at": lambda run_at: checked_instant(run_at, what="run_at"),
    "max_attempts": checked_budget,
    "timeout": lambda timeout: maybe_seconds(timeout, what="timeout"),
    "lease": lambda lease: maybe_seconds(lease, what="lease"),
    "backoff": lambda backoff: backoff,
    "idempotency_key": lambda key: maybe_name(key, what="the idempotency key"),
    "concurrency_key": lambda key: maybe_name(key, what="the concurrency key"),
    "run_id": lambda run_id: maybe_name(run_id, what="the run id"),
    "meta": _meta_text,
    "inputs": checked_pins,
}
