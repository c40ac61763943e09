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


class Job:
    """One attempt at work."""

    __slots__ = ("args", "claim", "context", "definition", "handle", "kwargs")

    def __init__(
        self, claim: Claim, definition: Definition, context: Context, args: list[Any], kwargs: dict[str, Any]
    ) -> None:
        self.claim = claim
        self.definition = definition
        self.context = context
        self.args = args
        self.kwargs = kwargs
        self.handle: Any = None
        """The executor's own."""

    def arguments(self) -> list[Any]:
        return [self.context, *self.args] if self.definition.takes_context else self.args


Ended = Callable[[Outcome], None]
"""Called once, on the event loop, when the handler has really ended."""


class Executor(Protocol):
    def start(self, job: Job, ended: Ended) -> None: ...

    def stop(self, job: Job) -> bool:
        """Make the handler end now; False where nothing can force it (a thread)."""

    def ask(self, job: Job) -> None:
        """Let the handler know, through its context, that it should stop."""

    def close(self) -> None:
        """Let go of everything that can be let go of. Nothing is waited for."""
