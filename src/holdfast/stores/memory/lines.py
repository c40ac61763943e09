"""The queued tasks of a queue in the order of claims: one lane for all of them, or one per key while keys are limited.

Entries are only ever added: one whose record has moved on is dropped when it comes up. Tasks that are not due wait in
a heap of their own, so that a million of them at a high priority cost a claim nothing.
"""

from __future__ import annotations

import heapq

from holdfast.model.limits import NO_LIMITS, Limits
from holdfast.model.task import TaskStatus
from holdfast.stores.memory.record import Record

Order = tuple[int, int, int]
"""Priority (the highest first), run_at, order of submission."""


def order(record: Record) -> Order:
    return -record.new.priority, record.run_at, record.seq


class Lane:
    def __init__(self, *, ordered: bool = False) -> None:
        self._ordered = ordered
        self._due: list[tuple[int, int, int, Record]] = []
        self._scheduled: list[tuple[int, int, Record]] = []

    def add(self, record: Record) -> None:
        heapq.heappush(self._scheduled, (record.run_at, record.seq, record))

    def best(self, now: int) -> Record | None:
        """The first claimable task; it stays in line until its status changes."""
        while self._scheduled and self._scheduled[0][0] <= now:
            run_at, seq, record = heapq.heappop(self._scheduled)
            if _in_line(record, run_at):
                priority = 0 if self._ordered else -record.new.priority
                heapq.heappush(self._due, (priority, run_at, seq, record))
        while self._due:
            _, run_at, _, record = self._due[0]
            if _in_line(record, run_at):
                return record
            heapq.heappop(self._due)
        return None

    def next_due(self, now: int) -> int | None:
        self.best(now)  # what is due meanwhile goes to the others
        while self._scheduled:
            run_at, _, record = self._scheduled[0]
            if _in_line(record, run_at):
                return run_at
            heapq.heappop(self._scheduled)
        return None


def _in_line(record: Record, run_at: int) -> bool:
    return record.status is TaskStatus.QUEUED and record.run_at == run_at


class Line:
    def __init__(self) -> None:
        self.paused = False
        self.limits: Limits = NO_LIMITS
        self.tat = 0
        self._lanes: dict[str | None, Lane] = {None: Lane()}

    def limit(self, limits: Limits, queued: list[Record]) -> None:
        """From now on these limits; `queued` is all that stands in line."""
        self.limits = limits
        self._lanes = {}
        for record in queued:
            self.add(record)

    def add(self, record: Record) -> None:
        per_key = self.limits.max_running_per_key
        key = record.new.concurrency_key if per_key is not None else None
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = Lane(ordered=per_key == 1 and key is not None)
        lane.add(record)

    @property
    def lanes(self) -> list[tuple[str | None, Lane]]:
        return list(self._lanes.items())

    def next_due(self, now: int) -> int | None:
        return min((due for lane in self._lanes.values() if (due := lane.next_due(now)) is not None), default=None)
