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
from holdfast.stores.postgres.statements import all_uuids, is_uuid, literal


async def completed(session: Session, plain: Sequence[Settlement]) -> tuple[dict[str, Settled], bool]:
    """By task, those that were recorded here, in one statement; has that freed a place that limits count?"""
    leases = [settlement.lease for settlement in plain]
    results = [settlement.outcome.result for settlement in plain if isinstance(settlement.outcome, Completed)]
    ((recorded, freed),) = await session.rows(
        "complete",
        session.given,
        literal(lease.task_id for lease in leases),
        literal(lease.attempt for lease in leases),
        literal(lease.token for lease in leases),
        results if any(result != "null" for result in results) else [],
        len(leases),
    )
    done = None if recorded is None else set(recorded)
    ends = {
        lease.task_id: Settled(lease.task_id, lease.attempt, TaskStatus.COMPLETED)
        for lease in leases
        if done is None or lease.task_id in done
    }
    return ends, bool(freed)


def plain_ones(settlements: Sequence[Settlement]) -> list[Settlement]:
    """Of a task that is named twice, nothing: there the order decides."""
    named = Counter([settlement.lease.task_id for settlement in settlements])
    plain = [
        settlement
        for settlement in settlements
        if type(settlement.outcome) is Completed
        and not settlement.emitted
        and not settlement.follow_ups
        and named[settlement.lease.task_id] == 1
    ]
    leases = [settlement.lease for settlement in plain]
    if all_uuids([lease.task_id for lease in leases]) and all_uuids([lease.token for lease in leases]):
        return plain
    return [one for one in plain if is_uuid(one.lease.task_id) and is_uuid(one.lease.token)]
