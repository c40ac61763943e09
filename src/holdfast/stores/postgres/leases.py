"""What the holder of a lease does while it runs: extend it, report progress. Fenced like a settle (C6.2, C6.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.clock import from_micros, to_micros
from holdfast.errors import HoldfastError
from holdfast.model.claim import Extended, Lease
from holdfast.model.task import TaskStatus
from holdfast.policy import refusals
from holdfast.policy.lease_length import extended_until
from holdfast.stores.postgres import records
from holdfast.stores.postgres.rows import Record
from holdfast.stores.postgres.statements import uuids
from holdfast.stores.postgres.tx import Tx


async def extend(tx: Tx, leases: Sequence[Lease]) -> list[Extended | HoldfastError]:
    """Nobody is waited for: one record that is locked for long must not cost the others their leases.

    1. A handler completes its task in a transaction of its own, which locks the record. 2. Heartbeats find it locked,
    and pass by. 3. The lease's time is over; a reaper passes by as well. 4. The transaction commits, or the lease is
    reaped after all.
    """
    free = {row["id"] for row in await tx.session.rows("free", uuids(lease.task_id for lease in leases))}
    found = await records.load(tx, list(free))
    others = await _as_they_stand(tx, [lease.task_id for lease in leases if lease.task_id not in found])
    until: dict[str, datetime] = {}
    answers: list[Extended | HoldfastError] = []
    for lease in leases:
        record = found.get(lease.task_id)
        if record is None:
            answers.append(_as_it_stands(others.get(lease.task_id), lease))
        elif not record.holds(lease, tx.now):
            answers.append(lost(record, lease))
        else:
            until[record.id] = expires_at = _extended_until(record, tx.now)
            answers.append(Extended(expires_at, record.cancel_requested_at is not None))
    if until:
        await tx.session.rows("extend", list(until), list(until.values()))
    return answers


async def _as_they_stand(tx: Tx, task_ids: Sequence[str]) -> dict[str, Any]:
    """Of records that somebody else is at, by id."""
    if not task_ids:
        return {}
    return {row["id"]: row for row in await tx.session.rows("leased", uuids(task_ids))}


def _as_it_stands(row: Any, lease: Lease) -> Extended | HoldfastError:
    """That an expired lease is lost is for those to say who are at its record."""
    if row is None:
        return refusals.not_found(lease.task_id)
    if (row["status"], row["attempt"], row["token"]) != ("running", lease.attempt, lease.token):
        why = refusals.why_lost(lease, status=TaskStatus(row["status"]), attempt=row["attempt"])
        return refusals.lease_lost(lease, why)
    return Extended(row["lease_expires_at"], row["cancel_requested_at"] is not None)


async def end(tx: Tx, leases: Sequence[Lease]) -> None:
    """Those of them that are current; reaping follows."""
    found = await records.load(tx, [lease.task_id for lease in leases])
    known = ((found.get(lease.task_id), lease) for lease in leases)
    ended = [record.id for record, lease in known if record is not None and record.holds(lease, tx.now)]
    if ended:
        await tx.session.rows("extend", ended, [tx.now] * len(ended))


async def report(tx: Tx, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
    record = await held(tx, lease)
    tx.note(record.id, kind, str(record.claimed_by), {"attempt": record.attempt, **data})


async def held(tx: Tx, lease: Lease) -> Record:
    """The record, locked, whose lease this is; or LeaseLost."""
    record = (await records.load(tx, [lease.task_id])).get(lease.task_id)
    if record is None:
        raise refusals.not_found(lease.task_id)
    if not record.holds(lease, tx.now):
        raise lost(record, lease)
    return record


def lost(record: Record, lease: Lease) -> HoldfastError:
    return refusals.lease_lost(lease, refusals.why_lost(lease, status=record.status, attempt=record.attempt))


def _extended_until(record: Record, now: datetime) -> datetime:
    assert record.claimed_at is not None
    assert record.lease_expires_at is not None
    until = extended_until(
        to_micros(now),
        length=record.lease_micros,
        expires_at=to_micros(record.lease_expires_at),
        claimed_at=to_micros(record.claimed_at),
        timeout=record.timeout,
    )
    return from_micros(until)
