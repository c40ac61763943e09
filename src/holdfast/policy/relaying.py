"""When a row of the outbox is tried again, given up, or repeated (contract C12.3, C12.4). All spans are seconds."""

from __future__ import annotations

from holdfast.model.outbox import Delivery

TRIES = 20
"""Then it is dead. With the delays below that is about nine hours after the first try."""
BASE_SECONDS, CAP_SECONDS = 1.0, 3600.0
REST_SECONDS = 5.0
"""Before rows of a sink that could not be reached at all are due again; the relay itself rests longer and longer."""
REPEAT_SECONDS, REPEAT_CAP_SECONDS = 60.0, 960.0
"""A due, unclaimed task is announced again after a minute, then after two, and so on: a backlog of a million tasks that
nobody works on must not cost a million messages a minute."""
LONGEST_DELAY_SECONDS = 24 * 3600.0
COUNTED = 10_000
"""Where a sink has more rows than this, their number is told as this."""


def next_try(tries: int, delivery: Delivery) -> float | None:
    """Seconds until a row that was tried `tries` times before this delivery failed is due again; None: it is dead."""
    if delivery.final:
        return None
    if not delivery.blame:
        return REST_SECONDS
    if tries + 1 >= TRIES:
        return None
    if delivery.delay_seconds is not None:
        return min(max(delivery.delay_seconds, BASE_SECONDS), LONGEST_DELAY_SECONDS)
    return float(min(CAP_SECONDS, BASE_SECONDS * 2**tries))


def next_wake(told: int) -> float:
    """Seconds until a task that was announced `told` times before is announced again, if it is still due then."""
    return float(min(REPEAT_CAP_SECONDS, REPEAT_SECONDS * 2 ** min(told, 10)))
