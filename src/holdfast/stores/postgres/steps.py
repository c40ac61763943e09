"""What the named steps of a handler gave, recorded once per task and fenced like a settle (C10.7)."""

from __future__ import annotations

from holdfast.model.claim import Lease
from holdfast.model.workflow import Step
from holdfast.stores.postgres import leases
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.statements import is_uuid
from holdfast.stores.postgres.tx import Tx


async def record(tx: Tx, lease: Lease, name: str, result: str) -> Step:
    """The recorded one, whoever recorded it."""
    await leases.held(tx, lease)
    return Step(*await tx.session.row("step", lease.task_id, tx.now, name, result))


async def listed(session: Session, task_id: str) -> list[Step]:
    """In the order in which they were recorded."""
    rows = await session.rows("steps", task_id) if is_uuid(task_id) else []
    return [Step(*row) for row in rows]
