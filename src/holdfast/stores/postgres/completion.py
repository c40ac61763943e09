"""The plain good end of many attempts at once: nothing emitted, nothing to follow. The hottest path of the store.

It is what policy/verdict.py says of Completed, for leases that hold; whatever else is in a batch is left to settle.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from holdfast.model.outcome import Completed, Settlement
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Settled
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.statements import is_uuid


async def completed(session: Session, plain: Sequence[Settlement]) -> dict[str, Settled]:
    """By task, those that were recorded here, in one statement."""
    leases = [settlement.lease for settlement in plain]
    rows = await session.rows(
        "complete",
        session.given,
        [lease.task_id for lease in leases],
        [lease.attempt for lease in leases],
        [lease.token for lease in leases],
        [settlement.outcome.result for settlement in plain if isinstance(settlement.outcome, Completed)],
    )
    done = {row["id"] for row in rows}
    return {
        lease.task_id: Settled(lease.task_id, lease.attempt, TaskStatus.COMPLETED)
        for lease in leases
        if lease.task_id in done
    }


def plain_ones(settlements: Sequence[Settlement]) -> list[Settlement]:
    """Of a task that is named twice, nothing: there the order decides."""
    named = Counter([settlement.lease.task_id for settlement in settlements])
    return [
        settlement
        for settlement in settlements
        if type(settlement.outcome) is Completed
        and not settlement.emitted
        and not settlement.follow_ups
        and named[settlement.lease.task_id] == 1
        and is_uuid(settlement.lease.task_id)
        and is_uuid(settlement.lease.token)
    ]
