"""The plain good end of many attempts at once: nothing emitted or written, nothing to follow. The hottest path.

It is what policy/verdict.py says of Completed, for leases that hold; whatever else is in a batch is left to settle.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.model.outcome import Completed, Settlement
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Settled
from holdfast.policy.workflow import INLINE_ALL, INLINE_EACH
from holdfast.stores.postgres.fronts import Queued
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.statements import all_uuids, is_uuid, literal


class Recorded(NamedTuple):
    """By task, the ends that were recorded; whether that may have freed a place that limits count; whether others
    waited for any of them; and what is claimable by that.
    """

    ends: dict[str, Settled]
    freed: bool
    linked: bool = False
    queued: Sequence[Queued] = ()


async def completed(session: Session, plain: Sequence[Settlement]) -> Recorded:
    """In one statement, those for which nobody waits."""
    ((recorded, freed),) = await session.rows("complete", *_parameters(session, plain, most=0))
    return Recorded(_ends(plain, recorded), bool(freed))


async def completed_linked(session: Session, plain: Sequence[Settlement]) -> Recorded:
    """In one statement, also those for which others wait, unless these are many."""
    most = max(min(INLINE_ALL // len(plain), INLINE_EACH), 1)
    ((recorded, freed, linked, *ready),) = await session.rows(
        "complete_linked", *_parameters(session, plain, most=most)
    )
    return Recorded(_ends(plain, recorded), bool(freed), linked, [Queued(*one) for one in zip(*ready, strict=True)])


def _parameters(session: Session, plain: Sequence[Settlement], *, most: int) -> tuple[object, ...]:
    """`most`: how many may wait for a task."""
    leases = [settlement.lease for settlement in plain]
    results = [settlement.outcome.result for settlement in plain if isinstance(settlement.outcome, Completed)]
    return (
        session.given,
        literal(lease.task_id for lease in leases),
        literal(lease.attempt for lease in leases),
        literal(lease.token for lease in leases),
        results if any(result != "null" for result in results) else [],
        len(leases),
        most,
    )


def _ends(plain: Sequence[Settlement], recorded: list[str] | None) -> dict[str, Settled]:
    done = None if recorded is None else set(recorded)
    return {
        settlement.lease.task_id: Settled(settlement.lease.task_id, settlement.lease.attempt, TaskStatus.COMPLETED)
        for settlement in plain
        if done is None or settlement.lease.task_id in done
    }


def plain_ones(settlements: Sequence[Settlement]) -> list[Settlement]:
    """Of a task that is named twice, nothing: there the order decides."""
    named = Counter([settlement.lease.task_id for settlement in settlements])
    plain = [
        settlement
        for settlement in settlements
        if type(settlement.outcome) is Completed
        and not settlement.emitted
        and not settlement.follow_ups
        and not settlement.outputs
        and named[settlement.lease.task_id] == 1
    ]
    leases = [settlement.lease for settlement in plain]
    if all_uuids([lease.task_id for lease in leases]) and all_uuids([lease.token for lease in leases]):
        return plain
    return [one for one in plain if is_uuid(one.lease.task_id) and is_uuid(one.lease.token)]
