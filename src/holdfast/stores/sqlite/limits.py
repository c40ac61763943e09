"""What queues may do at once, as it is stored (contract section 9). How a claim keeps to it: limited.py."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.model.limits import NO_LIMITS, WHOLE_STORE, Limits
from holdfast.policy.limits import carried_over, changed
from holdfast.stores.sqlite.tx import Tx

_decoder = msgspec.json.Decoder(Limits)

_SET = """
INSERT INTO holdfast_queues (name, limits, limited) VALUES (:queue, :limits, :limited)
ON CONFLICT (name) DO UPDATE SET limits = excluded.limits, limited = excluded.limited, rate_tat = :tat
"""
_PLACE = """
UPDATE holdfast_tasks SET placed = 1 WHERE status = 'running' AND NOT placed AND (queue = :queue OR :everywhere)
"""


def limits_of(text: str | None) -> Limits:
    return NO_LIMITS if text is None else _decoder.decode(text)


def limit(tx: Tx, queue: str, changes: Mapping[str, Any]) -> Limits:
    """What runs already counts from now on: nobody else can claim in between."""
    row = tx.conn.execute("SELECT limits, rate_tat FROM holdfast_queues WHERE name = ?", (queue,)).fetchone()
    text, tat = (None, 0) if row is None else row
    made = changed(queue, limits_of(text), changes)
    tat = carried_over(made, tat, tx.now)
    written = msgspec.json.encode(made).decode()
    tx.conn.execute(_SET, {"queue": queue, "limits": written, "limited": made.some, "tat": tat})
    if made.some:
        tx.conn.execute(_PLACE, {"queue": queue, "everywhere": queue == WHOLE_STORE})
    tx.wakes = True
    return made
