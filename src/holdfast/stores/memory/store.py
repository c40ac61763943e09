"""The verbs of a task's life, over the tables of state.py; the others stand beside it in files of their own.

Each takes the lock, reads the clock once, and is one atomic step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any

from holdfast import ids
from holdfast.clock import from_micros, maybe_from_micros, span_micros
from holdfast.errors import HoldfastError, NotSupported
from holdfast.model.claim import Claim, Claimed, ClaimRequest, Extended, Lease
from holdfast.model.limits import NO_LIMITS, Limits
from holdfast.model.outcome import Expired, Settlement
from holdfast.model.query import Retention
from holdfast.model.task import NewTask, Submitted, TaskStatus
from holdfast.model.transition import Amended, Change, Fact, Settled
from holdfast.policy import refusals
from holdfast.policy.amendment import amendment
from holdfast.policy.lease_length import extended_until, lease_length
from holdfast.policy.limits import changed
from holdfast.policy.verdict import verdict
from holdfast.stores.memory.dataset_verbs import DatasetVerbs
from holdfast.stores.memory.flow_verbs import FlowVerbs
from holdfast.stores.memory.handle import ensure_text, lost
from holdfast.stores.memory.limits import Limiting
from holdfast.stores.memory.lines import Line
from holdfast.stores.memory.outbox_verbs import OutboxVerbs
from holdfast.stores.memory.read_verbs import ReadVerbs
from holdfast.stores.memory.record import Record, claim_of
from holdfast.stores.memory.token_verbs import TokenVerbs
from holdfast.stores.memory.worker_verbs import WorkerVerbs
from holdfast.stores.protocol import Capabilities, Joining, OwnTransaction


class MemoryStore(FlowVerbs, ReadVerbs, WorkerVerbs, OutboxVerbs, DatasetVerbs, TokenVerbs):
    capabilities = Capabilities(
        durable=False,
        shared=False,
        early_reaping=True,
        limits=True,
        workflows=True,
        schedules=True,
        outbox=True,
        outputs=True,
        tokens=True,
    )

    # Submit

    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        with self._state.lock:
            now = self._now()
            answers, fresh = self._admitted(tasks)
            for new in fresh:
                self._add(new, now)
        self._state.hub.announce()
        return answers

    # Claim

    async def claim(self, request: ClaimRequest) -> Claimed:
        with self._state.lock:
            now = self._now()
            ensure_text(request.worker_id, request.claim_id, request.queues)
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
            return lost(record, lease)
        record.lease_expires_at = _extended_until(record, now)
        return Extended(from_micros(record.lease_expires_at), record.cancel_requested_at is not None)

    async def report(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        with self._state.lock:
            now = self._now()
            record = self._known(lease.task_id)
            if not record.holds(lease, now):
                raise lost(record, lease)
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
            return _replayed(record, lease, outcome.kind) or lost(record, lease)
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
        if transition.status is TaskStatus.COMPLETED:
            self._state.datasets.write(settlement.outputs, lease.task_id, now)
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
            return len(gone) + self._prune_versions(retention, now, limit - len(gone))

    def _prune_versions(self, retention: Retention, now: int, limit: int) -> int:
        if retention.outputs is None:
            return 0
        live = (record for record in self._state.records.values() if not record.status.terminal)
        return self._state.datasets.prune(live, now - span_micros(retention.outputs.total_seconds()), limit)

    async def pause(self, queue: str, *, paused: bool) -> None:
        with self._state.lock:
            self._now()
            ensure_text(queue)
            self._state.lines.setdefault(queue, Line()).paused = paused
        self._state.hub.announce()

    async def limit(self, queue: str, changes: Mapping[str, Any]) -> Limits:
        with self._state.lock:
            now = self._now()
            ensure_text(queue)
            line = self._state.lines.get(queue)
            made = changed(queue, NO_LIMITS if line is None else line.limits, changes)
            self._state.limit(queue, made, now)
        self._state.hub.announce()
        return made

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
