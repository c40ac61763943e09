"""Nothing of a record or a line changes before it was touched: a store that keeps them elsewhere relies on it.

Watched compares everything with what it was, at the first touch of a verb and when the verb's lock is let go.
"""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import Callable
from operator import attrgetter
from types import TracebackType
from typing import Any

import pytest
from hypothesis.stateful import invariant

from holdfast.clock import Clock, from_micros
from holdfast.model.limits import NO_LIMITS
from holdfast.model.task import NewTask
from holdfast.model.workflow import Step
from holdfast.stores.memory.record import Edge, Record
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.protocol import StoreFactory
from holdfast.testing.conformance import ALL_CASES, Case, run_case
from holdfast.testing.virtual_clock import VirtualClock
from tests.conformance.subjects import OpenFresh, QuarterRng, memory_subject
from tests.conformance.test_state_machine import BOUNDED, Side, Twins

NEW_LINE = (False, NO_LIMITS, 0)
FIELDS = [one.name for one in dataclasses.fields(Record)]
OWN: dict[type, Callable[[Any], Any]] = {
    Record: id,
    Edge: lambda edge: (id(edge.child), edge.counted),
    list: lambda values: tuple(_copied(one) for one in values),
    tuple: lambda values: tuple(_copied(one) for one in values),
    dict: lambda values: tuple(values.items()),
}
"""Other records stand for themselves; what a record holds of its own is copied. All else cannot change."""

_fields_of = attrgetter(*FIELDS)


def copied(record: Record) -> list[Any]:
    return [_copied(value) for value in _fields_of(record)]


def _copied(value: Any) -> Any:
    make = OWN.get(type(value))
    return value if make is None else make(value)


class Watched(MemoryState):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.lock: Any = WatchedLock(self)
        self.faults: list[str] = []
        self._before: dict[str, list[Any]] = {}
        self._lines_before: dict[str, Any] = {}
        self._touched: set[str] = set()
        self._touched_lines: set[str] = set()

    def touch(self, record: Record) -> None:
        task_id = record.new.id
        if task_id not in self._touched:
            self._compare(task_id, record if task_id in self.records else None)
            self._touched.add(task_id)

    def touch_line(self, queue: str) -> None:
        if queue not in self._touched_lines:
            self._compare_line(queue)
            self._touched_lines.add(queue)

    def look(self) -> None:
        """A verb is over."""
        for task_id in self._before.keys() | self.records.keys():
            if task_id not in self._touched:
                self._compare(task_id, self.records.get(task_id))
        for queue in self.lines.keys() - self._touched_lines:
            self._compare_line(queue)
        for task_id in self._touched:
            self._before.pop(task_id, None)
            if task_id in self.records:
                self._before[task_id] = copied(self.records[task_id])
        self._lines_before = {queue: self._line(queue) for queue in self.lines}
        self._touched.clear()
        self._touched_lines.clear()

    def _compare(self, task_id: str, record: Record | None) -> None:
        before, after = self._before.get(task_id), None if record is None else copied(record)
        if before is None or after is None:
            if before is not after:
                self.faults.append(f"untouched, but {'made' if before is None else 'removed'}: {task_id}")
        elif before != after:
            changed = [name for name, old, new in zip(FIELDS, before, after, strict=True) if old != new]
            self.faults.append(f"untouched, but changed: {task_id} {changed}")

    def _compare_line(self, queue: str) -> None:
        """One that is new in here came with its first task, and is as all new ones are."""
        before = self._lines_before.get(queue, NEW_LINE)
        if self._line(queue) != before:
            self.faults.append(f"untouched, but changed: line {queue}")

    def _line(self, queue: str) -> Any:
        line = self.lines.get(queue)
        return NEW_LINE if line is None else (line.paused, line.limits, line.tat)


class WatchedLock:
    def __init__(self, state: Watched) -> None:
        self._state = state
        self._lock = threading.RLock()
        self._depth = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._state.look()
        self._lock.release()


class Watcher:
    """Makes such states, and knows them."""

    def __init__(self) -> None:
        self.states: list[Watched] = []

    def __call__(self, clock: Clock) -> Watched:
        self.states.append(Watched(clock))
        return self.states[-1]

    @property
    def faults(self) -> list[str]:
        return [fault for state in self.states for fault in state.faults]


# Everything is compared after every verb: thousands of records in thousands of verbs would show nothing more.
CASES = [case for case in ALL_CASES if case.name != "a_large_batch_is_kept_like_a_small_one"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_nothing_changes_untouched_while(case: Case) -> None:
    watcher = Watcher()
    lacking = run_case(case, lambda: memory_subject(watcher))
    if lacking is not None:
        pytest.skip(f"memory has no {lacking}")
    assert watcher.faults == []


class WatchedTwins(Twins):
    """A random life, of which both sides are watched."""

    under_test = "memory"

    def __init__(self) -> None:
        self.watcher = Watcher()
        super().__init__()

    def _open(self, fresh: OpenFresh) -> tuple[Callable[[], None], Side]:
        def watched(clock: VirtualClock) -> tuple[StoreFactory, Callable[[], None]]:
            state = self.watcher(clock)
            return lambda: MemoryStore(state, rng=QuarterRng()), lambda: None

        return super()._open(watched)

    @invariant()
    def nothing_changed_untouched(self) -> None:
        assert self.watcher.faults == []


TestARandomLife = WatchedTwins.TestCase
TestARandomLife.settings = BOUNDED


# Acts that forget to touch

Sly = Callable[[Watched, Record], object]


def _touched_too_late(state: Watched, record: Record) -> None:
    record.attempt = 7
    state.touch(record)


def _touched_the_child(state: Watched, record: Record) -> None:
    state.touch(record.edges[0].child)
    record.edges[0].counted = True


SLY: dict[str, Sly] = {
    "a field": lambda _, record: setattr(record, "attempt", 7),
    "a field, before it is touched": _touched_too_late,
    "an edge, of which the other end is touched": _touched_the_child,
    "the edges": lambda _, record: record.link(record),
    "the steps": lambda _, record: record.keep(Step("s", "1", from_micros(0))),
    "the events": lambda _, record: record.logged(7),
    "the records": lambda state, record: state.records.pop(record.new.id),
    "a line": lambda state, record: setattr(state.lines[record.new.queue], "tat", 7),
}


@pytest.mark.parametrize("what", SLY)
def test_the_watch_notices_a_change_of(what: str) -> None:
    state = Watched(VirtualClock())
    parent = NewTask(id="p", name="charge", payload="null", run_id="r")
    child = NewTask(id="c", name="charge", payload="null", run_id="r", parents=("p",))
    asyncio.run(MemoryStore(state).submit([parent, child]))
    assert state.faults == []
    with state.lock:
        SLY[what](state, state.records["p"])
    assert len(state.faults) == 1
