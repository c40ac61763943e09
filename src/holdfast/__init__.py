"""Holdfast: a durable task queue for Python.

The public names, each loaded when it is first used: `import holdfast` itself costs next to nothing, and a program pays
only for the parts it touches.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from holdfast.version import __version__

if TYPE_CHECKING:
    from holdfast.app import Holdfast
    from holdfast.calls import Call
    from holdfast.context import Context, current_task
    from holdfast.errors import HoldfastError
    from holdfast.handle import Handle
    from holdfast.manager import TaskManager
    from holdfast.model.backoff import Delays, Exponential, Fixed, Linear
    from holdfast.model.event import Event
    from holdfast.model.query import Retention
    from holdfast.model.task import Task, TaskStatus
    from holdfast.signals import Retry, Snooze, Unrecoverable
    from holdfast.workflows.inputs import Failure

_HOMES = {
    "Call": "calls",
    "Context": "context",
    "Delays": "model.backoff",
    "Event": "model.event",
    "Exponential": "model.backoff",
    "Failure": "workflows.inputs",
    "Fixed": "model.backoff",
    "Handle": "handle",
    "Holdfast": "app",
    "HoldfastError": "errors",
    "Linear": "model.backoff",
    "Retention": "model.query",
    "Retry": "signals",
    "Snooze": "signals",
    "Task": "model.task",
    "TaskManager": "manager",
    "TaskStatus": "model.task",
    "Unrecoverable": "signals",
    "current_task": "context",
}

__all__ = [
    "Call",
    "Context",
    "Delays",
    "Event",
    "Exponential",
    "Failure",
    "Fixed",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "Linear",
    "Retention",
    "Retry",
    "Snooze",
    "Task",
    "TaskManager",
    "TaskStatus",
    "Unrecoverable",
    "__version__",
    "current_task",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"holdfast.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
