"""What `@app.task` declares: a name, a handler, and the policy that travels with every task submitted under it; and
what `@app.schedule`, `app.webhook` and `@app.subscribe` do.

A task's name is only ever looked up here; nothing stored can make a worker import or call anything else.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal

import msgspec

from holdfast.errors import InvalidTask, TaskNotRegistered
from holdfast.model.backoff import Backoff
from holdfast.model.event import Event
from holdfast.model.outbox import NewSink
from holdfast.model.schedule import NewSchedule
from holdfast.settings import Defaults

RunIn = Literal["loop", "thread", "process"]


class Definition(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    handler: Callable[..., Any]
    signature: inspect.Signature
    """As `enqueue` takes it: without the context parameter."""
    queue: str
    priority: int
    max_attempts: int
    timeout: float | None
    lease: float | None
    backoff: Backoff
    retry_on: tuple[type[BaseException], ...]
    give_up_on: tuple[type[BaseException], ...]
    run_in: RunIn
    takes_context: bool
    fewest: int
    most: int
    """How many positional arguments alone make a complete call; -1 where keywords are needed too."""

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Refuse a call that the handler could not take."""
        if not kwargs and self.fewest <= len(args) <= self.most:
            return
        try:
            self.signature.bind(*args, **kwargs)
        except TypeError as refused:
            raise InvalidTask(f"task {self.name!r} takes {self.signature}: {refused}") from None


def plain_counts(signature: inspect.Signature) -> tuple[int, int]:
    """The span of argument counts that binds without keywords: what makes checking a call cheap."""
    fewest, most = 0, 0
    for parameter in signature.parameters.values():
        required = parameter.default is parameter.empty
        match parameter.kind:
            case parameter.POSITIONAL_ONLY | parameter.POSITIONAL_OR_KEYWORD:
                most += 1
                fewest += required
            case parameter.VAR_POSITIONAL:
                most = 10**9
            case parameter.KEYWORD_ONLY if required:
                return 0, -1
    return fewest, most


def natural_place(handler: Callable[..., Any]) -> RunIn:
    return "loop" if inspect.iscoroutinefunction(handler) else "thread"


class Registry:
    def __init__(self, defaults: Defaults) -> None:
        self.defaults = defaults
        self._definitions: dict[str, Definition] = {}
        self._schedules: dict[str, NewSchedule] = {}
        self._sinks: dict[str, NewSink] = {}
        self._subscribers: dict[str, Callable[[Event], Any]] = {}
        self.wakeup: NewSink | None = None
        """What wakes workers besides the store itself."""

    def add(self, definition: Definition) -> None:
        known = self._definitions.get(definition.name)
        if known is not None and known.handler is not definition.handler and not _reloaded(known, definition):
            raise InvalidTask(
                f"two handlers are declared as {definition.name!r}: {_place(known)} and {_place(definition)}; "
                "give one of them another name with @app.task(name=…)"
            )
        self._definitions[definition.name] = definition

    def add_schedule(self, new: NewSchedule) -> None:
        known = self._schedules.setdefault(new.name, new)
        if known != new:
            raise InvalidTask(
                f"two schedules are declared as {new.name!r}; give one of them another name with @app.schedule(name=…)"
            )

    def add_sink(self, new: NewSink, subscriber: Callable[[Event], Any] | None = None) -> None:
        """A webhook, or a subscriber with its function."""
        known = self._sinks.setdefault(new.name, new)
        function = subscriber and self._subscribers.setdefault(new.name, subscriber)
        if known != new or (function is not subscriber and _code_place(function) != _code_place(subscriber)):
            raise InvalidTask(f"two sinks are declared as {new.name!r}; give one of them another name with name=…")

    @property
    def sinks(self) -> list[NewSink]:
        """All who are to be told, the wake-up included."""
        return [*self._sinks.values(), *([] if self.wakeup is None else [self.wakeup])]

    @property
    def subscribers(self) -> dict[str, Callable[[Event], Any]]:
        """By the name of their sink."""
        return dict(self._subscribers)

    @property
    def schedules(self) -> list[NewSchedule]:
        return list(self._schedules.values())

    def get(self, name: str) -> Definition | None:
        return self._definitions.get(name)

    def named(self, name: str) -> Definition:
        definition = self._definitions.get(name)
        if definition is None:
            raise TaskNotRegistered(
                f"no handler for task {name!r}{self.hint(name)}; import the module that declares it"
            )
        return definition

    def hint(self, name: str) -> str:
        if name.startswith("__main__."):
            # Declared in a script that was run directly, and known here by the name of its module.
            same = [known for known in self._definitions if known.split(".", 1)[-1] == name.removeprefix("__main__.")]
        else:
            same = difflib.get_close_matches(name, self._definitions, n=1)
        return f" (did you mean {same[0]!r}?)" if same else ""

    def __iter__(self) -> Iterator[Definition]:
        return iter(self._definitions.values())

    def __len__(self) -> int:
        return len(self._definitions)


def _place(definition: Definition) -> str:
    return _code_place(definition.handler)


def _code_place(function: Any) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _reloaded(known: Definition, again: Definition) -> bool:
    """The same function, declared once more by a module that was imported twice (`python -m`, a reload)."""
    return _place(known) == _place(again)
