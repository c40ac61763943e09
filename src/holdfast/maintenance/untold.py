"""Gives up what nobody was there to be told for a long time (policy/relaying.py says how long): the rows of a receiver
that is gone for good, or of a subscriber whose code is gone. They are dead and visible, and can be requeued.
"""

from __future__ import annotations

from collections.abc import Callable

from holdfast import ids
from holdfast.health import StoreHealth
from holdfast.model.outbox import Delivery, OutboxRow, OutboxState
from holdfast.policy.relaying import untold
from holdfast.stores.protocol import Store

BATCH = 100
HOLD_SECONDS = 60.0


async def give_up(store: Store, health: StoreHealth, sink: str, why: str, old: Callable[[OutboxRow], bool]) -> int:
    """How many of the rows that are due were `old`. Those that are not are given back."""
    number = 0
    while given_up := await _give_up_some(store, health, sink, why, old):
        number += given_up
    return number


async def _give_up_some(
    store: Store, health: StoreHealth, sink: str, why: str, old: Callable[[OutboxRow], bool]
) -> int:
    hold = ids.token()
    rows = await health.persist(lambda: store.take_outbox([sink], limit=BATCH, hold=hold, hold_seconds=HOLD_SECONDS))
    deliveries = [
        Delivery(row_id=row.id, hold=hold, error=row.last_error or why, blame=False, final=old(row)) for row in rows
    ]
    if deliveries:
        await health.persist(lambda: store.record_deliveries(deliveries))
    return sum(delivery.final for delivery in deliveries)


async def give_up_left(store: Store, health: StoreHealth, sink: str, why: str) -> int:
    """Of a sink that this process cannot serve: only what nobody else has touched in all that time."""
    first = await health.persist(lambda: store.outbox(sink=sink, state=OutboxState.PENDING, limit=1, after=0))
    now = await health.persist(store.now)
    if not first or not untold(first[0].due_at, now):
        return 0
    return await give_up(store, health, sink, why, lambda row: untold(row.due_at, now))
