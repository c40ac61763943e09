"""Leases on due tasks, best first (contract section 5). What is best is said in sql/claim.sql."""

from __future__ import annotations

from typing import Any

from holdfast.clock import span_micros, to_micros
from holdfast.errors import HoldfastError
from holdfast.model.claim import Claim, Claimed, ClaimRequest
from holdfast.model.task import TaskStatus
from holdfast.policy import refusals
from holdfast.policy.backoff import Rng
from holdfast.policy.lease_length import lease_length
from holdfast.stores.postgres import records, settle
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.rows import Record, claim_of
from holdfast.stores.postgres.statements import is_text
from holdfast.stores.postgres.tx import Tx


async def claim(session: Session, request: ClaimRequest) -> Claimed:
    """One statement; a second where the same claim was sent before."""
    rows = await _look(session, request, marked=True)
    if rows[0]["sent_before"]:
        # It was granted meanwhile, or long ago and is settled: what it holds is to be seen now.
        rows = await _look(session, request, marked=False)
    return Claimed([claim_of(row) for row in rows if row["seq"] is not None], rows[0]["next_due_at"])


async def _look(session: Session, request: ClaimRequest, *, marked: bool) -> list[Any]:
    return await session.rows(
        "claim",
        session.given,
        None if request.queues is None else [queue for queue in request.queues if is_text(queue)],
        request.claim_id,
        request.worker_id,
        request.limit,
        span_micros(request.lease_seconds),
        marked,
    )


async def claim_one(tx: Tx, request: ClaimRequest, task_id: str, rng: Rng) -> Claimed | HoldfastError:
    """The task named, or why not. A refusal is a value here: reaping its expired attempt stays done."""
    held = [claim_of(row) for row in await tx.session.rows("held", request.claim_id)]
    if held:
        return Claimed(held, None)
    record = (await records.load(tx, [task_id])).get(task_id)
    if record is None:
        return refusals.not_found(task_id)
    if record.claim_id == request.claim_id:
        # The same claim at once: it was granted while this one waited for the row.
        return Claimed([claim_of(row) for row in await tx.session.rows("held", request.claim_id)], None)
    if record.expired(tx.now):
        settle.reap_one(tx, record, request.worker_id, rng)
        await records.save(tx, [record])
    refused = await _refused(tx, record)
    return refused or Claimed([await _start(tx, request, record)], None)


async def _refused(tx: Tx, record: Record) -> HoldfastError | None:
    match record.status:
        case TaskStatus.WAITING:
            return refusals.waiting(record.id)
        case TaskStatus.RUNNING:
            return refusals.already_claimed(record.id, record.claimed_by)
        case TaskStatus.QUEUED:
            if record.run_at > tx.now:
                return refusals.not_due(record.id, to_micros(record.run_at))
            paused = await tx.session.value("paused", record.queue)
            return refusals.paused(record.id, record.queue) if paused else None
        case ended:
            return refusals.ended(record.id, ended)


async def _start(tx: Tx, request: ClaimRequest, record: Record) -> Claim:
    length = lease_length(worker_seconds=request.lease_seconds, task_seconds=record.lease)
    row = await tx.session.row("start", tx.now, record.seq, request.claim_id, request.worker_id, length)
    tx.moved(record.queue, TaskStatus.QUEUED, TaskStatus.RUNNING)
    tx.note_plain(record.seq, row["attempt"], "task.running", request.worker_id)
    return claim_of(row)
