"""What the holder of a lease does while it runs: extend it, report progress. Fenced like a settle (C6.2, C6.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast.clock import from_micros, to_micros
from holdfast.errors import HoldfastError
from holdfast.model.claim import Extended, Lease
from holdfast.policy import refusals
from holdfast.policy.lease_length import extended_until
from holdfast.stores.postgres import records
from holdfast.stores.postgres.rows import Record
from holdfast.stores.postgres.tx import Tx


async def extend(tx: Tx, leases: Sequence[Lease]) -> list[Extended | HoldfastError]:
    found = await records.load(tx, [lease.task_id for lease in leases])
    until: dict[str, datetime] = {}
    answers: list[Extended | HoldfastError] = []
    for lease in leases:
        record = found.get(lease.task_id)
        if record is None:
            answers.append(refusals.not_found(lease.task_id))
        elif not record.holds(lease, tx.now):
            answers.append(lost(record, lease))
        else:
            until[record.id] = expires_at = _extended_until(record, tx.now)
            answers.append(Extended(expires_at, record.cancel_requested_at is not None))
    if until:
        await tx.session.rows("extend", list(until), list(until.values()))
    return answers


async def report(tx: Tx, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
    record = (await records.load(tx, [lease.task_id])).get(lease.task_id)
    if record is None:
        raise refusals.not_found(lease.task_id)
    if not record.holds(lease, tx.now):
        raise lost(record, lease)
    tx.note(record.id, kind, str(record.claimed_by), {"attempt": record.attempt, **data})


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
