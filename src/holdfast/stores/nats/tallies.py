"""Tallies of handles that are gone: added to one's own, and taken away, in one guarded step.

Who has not ended a task for a day may live all the same. Its next end is refused once, because its tally is not where
it was, and it begins another (ledger.py). So nothing is ever counted twice, or lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from holdfast.clock import from_micros
from holdfast.stores.nats.changes import added, counts_of

if TYPE_CHECKING:
    from holdfast.stores.nats.ledger import Ledger
    from holdfast.stores.nats.messages import Plan

KEPT = 16
"""So few are no burden: nobody looks how old they are."""
MERGED_MOST = 500
AGE = timedelta(days=1)


async def old_tallies(ledger: Ledger, *, age: timedelta = AGE) -> list[str]:
    """Whose they are; the replica is fresh."""
    own = ledger.besides.own_tally()[0]
    names = [name for name, (tally, _) in ledger.replica.tallies.items() if tally and name != own]
    if len(names) <= KEPT:
        return []
    written = await ledger.reader.times([ledger.subjects.tally(name) for name in names])
    before = from_micros(ledger.stream.clock.micros()) - age
    return [name for name in names if (at := written.get(ledger.subjects.tally(name))) is not None and at <= before]


async def merge(ledger: Ledger, names: Sequence[str]) -> None:
    for at in range(0, len(names), MERGED_MOST):
        part = names[at : at + MERGED_MOST]

        def merged(plan: Plan, part: Sequence[str] = part) -> None:
            tallies = ledger.replica.tallies
            own, summed, rev = ledger.besides.own_tally()
            seen = [(name, *tallies[name]) for name in part if tallies.get(name, ({}, 0))[0]]
            for _, tally, _ in seen:
                summed = added(summed, counts_of(tally))
            for name, _, seen_at in seen:
                plan.tally(name, None, seen_at)
            if seen:
                plan.tally(own, summed, rev)

        await ledger.change(lambda _: None, extra=merged, fresh=True)
        await ledger.fresh()


async def merge_old(ledger: Ledger) -> None:
    """Of ordinary upkeep: some at a time."""
    await merge(ledger, (await old_tallies(ledger))[:MERGED_MOST])
