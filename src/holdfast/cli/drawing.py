"""A run as text: which task waits for which, drawn with lines, parents above children.

● fetch          What is alike is folded: tasks of one name whose parents and dependents are alike, such as the
├─╮              members of a group, stand on one line. What is left is a small graph. Each line that goes down leads
● │ parse        to one task that is not drawn yet; a task stands where its line ends, and its own lines begin.
│ ● index
├─╯
○ publish
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from holdfast.model.task import Task, TaskStatus
from holdfast.workflows.order import parents_first

FOLDED_FROM = 4
LINES_MOST = 12
"""A graph that needs more lines side by side is not drawn, but told."""

_MARKS = {
    TaskStatus.WAITING: "○",
    TaskStatus.QUEUED: "○",
    TaskStatus.RUNNING: "◐",
    TaskStatus.COMPLETED: "●",
    TaskStatus.FAILED: "✗",
    TaskStatus.CANCELED: "⊘",
}
_STATES = (
    TaskStatus.FAILED,
    TaskStatus.RUNNING,
    TaskStatus.QUEUED,
    TaskStatus.WAITING,
    TaskStatus.CANCELED,
    TaskStatus.COMPLETED,
)
"""A folded line shows the first of these that one of its tasks is in."""
_CORNERS = {
    # up, down, left, right
    (True, True, False, False): "│",
    (True, True, False, True): "├",
    (True, True, True, False): "┤",
    (True, True, True, True): "┼",
    (True, False, False, True): "╰",
    (True, False, True, False): "╯",
    (True, False, True, True): "┴",
    (False, True, False, True): "╭",
    (False, True, True, False): "╮",
    (False, True, True, True): "┬",
    (False, False, True, True): "─",
}


class Spot(msgspec.Struct, frozen=True):
    """One task, or several that are alike. Others are known by their place in the drawing."""

    tasks: list[Task]
    parents: list[int]
    children: list[int]

    @property
    def status(self) -> TaskStatus:
        found = {task.status for task in self.tasks}
        return next(status for status in _STATES if status in found)

    @property
    def counts(self) -> dict[str, int]:
        numbers = {status: sum(task.status is status for task in self.tasks) for status in TaskStatus}
        return {status.value: number for status, number in numbers.items() if number}


class Line(msgspec.Struct, frozen=True):
    drawn: str
    spot: Spot | None
    """None where there are only lines."""


def drawing(tasks: Sequence[Task]) -> list[Line]:
    """`tasks`: all of a run, parents before children."""
    found = spots(tasks)
    lines = list(_drawn(found))
    if max((len(line.drawn) for line in lines), default=0) <= 2 * LINES_MOST:
        return lines
    return [Line(_told(place, spot), spot) for place, spot in enumerate(found)]


def _told(place: int, spot: Spot) -> str:
    after = ", ".join(str(parent + 1) for parent in spot.parents)
    return f"{place + 1}" + (f" (after {after})" if after else "")


# Folding


def spots(tasks: Sequence[Task]) -> list[Spot]:
    """In the order in which they are drawn."""
    known = {task.id for task in tasks}
    parents = {task.id: [parent for parent in task.parents if parent in known] for task in tasks}
    kinds = _kinds(tasks, parents)
    sizes: dict[int, int] = defaultdict(int)
    for kind in kinds.values():
        sizes[kind] += 1
    places: dict[object, int] = {}
    place_of = {
        task.id: places.setdefault(kinds[task.id] if sizes[kinds[task.id]] >= FOLDED_FROM else task.id, len(places))
        for task in tasks
    }
    members: list[list[Task]] = [[] for _ in places]
    children: list[set[int]] = [set() for _ in places]
    for task in tasks:
        members[place_of[task.id]].append(task)
        for parent in parents[task.id]:
            children[place_of[parent]].add(place_of[task.id])
    return _in_order(members, children)


def _in_order(members: Sequence[list[Task]], children: Sequence[set[int]]) -> list[Spot]:
    """A folded spot stands below the last of its parents; all its tasks are equally far down, so there is no cycle."""
    order = parents_first(children)
    seat = {place: position for position, place in enumerate(order)}
    found = [Spot(members[place], [], sorted(seat[child] for child in children[place])) for place in order]
    for position, spot in enumerate(found):
        for child in spot.children:
            found[child].parents.append(position)
    return found


def _kinds(tasks: Sequence[Task], parents: dict[str, list[str]]) -> dict[str, int]:
    """Equal for tasks of one name with parents and dependents that are alike, all the way up and down."""
    numbers: dict[object, int] = {}
    above: dict[str, int] = {}
    for task in tasks:
        kind = ("above", task.name, frozenset(above[parent] for parent in parents[task.id]))
        above[task.id] = numbers.setdefault(kind, len(numbers))
    below_of: dict[str, set[int]] = defaultdict(set)
    kinds: dict[str, int] = {}
    for task in reversed(tasks):
        kind_below = ("below", above[task.id], frozenset(below_of.pop(task.id, ())))
        kinds[task.id] = numbers.setdefault(kind_below, len(numbers))
        for parent in parents[task.id]:
            below_of[parent].add(kinds[task.id])
    return kinds


# Drawing


def _drawn(found: Sequence[Spot]) -> Iterator[Line]:
    """`lanes`: for each column the place that its line leads to, or None where it is free."""
    lanes: list[int | None] = []
    for place, spot in enumerate(found):
        column = _column(lanes, place)
        yield Line(
            " ".join(_MARKS[spot.status] if at == column else _lane(lanes, at) for at in range(len(lanes))), spot
        )
        before = [lane is not None for lane in lanes]
        ends = _continued(lanes, column, spot.children)
        while lanes and lanes[-1] is None:
            lanes.pop()
        straight = ends == {column}
        if ends and not (straight and lanes[column] != place + 1):
            yield Line(_joint(before, lanes, column, ends), None)


def _column(lanes: list[int | None], place: int) -> int:
    """Where its line leads; a free column for one that nobody stands before."""
    if place not in lanes:
        if None not in lanes:
            lanes.append(None)
        lanes[lanes.index(None)] = place
    return lanes.index(place)


def _continued(lanes: list[int | None], column: int, children: Sequence[int]) -> set[int]:
    """End the line at `column` and lead to all of these; the columns where they do."""
    lanes[column] = None
    ends = set()
    for child in children:
        if child not in lanes:
            at = column if lanes[column] is None else len(lanes)
            lanes[at:] = [child, *lanes[at + 1 :]]
        ends.add(lanes.index(child))
    return ends


def _lane(lanes: Sequence[int | None], at: int) -> str:
    return " " if lanes[at] is None else "│"


def _joint(before: Sequence[bool], lanes: Sequence[int | None], column: int, ends: set[int]) -> str:
    """The lines between a task and what comes below it. One that is only crossed goes on unbroken."""
    first, last = min(ends | {column}), max(ends | {column})
    drawn = ""
    for at in range(max(len(before), len(lanes))):
        up = at < len(before) and before[at]
        down = at < len(lanes) and lanes[at] is not None
        touched = at in ends or at == column or not (up or down)
        left, right = touched and first < at <= last, touched and first <= at < last
        drawn += _CORNERS.get((up, down, left, right), " ")
        drawn += "─" if first <= at < last else " "
    return drawn.rstrip()
