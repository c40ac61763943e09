"""When a row of the outbox is tried again, given up, or repeated (contract C12.3, C12.4). All spans are seconds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from holdfast.model.outbox import Delivery, Sink

TRIES = 20
"""Then it is dead. With the delays below that is about nine hours after the first try."""
BASE_SECONDS, CAP_SECONDS = 1.0, 3600.0
REST_SECONDS = 5.0
"""Before rows of a sink that could not be reached at all are due again, at least: the relay rests longer and longer,
and they with it, so that what is written meanwhile is tried before them."""
UNTOLD_SECONDS = 7 * 24 * 3600.0
"""A row that could not be told for so long is dead: its receiver, or the code of its subscriber, is gone for good.
Receivers that are repaired after a long weekend get everything; and it is how long completed tasks are kept by
default, so what can still be looked up is mostly still told."""
GONE_SECONDS = 2 * 3600.0
"""But only where the relay itself has seen for so long that nobody is there: rows may also be old because no relay ran
for a week, and then a sink that is down for an hour must cost nothing but latency."""
REPEAT_SECONDS, REPEAT_CAP_SECONDS = 60.0, 960.0
"""A due, unclaimed task is announced again after a minute, then after two, and so on: a backlog of a million tasks that
nobody works on must not cost a million messages a minute."""
LONGEST_DELAY_SECONDS = 24 * 3600.0
COUNTED = 10_000
"""Where a sink has more rows than this, their number is told as this."""
BEHIND_SECONDS = 600.0
"""Where a row waits for longer than this, somebody should look."""


def next_try(tries: int, delivery: Delivery) -> float | None:
    """Seconds until a row that was tried `tries` times before this delivery failed is due again; None: it is dead."""
    if delivery.final:
        return None
    if not delivery.blame:
        return min(max(delivery.delay_seconds or 0.0, REST_SECONDS), LONGEST_DELAY_SECONDS)
    if tries + 1 >= TRIES:
        return None
    if delivery.delay_seconds is not None:
        return min(max(delivery.delay_seconds, BASE_SECONDS), LONGEST_DELAY_SECONDS)
    return float(min(CAP_SECONDS, BASE_SECONDS * 2**tries))


def untold(since: datetime, now: datetime) -> bool:
    """Has a row waited so long that it is given up where nobody is there to be told?"""
    return (now - since).total_seconds() >= UNTOLD_SECONDS


def next_wake(told: int) -> float:
    """Seconds until a task that was announced `told` times before is announced again, if it is still due then."""
    return float(min(REPEAT_CAP_SECONDS, REPEAT_SECONDS * 2 ** min(told, 10)))


def backlog(sinks: Sequence[Sink], now: datetime) -> tuple[bool | None, str]:
    """For the doctor: do sinks get to know what they should, and in words; None: somebody should look."""
    if not sinks:
        return True, "nobody is told of changes"
    dead = sum(sink.dead for sink in sinks)
    oldest = min((sink.oldest_at for sink in sinks if sink.oldest_at is not None), default=now)
    age = max(now - oldest, timedelta()).total_seconds()
    words = f"{len(sinks)} sinks, {sum(sink.pending for sink in sinks)} rows wait, the oldest for {age:.0f} s"
    if not dead and age <= BEHIND_SECONDS:
        return True, words
    return None, f"{words}, {dead} are dead; see `holdfast sinks list` and `holdfast outbox list`"
