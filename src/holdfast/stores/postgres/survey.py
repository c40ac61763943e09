"""Looks where the queued tasks begin, and keeps the fronts right (fronts.py). A few index seeks; nothing is locked."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from holdfast.stores.postgres.fronts import Fronts, Place, Queued, Seen
from holdfast.stores.postgres.pool import Session

_ABOVE, _BELOW = 32_768, -32_769
"""Beyond every priority."""


async def survey(session: Session, fronts: Fronts, queues: Sequence[str] | None) -> bool:
    """Unless somebody else is at it: False. `queues`: in which to look for shelves that are not known; None: in all."""
    if not fronts.begin_survey():
        return False
    try:
        await _survey(session, fronts, queues)
    finally:
        fronts.end_survey()
    return True


async def discover(session: Session, fronts: Fronts, queues: Sequence[str] | None) -> None:
    """Shelves that are not known yet. Any number may look at once."""
    while new := await session.rows("unknown", *_gaps(fronts, queues)):
        fronts.queued((queue, priority, None) for queue, priority in new)


async def _survey(session: Session, fronts: Fronts, queues: Sequence[str] | None) -> None:
    # The writers are read before the tasks: what one of them commits in between is seen, or he is among the writers.
    now, writers = await session.row("writers", session.given, session.table("tasks"))
    notes = await session.rows("lately")
    fronts.begin(now, {number: Queued(*queued) for number, *queued in notes})
    await discover(session, fronts, queues)
    seen = fronts.known()
    firsts = await session.rows("firsts", *columns(seen))
    places = {n: Place(run_at, seq) for n, run_at, seq in firsts}
    lease = await session.value("first_lease", fronts.leases, now)
    found = [(shelf, places.get(n)) for n, shelf in enumerate(seen, start=1)]
    fronts.found(now, frozenset(writers), found, lease)


def _gaps(fronts: Fronts, queues: Sequence[str] | None) -> tuple[object, ...]:
    """Where a shelf may be that is not known: the parameters of unknown.sql."""
    priorities: dict[str, list[int]] = {queue: [] for queue in queues or ()}
    for shelf in fronts.known():
        if queues is None or shelf.queue in priorities:
            priorities.setdefault(shelf.queue, []).append(shelf.priority)
    between: list[tuple[str, int, int]] = []
    for queue, found in priorities.items():
        steps = [_ABOVE, *sorted(found, reverse=True), _BELOW]
        between += [(queue, above, below) for above, below in pairwise(steps)]
    # Texts sort by code point here and, in the collation "C", there. No queue has an empty name.
    names = ["", *sorted(priorities)] if queues is None else []
    gaps = [list(column) for column in zip(*between, strict=True)] if between else [[], [], []]
    return *gaps, names[:-1], names[1:], names[-1] if names else None


def columns(seen: Sequence[Seen]) -> tuple[list[object], ...]:
    """The shelves as firsts.sql and claim.sql take them."""
    return (
        [shelf.queue for shelf in seen],
        [shelf.priority for shelf in seen],
        [shelf.place.run_at for shelf in seen],
        [shelf.place.seq for shelf in seen],
    )
