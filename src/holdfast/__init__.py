"""Holdfast: a durable task queue for Python."""

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
from holdfast.version import __version__

__all__ = [
    "Call",
    "Context",
    "Delays",
    "Event",
    "Exponential",
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
