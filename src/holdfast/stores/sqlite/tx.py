"""One verb inside a write transaction: its connection, its instant, and what it leaves to be written at the end.

Events are collected in order and inserted in one statement; counts are collected and written once for all verbs that
share the transaction (see writer.py). Tasks whose turn of state concerns others are collected too; the verb ends with
advance.follow(), which goes on from there.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.model.task import TaskStatus
from holdfast.stores.sqlite.statements import json_param, statement

Note = tuple[int | None, str, str, int | None, str | None, str | None, str | None]
"""An event to be written: task, kind, actor, attempt, data, task_id, run_id. A named tuple would slow every settle."""


class Turn(NamedTuple):
    """A task that has ended, or come back from an end, while others may depend on it."""

    seq: int
    id: str
    run_id: str | None
    status: TaskStatus
    canceled_because: str | None
    dependents: int
    fail_fast: str | None
    actor: str


class Tx:
    __slots__ = ("_notes", "conn", "counts", "ends", "known_queues", "leases", "new_queues", "now", "turned", "wakes")

    def __init__(self, conn: sqlite3.Connection, now: int, known_queues: set[str]) -> None:
        self.conn = conn
        self.now = now
        self.known_queues = known_queues
        self.new_queues: set[str] = set()
        self.counts: Counter[tuple[str, TaskStatus]] = Counter()
        self.wakes = False
        """Something has become claimable."""
        self.ends = False
        """A task has ended."""
        self.leases = False
        """It was about leases: holdfast_pulse is to know."""
        self.turned: list[Turn] = []
        self._notes: list[Note] = []

    def run(self, name: str, /, **parameters: Any) -> sqlite3.Cursor:
        return self.conn.execute(statement(name), parameters)

    def row(self, name: str, /, **parameters: Any) -> Any:
        return self.conn.execute(statement(name), parameters).fetchone()

    def moved(self, queue: str, before: TaskStatus, after: TaskStatus, tasks: int = 1) -> None:
        self.counts[queue, before] -= tasks
        self.counts[queue, after] += tasks
        self.wakes |= after is TaskStatus.QUEUED
        self.ends |= after.terminal

    def note(self, task: int, kind: str, actor: str, data: Mapping[str, Any]) -> None:
        self._notes.append((task, kind, actor, None, json_param(data), None, None))

    def note_plain(self, task: int, attempt: int, kind: str, actor: str) -> None:
        """An event whose whole data is in the record."""
        self._notes.append((task, kind, actor, attempt, None, None, None))

    def bury(self, task_id: str, run_id: str | None, actor: str, data: Mapping[str, Any]) -> None:
        """The one event that outlives its task."""
        self._notes.append((None, "task.deleted", actor, None, json_param(data), task_id, run_id))

    def flush(self) -> None:
        if not self._notes:
            return
        _, kind, actor, *_ = self._notes[0]
        if all(note[1] == kind and note[2] == actor and note[4] is None for note in self._notes):
            self.write_plain([note[0] for note in self._notes], kind, actor)
        else:
            self.run("events", events=json_param(self._notes), now=self.now)
        self._notes = []

    def write_plain(self, tasks: list[int | None], kind: str, actor: str) -> None:
        """Plain events of one kind and actor, at once."""
        self.run("plain_events", tasks=json_param(tasks), now=self.now, kind=kind, actor=actor)
