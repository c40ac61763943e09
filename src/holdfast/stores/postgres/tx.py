"""One verb inside a transaction: its session, its instant, and what it leaves to be written at the end.

Events are collected in order and inserted in one statement, likewise the counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from holdfast.model.task import TaskStatus
from holdfast.stores.postgres.fronts import Queued
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.rows import Record
from holdfast.stores.postgres.statements import json_text

_COLUMNS = tuple(TaskStatus)
"""In the order of the columns of `counts`."""


class Turned(NamedTuple):
    """A record that has ended, or come back from an end, and by whom."""

    record: Record
    actor: str


class Tx:
    def __init__(self, session: Session) -> None:
        self.session = session
        self.counts: Counter[tuple[str, TaskStatus]] = Counter()
        self.queued: list[Queued] = []
        """What has become claimable, now or at its time."""
        self.ends = False
        """A task has ended."""
        self.turned: list[Turned] = []
        """What this means for others is to follow (advance.py)."""
        self.resumed: list[str] = []
        """Tasks for which something may be left to follow, since they ended without us."""
        self._now: datetime | None = None
        self._notes: list[tuple[object, ...]] = []

    @property
    def now(self) -> datetime:
        assert self._now is not None, "the clock is read when the rows are locked"
        return self._now

    def read_clock(self, now: datetime) -> None:
        """The first reading holds for the whole verb."""
        self._now = self._now or now

    def moved(self, queue: str, before: TaskStatus, after: TaskStatus) -> None:
        self.counts[queue, before] -= 1
        self.counts[queue, after] += 1
        self.ends |= after.terminal

    def note(self, task_id: str, kind: str, actor: str, data: Mapping[str, Any]) -> None:
        self._notes.append((task_id, kind, actor, None, json_text(data), None))

    def note_plain(self, task_id: str, attempt: int, kind: str, actor: str) -> None:
        """An event whose whole data is in the record."""
        self._notes.append((task_id, kind, actor, attempt, None, None))

    def bury(self, task_id: str, run_id: str | None, actor: str, data: Mapping[str, Any]) -> None:
        """The one event that outlives its task."""
        self._notes.append((task_id, "task.deleted", actor, None, json_text(data), run_id))

    async def flush_notes(self) -> None:
        notes, self._notes = self._notes, []
        if notes:
            await self.session.rows("events", self.now, *map(list, zip(*notes, strict=True)))

    async def flush(self) -> None:
        await self.flush_notes()
        late = sorted({queued for queued in self.queued if queued.run_at < self.now})
        if late:
            await self.session.rows("late", *map(list, zip(*late, strict=True)))
        queues = sorted({queue for (queue, _), n in self.counts.items() if n})
        if queues:
            deltas = [[self.counts[queue, status] for queue in queues] for status in _COLUMNS]
            await self.session.rows("counts", queues, *deltas)
