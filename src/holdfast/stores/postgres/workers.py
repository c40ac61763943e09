"""The list of workers, and what becomes of the leases of one that is gone (contract C6.7)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.clock import span_micros
from holdfast.model.claim import Lease
from holdfast.model.query import WorkerInfo
from holdfast.policy.enrolment import REMOTE_KEPT_SECONDS
from holdfast.stores.postgres import leases
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.statements import json_text
from holdfast.stores.postgres.tx import Tx


class Enrolled(NamedTuple):
    worker_id: str
    nonce: int


async def enroll(tx: Tx, worker: WorkerInfo, nonce: int | None, *, again: bool) -> None:
    """The lock is held before the row is written: a row whose lock is free means a worker that is gone.

    `again`: it is in the list already, perhaps under a lock that went with a lost session; it is not its own successor.
    """
    if not again and await tx.session.value("succeeds", worker.id, nonce):
        await _end_leases(tx, worker.id)  # a predecessor of the same name, dead and not evicted yet
    await tx.session.rows(
        "enroll",
        tx.session.given,
        worker.id,
        nonce,
        worker.host,
        worker.pid,
        None if worker.queues is None else json_text(worker.queues),
        worker.concurrency,
        worker.version,
        json_text(worker.names),
        worker.remote,
    )


async def renew(session: Session, worker_id: str, nonce: int) -> None:
    """The worker's session was lost and replaced."""
    await session.rows("renew", worker_id, nonce)


async def leave(tx: Tx, worker_id: str, held: Sequence[Lease] | None) -> None:
    await tx.session.rows("leave", worker_id, held is not None)
    if held is None:
        await _end_leases(tx, worker_id)
    elif held:
        await leases.end(tx, held)


async def listed(session: Session) -> list[WorkerInfo]:
    return [_shown(row) for row in await session.rows("workers")]


async def gone(session: Session, here: list[str]) -> list[Enrolled]:
    """Workers whose lock nobody holds any more. Those of this handle are not asked about."""
    return [Enrolled(row["id"], row["nonce"]) for row in await session.rows("gone", here)]


async def forget_remote(session: Session) -> None:
    await session.rows("forget_remote", session.given, span_micros(REMOTE_KEPT_SECONDS))


async def evict(tx: Tx, found: list[Enrolled]) -> list[str]:
    """End the leases of those that are still gone: one that enrolled again meanwhile has another nonce."""
    evicted = []
    for one in found:
        if await tx.session.value("evict", one.worker_id, one.nonce):
            await _end_leases(tx, one.worker_id)
            evicted.append(one.worker_id)
    return evicted


async def _end_leases(tx: Tx, worker_id: str) -> None:
    await tx.session.rows("end_leases", tx.session.given, worker_id)


def _shown(row: Any) -> WorkerInfo:
    fields = dict(row)
    fields["queues"] = None if fields["queues"] is None else msgspec.json.decode(fields["queues"])
    fields["names"] = msgspec.json.decode(fields["names"])
    return WorkerInfo(**fields)
