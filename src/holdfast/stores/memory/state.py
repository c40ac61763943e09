"""The tables of the memory store: records, the order in which they are claimed, the event log.

Everything here is done while the store's lock is held. What may happen is decided in acts.py and policy/.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.clock import Clock
from holdfast.errors import StoreUnavailable
from holdfast.model.event import Event, recorded_event
from holdfast.model.limits import Limits
from holdfast.model.query import WorkerInfo
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.token import Token
from holdfast.model.transition import Fact, Transition
from holdfast.policy import workflow
from holdfast.policy.limits import Turns, carried_over
from holdfast.stores.memory.datasets import Datasets
from holdfast.stores.memory.lines import Line
from holdfast.stores.memory.outbox import Outbox
from holdfast.stores.memory.record import Edge, Record
from holdfast.stores.memory.schedules import Schedules
from holdfast.wakeups.in_process import Hub


class Row(NamedTuple):
    at: int
    task_id: str
    run_id: str | None
    kind: str
    actor: str
    data: dict[str, Any]


Place = tuple[int, int]
"""Of an edge among those that leave a task: the child's order of submission, and which of its parents this is."""
BEGIN: Place = (0, -1)


class Work(NamedTuple):
    """What the end of a task, or its return, means for others, as far as it is still to be done (see advancing.py)."""

    kind: str
    task_id: str
    run_id: str | None
    actor: str
    after: Place = BEGIN
    """Of its dependents: the last that was told."""

    @property
    def name(self) -> str:
        """There is one at most: what is begun anew replaces what was left of the former."""
        return f"{self.kind}-{self.task_id}"


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
        self.because: dict[str, dict[str, Record]] = {}
        """By the id of the task that is the reason: what is canceled because of it."""
        self.begun: dict[tuple[str, str], dict[str, Record]] = {}
        """By queue and key: tasks that were claimed and have not ended."""
        self.turns = Turns()
        self.turned: deque[tuple[Record, str]] = deque()
        """Records that have just ended, or come back from an end, and by whom: their dependents are to follow."""
        self.left: dict[str, Work] = {}
        """By name: what was too much for the verb that began it."""
        self.instant = 0
        """Of the verb that advances."""
        self.log: list[Row | None] = []
        self.buried: deque[int] = deque()
        self.workers: dict[str, tuple[WorkerInfo, int, int, threading.Thread]] = {}
        self.schedules = Schedules()
        self.outbox = Outbox()
        self.datasets = Datasets()
        self.tokens: dict[str, Token] = {}
        self._seq = 0
        self._away_since: int | None = None

    # For others

    def touch(self, record: Record) -> None:
        """About to change, to be removed, or just made and not yet among the records. A store that keeps its records
        elsewhere overrides this.
        """

    def touch_line(self, queue: str) -> None:
        """About to be paused, resumed, limited, or to spend of its rate; it may not have a line yet. As touch()."""

    # Records

    def add(self, new: NewTask, run_at: int, now: int) -> Record:
        self._seq += 1
        status = TaskStatus.WAITING if new.parents else TaskStatus.QUEUED
        parents = tuple(self.records[parent_id] for parent_id in new.parents)
        record = Record(self._seq, new, status, run_at, created_at=now, parents=parents, pending=len(parents))
        self.touch(record)
        for at, parent in enumerate(parents):
            self.touch(parent)
            parent.link(record, at)
        self.records[new.id] = record
        if new.idempotency_key is not None:
            self.keys[new.idempotency_key] = record
        if new.run_id is not None:
            self.runs.setdefault(new.run_id, {})[new.id] = record
        self.counts[new.queue, status] += 1
        line = self.lines.setdefault(new.queue, Line())
        if status is TaskStatus.QUEUED:
            line.add(record)
            self.outbox.wake(record, now)
        return record

    def begin(self, record: Record, *, begun: bool) -> None:
        self.touch(record)
        record.begun = begun
        if record.new.concurrency_key is None:
            return
        place = record.new.queue, record.new.concurrency_key
        if begun:
            self.begun.setdefault(place, {})[record.new.id] = record
        elif place in self.begun:
            self.begun[place].pop(record.new.id, None)
            if not self.begun[place]:
                del self.begun[place]

    def remove(self, record: Record) -> None:
        self.touch(record)
        new = record.new
        self.blame(record, None)
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

    def move(self, record: Record, status: TaskStatus, now: int) -> None:
        """Every change of status goes through here, so that lines, counts and sets agree with the record."""
        self.touch(record)
        self.counts[record.new.queue, record.status] -= 1
        self.counts[record.new.queue, status] += 1
        self.running.pop(record.new.id, None)
        self.ended.pop(record.new.id, None)
        record.status = status
        if status is TaskStatus.QUEUED:
            self.lines[record.new.queue].add(record)
            self.outbox.wake(record, now)
        elif status is TaskStatus.RUNNING:
            self.running[record.new.id] = record
        elif status.terminal:
            self.ended[record.new.id] = record

    def blame(self, record: Record, because: str | None) -> None:
        """Every change of `canceled_because` goes through here."""
        self.touch(record)
        if record.canceled_because is not None:
            self.because[record.canceled_because].pop(record.new.id, None)
            if not self.because[record.canceled_because]:
                del self.because[record.canceled_because]
        record.canceled_because = because
        if because is not None:
            self.because.setdefault(because, {})[record.new.id] = record
            if because in self.records:
                self.touch(self.records[because])  # whoever requeues it at the same moment has to know this one

    def write(self, record: Record, transition: Transition, now: int, actor: str) -> None:
        """A verdict or an amendment becomes true, with its events."""
        self.touch(record)
        before = record.status
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
            if transition.status.terminal or before.terminal:
                self.begin(record, begun=False)
                if record.awaited or before.terminal or record.new.fail_fast is not None:
                    self.turned.append((record, actor))
            if transition.status in (TaskStatus.QUEUED, TaskStatus.WAITING):
                record.cancel_requested_at = None
            if transition.status is not TaskStatus.CANCELED and record.canceled_because is not None:
                self.blame(record, None)
            self.move(record, transition.status, now)
        for fact in transition.facts:
            self.note(record, fact, now, actor)

    def pause(self, queue: str, *, paused: bool) -> None:
        self.touch_line(queue)
        self.lines.setdefault(queue, Line()).paused = paused

    def limit(self, queue: str, limits: Limits, now: int) -> None:
        self.touch_line(queue)
        line = self.lines.setdefault(queue, Line())
        line.tat = carried_over(limits, line.tat, now)
        queued = [one for one in self.records.values() if one.status is TaskStatus.QUEUED and one.new.queue == queue]
        line.limit(limits, queued)

    def live_run(self, record: Record) -> bool:
        run_id = record.new.run_id
        return run_id is not None and any(not member.status.terminal for member in self.runs[run_id].values())

    # Who waits for whom; a store that does not have every record at hand overrides these

    def edges(self, record: Record, after: Place) -> Sequence[Edge]:
        """To those that wait for it, in the order of their places, behind this one."""
        return record.edges[bisect_right(record.edges, after, key=lambda edge: (edge.child.seq, edge.at)) :]

    def count(self, record: Record, edge: Edge) -> None:
        """The child has one less to wait for, once and for all."""
        self.touch(record)
        self.touch(edge.child)
        edge.counted = True
        edge.child.pending -= 1

    def parents(self, record: Record) -> Sequence[Record]:
        return record.parents

    def blockers(self, record: Record) -> Iterator[Record]:
        """Parents whose end keeps it from running."""
        if record.new.on_parent_failure != workflow.RUNS_ANYWAY:
            ends = (TaskStatus.FAILED, TaskStatus.CANCELED)
            yield from (parent for parent in self.parents(record) if parent.status in ends)

    def blocked_by(self, record: Record) -> str | None:
        return next((parent.new.id for parent in self.blockers(record)), None)

    def is_blamed(self, record: Record) -> bool:
        return record.new.id in self.because

    def blamed(self, record: Record) -> list[Record]:
        """What is canceled because of it: parents first."""
        return sorted(self.because.get(record.new.id, {}).values(), key=lambda one: one.seq)

    def leave(self, work: Work) -> None:
        """This is still to be done."""
        self.left[work.name] = work

    def finish(self, work: Work) -> None:
        """Nothing is left of it."""
        self.left.pop(work.name, None)

    def worked_on(self, work: Work) -> Record | None:
        return self.records.get(work.task_id)

    # Events

    def note(self, record: Record, fact: Fact, now: int, actor: str) -> None:
        self.touch(record)
        record.logged(len(self.log))
        self._log(record, Row(now, record.new.id, record.new.run_id, fact.kind, actor, fact.data))

    def bury(self, record: Record, now: int, actor: str) -> None:
        """The one event that outlives its task."""
        self.buried.append(len(self.log))
        data = {"attempt": record.attempt}
        self._log(record, Row(now, record.new.id, record.new.run_id, "task.deleted", actor, data))

    def _log(self, record: Record, row: Row) -> None:
        self.log.append(row)
        if self.outbox.sinks:
            self.outbox.note(record, self._event(len(self.log) - 1, row), row.at)

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
                yield self._event(position, row)

    def _event(self, position: int, row: Row) -> Event:
        return recorded_event(
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
                self.touch(record)
                record.lease_expires_at = now + record.lease_length
        self._away_since = None

    def ensure_here(self) -> None:
        if self._away_since is not None:
            raise StoreUnavailable("the memory store was told to be away")
