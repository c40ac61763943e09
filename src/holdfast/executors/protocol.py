"""What an executor answers for: start a handler, say how it ended once it really has, and try to stop it.

It knows nothing of leases, retries or stores; what an end leads to is decided in runtime/runner.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from holdfast.context import Context
from holdfast.model.claim import Claim
from holdfast.model.outcome import Outcome
from holdfast.registry import Definition
from holdfast.workflows.inputs import NO_INPUTS, Inputs


class Job:
    """One attempt at work."""

    __slots__ = ("args", "claim", "context", "definition", "handle", "inputs", "kwargs")

    def __init__(
        self, claim: Claim, definition: Definition, context: Context, args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        self.claim = claim
        self.definition = definition
        self.context = context
        self.args = args
        self.kwargs = kwargs
        self.inputs: Inputs = NO_INPUTS
        """What its parents gave: comes before `args`, and is decoded by `arguments`, which may take a while."""
        self.handle: Any = None
        """The executor's own."""

    def arguments(self) -> list[Any]:
        args = [*self.inputs.values(), *self.args] if self.inputs.layout else self.args
        return [self.context, *args] if self.definition.takes_context else args


Ended = Callable[[Outcome], None]
"""Called once, on the event loop, when the handler has really ended."""


class Stopper(Protocol):
    """Whatever has a job in its hands."""

    def stop(self, job: Job) -> bool:
        """Make the handler end now; False where nothing can force it (a thread)."""

    def ask(self, job: Job) -> None:
        """Let the handler know, through its context, that it should stop."""


class Executor(Stopper, Protocol):
    def start(self, job: Job, ended: Ended) -> None: ...

    def close(self) -> None:
        """Let go of everything that can be let go of. Nothing is waited for."""
