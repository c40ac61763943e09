"""One verb inside a write transaction: its connection, its instant, and what it leaves to be written at the end.

Events are collected in order and inserted in one statement; counts are collected and written once for all verbs that
share the transaction (see writer.py).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from holdfast.model.task import TaskStatus
from holdfast.stores.sqlite.statements import json_param, statement


class Note(NamedTuple):
    """An event to be written. `task` is a seq; a tombstone has `task_id` and `run_id` instead."""

    task: int | None
    kind: str
    actor: str
    attempt: int | None = None
    data: str | None = None
    task_id: str | None = None
    run_id: str | None = None


class Tx:
    __slots__ = ("conn", "counts", "known_queues", "leases", "new_queues", "notes", "now", "wakes")

    def __init__(self, conn: sqlite3.Connection, now: int, known_queues: set[str]) -> None:
        self.conn = conn
        self.now = now
        self.known_queues = known_queues
        self.new_queues: set[str] = set()
        self.counts: Counter[tuple[str, str]] = Counter()
        self.notes: list[Note] = []
        self.wakes = False
        """Something has become claimable."""
        self.leases = False
        """It was about leases: holdfast_pulse is to know."""

    def run(self, name: str, **parameters: Any) -> sqlite3.Cursor:
        return self.conn.execute(statement(name), parameters)

    def row(self, name: str, **parameters: Any) -> Any:
        return self.conn.execute(statement(name), parameters).fetchone()

    def moved(self, queue: str, before: TaskStatus, after: TaskStatus) -> None:
        self.counts[queue, before.value] -= 1
        self.counts[queue, after.value] += 1
        self.wakes |= after is TaskStatus.QUEUED

    def note(self, task: int, kind: str, actor: str, data: Mapping[str, Any]) -> None:
        self.notes.append(Note(task, kind, actor, data=json_param(data)))

    def plain(self, task: int, attempt: int, kind: str, actor: str) -> None:
        """An event whose whole data is in the record."""
        self.notes.append(Note(task, kind, actor, attempt))

    def flush(self) -> None:
        if not self.notes:
            return
        first = self.notes[0]
        if all(note.data is None and note.kind == first.kind and note.actor == first.actor for note in self.notes):
            tasks = json_param([note.task for note in self.notes])
            self.run("plain_events", tasks=tasks, now=self.now, kind=first.kind, actor=first.actor)
        else:
            self.run("events", events=json_param(self.notes), now=self.now)
        self.notes = []
