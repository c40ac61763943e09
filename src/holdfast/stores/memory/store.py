"""The store's verbs over the tables of state.py. Each takes the lock, reads the clock once, and is one atomic step."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from itertools import islice
from typing import Any

from holdfast import ids
from holdfast.clock import from_micros, maybe_from_micros, span_micros, to_micros
from holdfast.errors import HoldfastError, InvalidTask, NotSupported, StoreClosed, StoreUnavailable
from holdfast.model.claim import Claim, Claimed, ClaimRequest, Extended, Lease
from holdfast.model.event import Event
from holdfast.model.limits import NO_LIMITS, Limits
from holdfast.model.outcome import Expired, Settlement
from holdfast.model.query import QueueInfo, Retention, TaskFilter, WorkerInfo
from holdfast.model.schedule import NewSchedule, Schedule
from holdfast.model.task import NewTask, Submitted, Task, TaskStatus
from holdfast.model.transition import Amended, Change, Fact, Settled
from holdfast.model.workflow import ParentEnd, RunInfo, Step
from holdfast.policy import refusals
from holdfast.policy.amendment import amendment
from holdfast.policy.backoff import Rng
from holdfast.policy.lease_length import extended_until, lease_length
from holdfast.policy.limits import changed, next_start
from holdfast.policy.repetition import admitted
from holdfast.policy.verdict import verdict
from holdfast.stores.memory.advancing import Advancing
from holdfast.stores.memory.limits import Limiting
from holdfast.stores.memory.lines import Line
from holdfast.stores.memory.record import Record, claim_of, parent_end, run_info, shown
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.protocol import Capabilities, Joining, OwnTransaction


class MemoryStore:
    capabilities = Capabilities(
        durable=False, shared=False, early_reaping=True, limits=True, workflows=True, schedules=True
    )

    def __init__(self, state: MemoryState, *, name: str = "", rng: Rng = ids.JITTER) -> None:
        self._state = state
        self._advancing = Advancing(state)
        self._rng = rng
        self._closed = False
        self.label = f"memory://{name}"
        self.wakeups = self.endings = (state.hub,)

    def _now(self) -> int:
        """Every verb starts here, with the lock held: may it go on, and what time is it?"""
        if self._closed:
            raise StoreClosed(f"{self.label} was closed; open it again to go on")
        if os.getpid() != self._state.pid:
            raise StoreUnavailable(
                f"{self.label} lives in process {self._state.pid} and this is process {os.getpid()}; "
                "use a SQLite or PostgreSQL URL to share tasks between processes"
            )
        self._state.ensure_here()
        return self._state.clock.micros()

    # Submit

    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        with self._state.lock:
            now = self._now()
            answers, fresh = self._admitted(tasks)
            for new in fresh:
                self._add(new, now)
        self._state.hub.announce()
        return answers

    def _admitted(self, tasks: Sequence[NewTask]) -> tuple[list[Submitted], list[NewTask]]:
        """The answers and what is new, or the refusal of all; nothing is written yet."""
        return admitted(
            tasks,
            by_id=lambda task_id: _submitted(self._state.records.get(task_id)),
            by_key=lambda key: _submitted(self._state.keys.get(key)),
        )

    def _add(self, new: NewTask, now: int) -> None:
        run_at = now + span_micros(new.delay_seconds) if new.run_at is None else to_micros(new.run_at)
        record = self._state.add(new, run_at, now)
        data = {"name": new.name, "queue": new.queue, "status": record.status.value}
        self._state.note(record, Fact("task.enqueued", data), now, "client")

    # Claim

    async def claim(self, request: ClaimRequest) -> Claimed:
        with self._state.lock:
            now = self._now()
            held = [record for record in self._state.running.values() if record.claim_id == request.claim_id]
            if held:
                return Claimed([claim_of(record) for record in held], None)
            if request.task_id is not None:
                try:
                    return Claimed([self._claim_one(request, request.task_id, now)], None)
                finally:
                    self._advancing.inline(now)
            return self._claim_best(request, self._open_queues(request.queues), now)

    def _open_queues(self, queues: tuple[str, ...] | None) -> list[str]:
        lines = self._state.lines
        wanted = lines if queues is None else [queue for queue in queues if queue in lines]
        return [queue for queue in wanted if not lines[queue].paused]

    def _claim_best(self, request: ClaimRequest, queues: list[str], now: int) -> Claimed:
        limiting = Limiting(self._state, now)
        start = partial(self._start, request=request, now=now)
        claims = limiting.claims(queues, request.limit, start)
        if len(claims) == request.limit:
            return Claimed(claims, None)
        due = [self._state.lines[queue].next_due(now) for queue in queues] + [limiting.next_token(queues)]
        return Claimed(claims, maybe_from_micros(min((at for at in due if at is not None), default=None)))

    def _claim_one(self, request: ClaimRequest, task_id: str, now: int) -> Claim:
        record = self._known(task_id)
        if record.expired(now):
            self._reap_one(record, now, request.worker_id)
        match record.status:
            case TaskStatus.WAITING:
                raise refusals.waiting(task_id)
            case TaskStatus.RUNNING:
                raise refusals.already_claimed(task_id, record.claimed_by)
            case TaskStatus.QUEUED:
                if record.run_at > now:
                    raise refusals.not_due(task_id, record.run_at)
                if self._state.lines[record.new.queue].paused:
                    raise refusals.paused(task_id, record.new.queue)
                return self._claim_unless_held(record, request, now)
            case ended:
                raise refusals.ended(task_id, ended)

    def _claim_unless_held(self, record: Record, request: ClaimRequest, now: int) -> Claim:
        limiting = Limiting(self._state, now)
        why = limiting.why_held(record)
        if why is not None:
            raise refusals.held(record.new.id, why)
        claim = self._start(record, request, now)
        limiting.spend(claim)
        return claim

    def _start(self, record: Record, request: ClaimRequest, now: int) -> Claim:
        record.attempt += 1
        record.token = ids.token()
        record.claim_id = request.claim_id
        record.claimed_by = request.worker_id
        record.lease_length = lease_length(worker_seconds=request.lease_seconds, task_seconds=record.new.lease)
        record.lease_expires_at = now + record.lease_length
        record.claimed_at = now
        record.started_at = now if record.started_at is None else record.started_at
        self._state.begin(record, begun=True)
        self._state.move(record, TaskStatus.RUNNING)
        data = {"attempt": record.attempt, "max_attempts": record.new.max_attempts}
        self._state.note(record, Fact("task.running", data), now, request.worker_id)
        return claim_of(record)

    # Lease

    async def extend(self, leases: Sequence[Lease]) -> list[Extended | HoldfastError]:
        with self._state.lock:
            now = self._now()
            return [self._extend_one(lease, now) for lease in leases]

    def _extend_one(self, lease: Lease, now: int) -> Extended | HoldfastError:
        record = self._state.records.get(lease.task_id)
        if record is None:
            return refusals.not_found(lease.task_id)
        if not record.holds(lease, now):
            return _lost(record, lease)
        record.lease_expires_at = _extended_until(record, now)
        return Extended(from_micros(record.lease_expires_at), record.cancel_requested_at is not None)

    async def report(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        with self._state.lock:
            now = self._now()
            record = self._known(lease.task_id)
            if not record.holds(lease, now):
                raise _lost(record, lease)
            self._state.note(record, Fact(kind, {"attempt": record.attempt, **data}), now, str(record.claimed_by))

    # Settle

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | HoldfastError]:
        with self._state.lock:
            now = self._now()
            answers = [self._settle_one(settlement, now) for settlement in settlements]
            self._advancing.inline(now)
        self._state.hub.announce()
        return answers

    def _settle_one(self, settlement: Settlement, now: int) -> Settled | HoldfastError:
        lease, outcome = settlement.lease, settlement.outcome
        record = self._state.records.get(lease.task_id)
        if record is None:
            return refusals.not_found(lease.task_id)
        if not record.holds(lease, now):
            return _replayed(record, lease, outcome.kind) or _lost(record, lease)
        actor = str(record.claimed_by)
        transition = verdict(record.facts, outcome, self._rng)
        follow_ups = settlement.follow_ups if transition.status is TaskStatus.COMPLETED else ()
        try:
            _, fresh = self._admitted(follow_ups) if follow_ups else ((), ())
        except HoldfastError as refused:
            return refused
        for emitted in settlement.emitted:
            self._state.note(record, Fact(emitted.kind, {"attempt": record.attempt, **emitted.data}), now, actor)
        self._state.write(record, transition, now, actor)
        record.settled_token, record.settled_as = lease.token, outcome.kind
        record.settled_status = transition.status
        for new in fresh:
            self._add(new, now)
        return Settled(lease.task_id, lease.attempt, transition.status)

    async def reap(self, *, limit: int, actor: str) -> list[Settled]:
        with self._state.lock:
            now = self._now()
            lost = list(islice((record for record in self._state.running.values() if record.expired(now)), limit))
            settled = [self._reap_one(record, now, actor) for record in lost]
            self._advancing.inline(now)
        if settled:
            self._state.hub.announce()
        return settled

    def _reap_one(self, record: Record, now: int, actor: str) -> Settled:
        transition = verdict(record.facts, Expired(), self._rng)
        self._state.write(record, transition, now, actor)
        return Settled(record.new.id, record.attempt, transition.status)

    # Acts of an operator

    async def amend(self, change: Change, task_ids: Sequence[str], *, actor: str) -> list[Amended | HoldfastError]:
        with self._state.lock:
            now = self._now()
            answers = [self._amend_one(change, task_id, now, actor) for task_id in task_ids]
            self._advancing.inline(now)
        self._state.hub.announce()
        return answers

    def _amend_one(self, change: Change, task_id: str, now: int, actor: str) -> Amended | HoldfastError:
        record = self._state.records.get(task_id)
        if record is None:
            return refusals.not_found(task_id)
        before = record.status, record.cancel_requested_at
        if record.expired(now) and change is not Change.DELETE:
            if change is Change.CANCEL:
                record.cancel_requested_at = now
            self._reap_one(record, now, actor)
            if change is Change.RELEASE:
                return Amended(task_id, record.status, changed=True)
        amended = amendment(
            change,
            task_id,
            record.status,
            record.facts,
            record.claimed_by,
            pending=record.pending,
            blocked_by=record.blocked_by,
        )
        if isinstance(amended, HoldfastError):
            return amended
        if change is Change.DELETE:
            return self._delete_one(record, now, actor)
        if amended is not None:
            self._state.write(record, amended, now, actor)
        return Amended(task_id, record.status, changed=(record.status, record.cancel_requested_at) != before)

    def _delete_one(self, record: Record, now: int, actor: str) -> Amended | HoldfastError:
        if self._state.live_run(record):
            return refusals.live_run(record.new.id, str(record.new.run_id))
        self._state.remove(record)
        self._state.bury(record, now, actor)
        return Amended(record.new.id, None, changed=True)

    async def prune(self, retention: Retention, *, limit: int) -> int:
        with self._state.lock:
            now = self._now()
            old = [record for record in self._state.ended.values() if _outlived(record, retention, now)]
            gone = [record for record in old if not self._state.live_run(record)][:limit]
            for record in gone:
                self._state.remove(record)
            if retention.completed is not None:
                self._state.forget_buried(now - span_micros(retention.completed.total_seconds()), limit)
            return len(gone)

    async def pause(self, queue: str, *, paused: bool) -> None:
        with self._state.lock:
            self._now()
            self._state.lines.setdefault(queue, Line()).paused = paused
        self._state.hub.announce()

    async def limit(self, queue: str, changes: Mapping[str, Any]) -> Limits:
        with self._state.lock:
            now = self._now()
            line = self._state.lines.get(queue)
            made = changed(queue, NO_LIMITS if line is None else line.limits, changes)
            self._state.limit(queue, made, now)
        self._state.hub.announce()
        return made

    # Workflows and steps

    async def advance(self, *, limit: int, actor: str) -> int:  # noqa: ARG002  the one whose settle began it is the actor
        with self._state.lock:
            done = self._advancing.advance(self._now(), limit)
        if done:
            self._state.hub.announce()
        return done

    async def parents(self, task_id: str, *, after: int, limit: int) -> list[ParentEnd]:
        with self._state.lock:
            self._now()
            record = self._state.records.get(task_id)
            named = [] if record is None else record.new.parents[after : after + limit]
            found = (self._state.records.get(parent_id) for parent_id in named)
            return [parent_end(parent) for parent in found if parent is not None]

    async def run(self, run_id: str) -> RunInfo | None:
        with self._state.lock:
            self._now()
            members = self._state.runs.get(run_id)
            return None if members is None else run_info(run_id, list(members.values()))

    async def run_lives(self, run_id: str) -> bool:
        with self._state.lock:
            self._now()
            return any(not member.status.terminal for member in self._state.runs.get(run_id, {}).values())

    async def runs(self, *, limit: int, after: str | None) -> list[RunInfo]:
        with self._state.lock:
            self._now()
            newest = sorted(self._state.runs, key=lambda run_id: min(self._state.runs[run_id]), reverse=True)
            if after is not None:
                if after not in newest:
                    raise InvalidTask(f"`after` names run {after}, which does not exist; start from the first page")
                newest = newest[newest.index(after) + 1 :]
            return [run_info(run_id, list(self._state.runs[run_id].values())) for run_id in newest[:limit]]

    async def record_step(self, lease: Lease, name: str, result: str) -> Step:
        with self._state.lock:
            now = self._now()
            record = self._known(lease.task_id)
            if not record.holds(lease, now):
                raise _lost(record, lease)
            return record.steps.setdefault(name, Step(name, result, from_micros(now)))

    async def steps(self, task_id: str) -> list[Step]:
        with self._state.lock:
            self._now()
            record = self._state.records.get(task_id)
            return [] if record is None else list(record.steps.values())

    # Reads

    async def get(self, task_id: str) -> Task | None:
        with self._state.lock:
            self._now()
            record = self._state.records.get(task_id)
            return None if record is None else shown(record)

    async def find(self, idempotency_key: str) -> Task | None:
        with self._state.lock:
            self._now()
            record = self._state.keys.get(idempotency_key)
            return None if record is None else shown(record)

    async def ended(self, task_ids: Sequence[str], *, limit: int) -> dict[str, Task | None]:
        with self._state.lock:
            self._now()
            unknown = [task_id for task_id in task_ids if task_id not in self._state.records]
            over = (record for task_id in task_ids if (record := self._state.ended.get(task_id)) is not None)
            return dict.fromkeys(unknown) | {record.new.id: shown(record) for record in islice(over, limit)}

    async def page(self, wanted: TaskFilter) -> list[Task]:
        with self._state.lock:
            self._now()
            below = None
            if wanted.after is not None:
                if wanted.after not in self._state.records:
                    raise InvalidTask(
                        f"`after` names task {wanted.after}, which does not exist; start from the first page"
                    )
                below = self._state.records[wanted.after].seq
            matching = (record for record in reversed(self._state.records.values()) if _matches(record, wanted, below))
            return [shown(record) for record in islice(matching, wanted.limit)]

    async def events(self, task_id: str | None, *, after: int, limit: int) -> list[Event]:
        with self._state.lock:
            self._now()
            every = self._state.events(after)
            return list(islice((event for event in every if task_id is None or event.task_id == task_id), limit))

    async def queues(self) -> list[QueueInfo]:
        with self._state.lock:
            now = self._now()
            return [self._queue_info(name, now) for name in sorted(self._state.lines)]

    def _queue_info(self, name: str, now: int) -> QueueInfo:
        counts = {status.value: self._state.counts[name, status] for status in TaskStatus}
        shown_counts = {status: count for status, count in counts.items() if count}
        line = self._state.lines[name]
        return QueueInfo(
            name=name,
            paused=line.paused,
            counts=shown_counts,
            limits=line.limits,
            next_start_at=next_start(line.limits, line.tat, now),
        )

    async def now(self) -> datetime:
        with self._state.lock:
            return from_micros(self._now())

    # Workers

    async def enroll(self, worker: WorkerInfo) -> None:
        with self._state.lock:
            now = self._now()
            known = self._state.workers.get(worker.id)
            started = now if known is None else known[1]
            holder = threading.current_thread() if known is None else known[3]
            self._state.workers[worker.id] = (worker, started, now, holder)

    async def leave(self, worker_id: str) -> None:
        with self._state.lock:
            now = self._now()
            self._state.workers.pop(worker_id, None)
            self._end_leases(worker_id, now)

    async def workers(self) -> list[WorkerInfo]:
        with self._state.lock:
            self._now()
            running: dict[str | None, int] = {}
            for record in self._state.running.values():
                running[record.claimed_by] = running.get(record.claimed_by, 0) + 1
            return [
                _worker_shown(worker, started, seen, running.get(worker.id, 0))
                for worker, started, seen, _ in self._state.workers.values()
            ]

    async def evict(self, *, actor: str) -> list[str]:  # noqa: ARG002
        """The evidence in this process: the thread that enrolled the worker has ended."""
        with self._state.lock:
            now = self._now()
            gone = [name for name, (_, _, _, holder) in self._state.workers.items() if not holder.is_alive()]
            for worker_id in gone:
                del self._state.workers[worker_id]
                self._end_leases(worker_id, now)
            return gone

    def _end_leases(self, worker_id: str, now: int) -> None:
        for record in self._state.running.values():
            if record.claimed_by == worker_id and record.lease_expires_at is not None:
                record.lease_expires_at = min(now, record.lease_expires_at)

    # Schedules

    async def declare_schedule(self, new: NewSchedule) -> Schedule:
        with self._state.lock:
            return self._state.schedules.declare(new, from_micros(self._now()))

    async def schedules(self) -> list[Schedule]:
        with self._state.lock:
            self._now()
            return self._state.schedules.all()

    async def fire(self, name: str, *, last_fired_at: datetime, upto: datetime, tasks: Sequence[NewTask]) -> bool:
        with self._state.lock:
            now = self._now()
            if not self._state.schedules.stands_at(name, last_fired_at):
                return False
            _, fresh = self._admitted(tasks)
            self._state.schedules.move(name, upto)
            for new in fresh:
                self._add(new, now)
        self._state.hub.announce()
        return True

    async def pause_schedule(self, name: str, *, paused: bool) -> None:
        with self._state.lock:
            self._state.schedules.pause(name, from_micros(self._now()), paused=paused)

    async def delete_schedule(self, name: str) -> None:
        with self._state.lock:
            self._now()
            self._state.schedules.delete(name)

    # The store itself

    async def check(self) -> list[tuple[str, bool, str]]:
        return [("durable", False, "the memory store loses everything when its process ends; it is for tests")]

    async def migrate(self, *, dry_run: bool = False) -> list[str]:  # noqa: ARG002
        return []

    async def joining(self) -> Joining:
        raise NotSupported("tasks in memory have no transaction to join; use a SQLite or PostgreSQL URL")

    def own_transaction(self) -> OwnTransaction:
        raise NotSupported("tasks in memory have no transaction to offer; use a SQLite or PostgreSQL URL")

    async def close(self) -> None:
        self._closed = True

    def _known(self, task_id: str) -> Record:
        record = self._state.records.get(task_id)
        if record is None:
            raise refusals.not_found(task_id)
        return record


def _submitted(record: Record | None) -> NewTask | None:
    return None if record is None else record.new


def _lost(record: Record, lease: Lease) -> HoldfastError:
    return refusals.lease_lost(lease, refusals.why_lost(lease, status=record.status, attempt=record.attempt))


def _replayed(record: Record, lease: Lease, kind: str) -> Settled | None:
    """The first answer once more, for a settle whose reply was lost."""
    recorded = (record.attempt, record.settled_token, record.settled_as)
    if recorded != (lease.attempt, lease.token, kind) or record.settled_status is None:
        return None
    return Settled(lease.task_id, lease.attempt, record.settled_status)


def _extended_until(record: Record, now: int) -> int:
    assert record.claimed_at is not None
    assert record.lease_expires_at is not None
    return extended_until(
        now,
        length=record.lease_length,
        expires_at=record.lease_expires_at,
        claimed_at=record.claimed_at,
        timeout=record.new.timeout,
    )


def _outlived(record: Record, retention: Retention, now: int) -> bool:
    age = retention.age_of(record.status)
    return (
        age is not None
        and record.finished_at is not None
        and record.finished_at <= now - span_micros(age.total_seconds())
    )


def _matches(record: Record, wanted: TaskFilter, below: int | None) -> bool:
    return (
        (below is None or record.seq < below)
        and (wanted.status is None or record.status == wanted.status)
        and (wanted.queue is None or record.new.queue == wanted.queue)
        and (wanted.name is None or record.new.name == wanted.name)
        and (wanted.run_id is None or record.new.run_id == wanted.run_id)
        and (not wanted.last or not record.edges)
        and (
            wanted.finished_before is None
            or (record.finished_at is not None and record.finished_at < to_micros(wanted.finished_before))
        )
    )


def _worker_shown(worker: WorkerInfo, started: int, seen: int, running: int) -> WorkerInfo:
    return WorkerInfo(
        id=worker.id,
        host=worker.host,
        pid=worker.pid,
        queues=worker.queues,
        concurrency=worker.concurrency,
        version=worker.version,
        names=worker.names,
        started_at=from_micros(started),
        seen_at=from_micros(seen),
        running=running,
    )
