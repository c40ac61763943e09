"""Leases as plain acts: how one begins, is prolonged, and is taken from somebody who let it expire."""

from __future__ import annotations

from collections.abc import Container, Sequence
from functools import partial
from itertools import islice

from holdfast import ids
from holdfast.clock import from_micros, maybe_from_micros
from holdfast.errors import HoldfastError
from holdfast.model.claim import Claim, Claimed, ClaimRequest, Extended, Lease
from holdfast.model.outcome import Expired
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Fact, Settled
from holdfast.policy import refusals
from holdfast.policy.lease_length import extended_until, lease_length
from holdfast.policy.verdict import verdict
from holdfast.stores.memory.admitting import Admitting, ensure_text
from holdfast.stores.memory.limits import Limiting
from holdfast.stores.memory.record import Record, claim_of


class Leasing(Admitting):
    # Claim

    def claim(self, request: ClaimRequest, now: int) -> Claimed:
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
            self.reap_one(record, request.worker_id, now)
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
        self._state.touch(record)
        record.attempt += 1
        record.token = ids.token()
        record.claim_id = request.claim_id
        record.claimed_by = request.worker_id
        record.lease_length = lease_length(worker_seconds=request.lease_seconds, task_seconds=record.new.lease)
        record.lease_expires_at = now + record.lease_length
        record.claimed_at = now
        record.started_at = now if record.started_at is None else record.started_at
        self._state.begin(record, begun=True)
        self._state.move(record, TaskStatus.RUNNING, now)
        data = {"attempt": record.attempt, "max_attempts": record.new.max_attempts}
        self._state.note(record, Fact("task.running", data), now, request.worker_id)
        return claim_of(record)

    # Heartbeat

    def extend(self, leases: Sequence[Lease], now: int) -> list[Extended | HoldfastError]:
        return [self._extend_one(lease, now) for lease in leases]

    def _extend_one(self, lease: Lease, now: int) -> Extended | HoldfastError:
        record = self._state.records.get(lease.task_id)
        if record is None:
            return refusals.not_found(lease.task_id)
        if not record.holds(lease, now):
            return lost(record, lease)
        self._state.touch(record)
        record.lease_expires_at = _extended_until(record, now)
        return Extended(from_micros(record.lease_expires_at), record.cancel_requested_at is not None)

    # Loss

    def reap(self, limit: int, actor: str, now: int) -> list[Settled]:
        expired = list(islice((record for record in self._state.running.values() if record.expired(now)), limit))
        settled = [self.reap_one(record, actor, now) for record in expired]
        self._advancing.inline(now)
        return settled

    def reap_one(self, record: Record, actor: str, now: int) -> Settled:
        """Record this attempt as lost; whoever calls it has seen that its lease has expired."""
        transition = verdict(record.facts, Expired(), self._rng)
        self._state.write(record, transition, now, actor)
        return Settled(record.new.id, record.attempt, transition.status)

    def end_leases(self, worker_ids: Container[str | None], now: int, *, limit: int | None = None) -> int:
        """These workers are gone: what they hold can be reaped at once. How many leases that were; `limit` at most."""
        running = self._state.running.values()
        held = (one for one in running if one.claimed_by in worker_ids and (one.lease_expires_at or now) > now)
        ended = list(islice(held, limit))
        for record in ended:
            self._state.touch(record)
            record.lease_expires_at = now
        return len(ended)

    def end_held(self, leases: Sequence[Lease], now: int) -> None:
        """The same for these leases, those of them that are current."""
        for lease in leases:
            record = self._state.records.get(lease.task_id)
            if record is not None and record.holds(lease, now):
                self._state.touch(record)
                record.lease_expires_at = now


def lost(record: Record, lease: Lease) -> HoldfastError:
    return refusals.lease_lost(lease, refusals.why_lost(lease, status=record.status, attempt=record.attempt))


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
