"""The tables of the memory store: records, the order in which they are claimed, the event log.

Everything here is done while the store's lock is held. What may happen is decided in store.py and policy/.
"""

from __future__ import annotations

import heapq
import os
import threading
from collections import Counter, deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.model.event import Event, recorded_event
from holdfast.model.query import WorkerInfo
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Fact, Transition
from holdfast.stores.memory.record import Record
from holdfast.wakeups.in_process import Hub


class Row(NamedTuple):
    at: int
    task_id: str
    run_id: str | None
    kind: str
    actor: str
    data: dict[str, Any]


class Line:
    """The queued tasks of one queue, best first.

    Entries are only ever added: one whose record has moved on is dropped when it comes up. Tasks that are not due
    wait in a heap of their own, so that a million of them at a high priority cost a claim nothing.
    """

    def __init__(self) -> None:
        self.paused = False
        self._due: list[tuple[int, int, int, Record]] = []
        self._scheduled: list[tuple[int, int, Record]] = []

    def add(self, record: Record) -> None:
        heapq.heappush(self._scheduled, (record.run_at, record.seq, record))

    def best(self, now: int) -> Record | None:
        """The first claimable task; it stays in line until its status changes."""
        while self._scheduled and self._scheduled[0][0] <= now:
            run_at, seq, record = heapq.heappop(self._scheduled)
            if _in_line(record, run_at):
                heapq.heappush(self._due, (-record.new.priority, run_at, seq, record))
        while self._due:
            _, run_at, _, record = self._due[0]
            if _in_line(record, run_at):
                return record
            heapq.heappop(self._due)
        return None

    def next_due(self) -> int | None:
        while self._scheduled:
            run_at, _, record = self._scheduled[0]
            if _in_line(record, run_at):
                return run_at
            heapq.heappop(self._scheduled)
        return None


def _in_line(record: Record, run_at: int) -> bool:
    return record.status is TaskStatus.QUEUED and record.run_at == run_at


class MemoryState:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.pid = os.getpid()
        self.lock = threading.RLock()
        self.hub = Hub()
        self.records: dict[str, Record] = {}
        self.keys: dict[str, Record] = {}
        self.running: dict[str, Record] = {}
        self.ended: dict[str, Record] = {}
        self.runs: dict[str, dict[str, Record]] = {}
        self.lines: dict[str, Line] = {}
        self.counts: Counter[tuple[str, TaskStatus]] = Counter()
        self.log: list[Row | None] = []
        self.buried: deque[int] = deque()
        self.workers: dict[str, tuple[WorkerInfo, int, int, threading.Thread]] = {}
        self._seq = 0
        self._away_since: int | None = None

    # Records

    def add(self, new: NewTask, run_at: int, now: int) -> Record:
        self._seq += 1
        status = TaskStatus.WAITING if new.parents else TaskStatus.QUEUED
        record = Record(seq=self._seq, new=new, status=status, run_at=run_at, created_at=now)
        self.records[new.id] = record
        if new.idempotency_key is not None:
            self.keys[new.idempotency_key] = record
        if new.run_id is not None:
            self.runs.setdefault(new.run_id, {})[new.id] = record
        self.counts[new.queue, status] += 1
        line = self.lines.setdefault(new.queue, Line())
        if status is TaskStatus.QUEUED:
            line.add(record)
        return record

    def remove(self, record: Record) -> None:
        new = record.new
        del self.records[new.id], self.ended[new.id]
        if new.idempotency_key is not None:
            del self.keys[new.idempotency_key]
        if new.run_id is not None:
            del self.runs[new.run_id][new.id]
            if not self.runs[new.run_id]:
                del self.runs[new.run_id]
        self.counts[new.queue, record.status] -= 1
        for position in record.events:
            self.log[position] = None

    def move(self, record: Record, status: TaskStatus) -> None:
        """Every change of status goes through here, so that lines, counts and sets agree with the record."""
        self.counts[record.new.queue, record.status] -= 1
        self.counts[record.new.queue, status] += 1
        self.running.pop(record.new.id, None)
        self.ended.pop(record.new.id, None)
        record.status = status
        if status is TaskStatus.QUEUED:
            self.lines[record.new.queue].add(record)
        elif status is TaskStatus.RUNNING:
            self.running[record.new.id] = record
        elif status.terminal:
            self.ended[record.new.id] = record

    def write(self, record: Record, transition: Transition, now: int, actor: str) -> None:
        """A verdict or an amendment becomes true, with its events."""
        record.failures = transition.failures
        if transition.delay_ms is not None:
            record.run_at = now + 1000 * transition.delay_ms
        if transition.error is not None:
            record.last_error, record.last_error_at = transition.error, now
        record.result = transition.result
        if transition.status is TaskStatus.RUNNING:
            record.cancel_requested_at = now
        else:
            record.clear_lease()
            record.finished_at = now if transition.status.terminal else None
            if transition.status is TaskStatus.QUEUED:
                record.cancel_requested_at = record.canceled_because = None
            self.move(record, transition.status)
        for fact in transition.facts:
            self.note(record, fact, now, actor)

    def live_run(self, record: Record) -> bool:
        run_id = record.new.run_id
        return run_id is not None and any(not member.status.terminal for member in self.runs[run_id].values())

    # Events

    def note(self, record: Record, fact: Fact, now: int, actor: str) -> None:
        record.events.append(len(self.log))
        self.log.append(Row(now, record.new.id, record.new.run_id, fact.kind, actor, fact.data))

    def bury(self, record: Record, now: int, actor: str) -> None:
        """The one event that outlives its task."""
        self.buried.append(len(self.log))
        self.log.append(Row(now, record.new.id, record.new.run_id, "task.deleted", actor, {"attempt": record.attempt}))

    def forget_buried(self, before: int, limit: int) -> None:
        for _ in range(limit):
            row = self.log[self.buried[0]] if self.buried else None
            if row is None or row.at > before:
                return
            self.log[self.buried.popleft()] = None

    def events(self, after: int) -> Iterator[Event]:
        for position in range(max(after, 0), len(self.log)):
            row = self.log[position]
            if row is not None:
                yield recorded_event(
                    seq=position + 1,
                    at=row.at,
                    task_id=row.task_id,
                    run_id=row.run_id,
                    kind=row.kind,
                    actor=row.actor,
                    data=row.data,
                )

    # Outages: only a test makes one, since this store cannot fail by itself

    def go_away(self) -> None:
        self._away_since = self.clock.micros()

    def come_back(self) -> None:
        """Leases that ran out while the store was away hold for one more lease length (C6.8)."""
        assert self._away_since is not None
        now = self.clock.micros()
        for record in self.running.values():
            if record.lease_expires_at is not None and self._away_since < record.lease_expires_at <= now:
                record.lease_expires_at = now + record.lease_length
        self._away_since = None

    def ensure_here(self) -> None:
        if self._away_since is not None:
            raise StoreUnavailable("the memory store was told to be away")
