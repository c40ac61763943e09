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
    from holdfast.workflows.forms import chain, chord, group
    from holdfast.workflows.graph import Graph
    from holdfast.workflows.inputs import Failure
    from holdfast.workflows.run import Run

_HOMES = {
    "Call": "calls",
    "Context": "context",
    "Delays": "model.backoff",
    "Event": "model.event",
    "Exponential": "model.backoff",
    "Failure": "workflows.inputs",
    "Fixed": "model.backoff",
    "Graph": "workflows.graph",
    "Handle": "handle",
    "Holdfast": "app",
    "HoldfastError": "errors",
    "Linear": "model.backoff",
    "Retention": "model.query",
    "Retry": "signals",
    "Run": "workflows.run",
    "Snooze": "signals",
    "Task": "model.task",
    "TaskManager": "manager",
    "TaskStatus": "model.task",
    "Unrecoverable": "signals",
    "chain": "workflows.forms",
    "chord": "workflows.forms",
    "current_task": "context",
    "group": "workflows.forms",
}

__all__ = [
    "Call",
    "Context",
    "Delays",
    "Event",
    "Exponential",
    "Failure",
    "Fixed",
    "Graph",
    "Handle",
    "Holdfast",
    "HoldfastError",
    "Linear",
    "Retention",
    "Retry",
    "Run",
    "Snooze",
    "Task",
    "TaskManager",
    "TaskStatus",
    "Unrecoverable",
    "__version__",
    "chain",
    "chord",
    "current_task",
    "group",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"holdfast.{_HOMES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return __all__
