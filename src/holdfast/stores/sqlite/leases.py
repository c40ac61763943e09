"""What the holder of a lease does while it runs: extend it, report progress. Fenced like a settle (C6.2, C6.3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.clock import from_micros
from holdfast.errors import HoldfastError
from holdfast.model.claim import Extended, Lease
from holdfast.policy import refusals
from holdfast.policy.lease_length import extended_until
from holdfast.stores.sqlite import records
from holdfast.stores.sqlite.rows import Record, policy_of
from holdfast.stores.sqlite.statements import json_param
from holdfast.stores.sqlite.tx import Tx


def extend(tx: Tx, leases: Sequence[Lease]) -> list[Extended | HoldfastError]:
    found = records.load(tx.conn, [lease.task_id for lease in leases])
    until: dict[str, int] = {}
    answers: list[Extended | HoldfastError] = []
    for lease in leases:
        record = found.get(lease.task_id)
        if record is None:
            answers.append(refusals.not_found(lease.task_id))
        elif not record.holds(lease, tx.now):
            answers.append(lost(record, lease))
        else:
            until[str(record.seq)] = expires_at = _extended_until(record, tx.now)
            answers.append(Extended(from_micros(expires_at), record.cancel_requested_at is not None))
    if until:
        tx.run("extend", until=json_param(until))
        tx.leases = True
    return answers


def end(tx: Tx, leases: Sequence[Lease]) -> None:
    """Those of them that are current; reaping follows."""
    found = records.load(tx.conn, [lease.task_id for lease in leases])
    known = ((found.get(lease.task_id), lease) for lease in leases)
    until = {str(record.seq): tx.now for record, lease in known if record is not None and record.holds(lease, tx.now)}
    if until:
        tx.run("extend", until=json_param(until))
        tx.leases = True


def report(tx: Tx, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
    record = held(tx, lease)
    tx.note(record.seq, kind, str(record.claimed_by), {"attempt": record.attempt, **data})


def held(tx: Tx, lease: Lease) -> Record:
    """The record of a task whose lease is current; LeaseLost otherwise."""
    record = records.load(tx.conn, [lease.task_id]).get(lease.task_id)
    if record is None:
        raise refusals.not_found(lease.task_id)
    if not record.holds(lease, tx.now):
        raise lost(record, lease)
    return record


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
        timeout=policy_of(record.policy).timeout,
    )
