"""How the results of a task's parents become its arguments (contract C10.1).

A payload may say `"inputs": [SHAPE, …]`: the values that stand before its `args`. Parents are used up in the order in
which the task names them, as shapes.py says; those that are left over were only waited for.

Who reads the parents, and when, is decided in runtime/input_reader.py. Values are built where the handler runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.errors import InvalidTask
from holdfast.model.task import TaskStatus
from holdfast.model.workflow import ParentEnd
from holdfast.policy.admission import DEPTH
from holdfast.workflows.shapes import arranged

LIGHT_CHARS = 1 << 16
"""Results of so much text together are decoded in no time."""


class Failure(msgspec.Struct, frozen=True):
    """What a task with `on_parent_failure="run"` gets in place of the result of a parent that did not complete."""

    task_id: str
    name: str
    status: str
    """Plain text, so that a handler can return it."""
    error: dict[str, Any] | None
    """The parent's last_error, if it has one."""


class Inputs(msgspec.Struct, frozen=True):
    """What a payload asks for, and the parents that give it."""

    layout: list[Any]
    ends: list[ParentEnd]

    @property
    def light(self) -> bool:
        """Nothing to wait for while they are decoded."""
        return not self.ends or sum(len(end.result or "") for end in self.ends) <= LIGHT_CHARS

    def values(self) -> list[Any]:
        ends = (_value(end) for end in self.ends)
        return [arranged(shape, ends) for shape in self.layout]


NO_INPUTS = Inputs([], [])


def wanted(layout: Sequence[Any]) -> int:
    """How many parents it uses up; InvalidTask if it is no list of shapes."""
    return sum(_wanted(item, DEPTH) for item in layout)


def _wanted(item: Any, depth: int) -> int:
    if item is None:
        return 1
    if type(item) is int and item >= 0:
        return item
    if type(item) is list and depth:
        return sum(_wanted(inner, depth - 1) for inner in item)
    raise InvalidTask(f"an input is {str(item)[:40]!r}; null, a number or a list of inputs is expected")


def _value(end: ParentEnd) -> Any:
    if end.status is TaskStatus.COMPLETED:
        return None if end.result is None else msgspec.json.decode(end.result)
    return Failure(end.task_id, end.name, end.status.value, end.error)
