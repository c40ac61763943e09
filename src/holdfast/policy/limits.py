"""The arithmetic of limits (contract section 9): how many tasks a claim may take, and of which.

Stores say what runs; this page says what is left. Instants and spans are whole microseconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.clock import from_micros, iso, span_micros
from holdfast.errors import InvalidTask
from holdfast.model.limits import NO_LIMITS, WHOLE_STORE, Limits, Rate
from holdfast.policy.admission import checked_int, checked_span

MOST = 1_000_000
MARKING_SECONDS = 10.0
"""For so long after a change claims look at all that runs: some of it was claimed by who did not know of the change."""
SKEW_SECONDS = 60.0
"""The clock of one server may be so far behind that of the one before it."""

_RATE = re.compile(r"\s*(\d{1,20})\s*/\s*(\d{0,20})\s*(s|sec|second|m|min|minute|h|hour|d|day)s?\s*")
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def rate_of(given: Any) -> Rate:
    """`"100/s"`, `"10/min"`, `"500/15m"`, or a Rate."""
    if isinstance(given, Rate):
        count, period = given.count, given.period
    else:
        match = _RATE.fullmatch(given) if isinstance(given, str) else None
        if match is None:
            raise InvalidTask(f"rate is {given!r:.100}; give a text such as '100/s', '10/min' or '500/15m'")
        count, period = int(match[1]), float(match[2] or 1) * _UNITS[match[3][0]]
    return Rate(
        checked_int(count, 1, MOST, what="rate"), checked_span(period, what="the rate's period", above_zero=True)
    )


def changed(queue: str, limits: Limits, changes: Mapping[str, Any]) -> Limits:
    """With these changes made; a name that is not there stays, None clears."""
    unknown = [name for name in changes if name not in Limits.__struct_fields__]
    if unknown:
        names = ", ".join(Limits.__struct_fields__)
        raise InvalidTask(f"there is no limit {unknown[0]!r}; there are {names}")
    made = msgspec.structs.replace(limits, **{name: _checked(name, value) for name, value in changes.items()})
    if queue == WHOLE_STORE and made.max_running_per_key is not None:
        raise InvalidTask("max_running_per_key belongs to a queue; the whole store ('*') has max_running and rate")
    return made


def _checked(name: str, value: Any) -> Any:
    if value is None:
        return getattr(NO_LIMITS, name)
    return rate_of(value) if name == "rate" else checked_int(value, 1, MOST, what=name)


# Rates: the instant at which the bucket is full again (`tat`) says everything


def tokens(limits: Limits, tat: int, now: int) -> int:
    """How many tasks the rate lets start now."""
    if limits.rate is None:
        return MOST
    period = span_micros(limits.rate.period)
    return ((now - max(tat, now)) * limits.rate.count + limits.burst * period) // period


def spent(limits: Limits, tat: int, now: int, tasks: int) -> int:
    """The new `tat` after so many were started. Rounded up: against the claimer."""
    if limits.rate is None:
        return tat
    return max(sane(limits, tat, now), now) - (-tasks * span_micros(limits.rate.period) // limits.rate.count)


def next_token(limits: Limits, tat: int, now: int) -> int | None:
    """When the next task may start, if none may now."""
    if limits.rate is None or tokens(limits, tat, now) > 0:
        return None
    period, count = span_micros(limits.rate.period), limits.rate.count
    return tat - ((limits.burst - 1) * period) // count


def sane(limits: Limits, tat: int, now: int) -> int:
    """A stored `tat`, as it counts now. One that is much further ahead than an empty bucket was written before the
    clock was set back: one task may start, which writes a new one. Without that the queue stood still until the clock
    is there again.
    """
    if limits.rate is None or tat <= _empty(limits, now) + span_micros(SKEW_SECONDS):
        return tat
    return now + (limits.burst - 1) * span_micros(limits.rate.period) // limits.rate.count


def carried_over(limits: Limits, tat: int, now: int) -> int:
    """The `tat` to store when these limits take the place of others: what a slower rate has spent does not count for
    longer than the bucket is large.
    """
    return tat if limits.rate is None else min(tat, _empty(limits, now))


def _empty(limits: Limits, now: int) -> int:
    assert limits.rate is not None
    return now - (-limits.burst * span_micros(limits.rate.period) // limits.rate.count)


def next_start(limits: Limits, tat: int, now: int) -> datetime | None:
    """For people: when a stored `tat` lets the next task start, if none may now."""
    soonest = next_token(limits, sane(limits, tat, now), now)
    return None if soonest is None else from_micros(soonest)


class Usage(msgspec.Struct, frozen=True):
    """A limited queue, or the whole store, as a claim finds it with its turn taken."""

    limits: Limits
    running: int
    """Under unexpired leases; counted up to `max_running`."""
    tat: int = 0

    @property
    def free(self) -> int:
        """Places that nobody runs in."""
        return MOST if self.limits.max_running is None else max(self.limits.max_running - self.running, 0)

    def room(self, now: int) -> int:
        return min(self.free, max(tokens(self.limits, sane(self.limits, self.tat, now), now), 0))

    def next_token(self, now: int) -> int | None:
        """When the rate lets the next task start, if only that holds it."""
        return next_token(self.limits, sane(self.limits, self.tat, now), now) if self.free else None

    def holds(self, queue: str, now: int) -> str | None:
        """Why no task may start, in words; None if one may."""
        whose = "the whole store" if queue == WHOLE_STORE else f"queue {queue!r}"
        if not self.free:
            return f"{whose} runs as many tasks as it may (max_running={self.limits.max_running})"
        soonest = self.next_token(now)
        if soonest is not None:
            assert self.limits.rate is not None
            rate = f"{self.limits.rate.count} per {self.limits.rate.period:g} s"
            return f"{whose} may start {rate}, the next one at {iso(soonest)}"
        return None


def key_holds(queue: str, key: str, most: int, first: str | None) -> str:
    """Why no task of a key may start; `first`: the task that goes first, where they go in order."""
    if first is not None:
        return f"task {first} of the same key {key!r} goes first (max_running_per_key=1 of queue {queue!r})"
    return f"key {key!r} of queue {queue!r} runs as many tasks as it may (max_running_per_key={most})"


class Turns:
    """Which keys of a queue have had their turn, where keys are limited: one that has waits, at equal priority, until
    the others that could start something have had theirs. So no backlog keeps the others waiting, however old it is and
    however few places there are. Each process keeps its own, which is fair for all of them together.
    """

    def __init__(self) -> None:
        self._had: dict[str, set[str | None]] = {}

    def begin(self, queue: str, keys: Iterable[str | None]) -> None:
        """A claim has found tasks of these keys that may start. Once all of them had their turn, it starts over."""
        if self._had.get(queue, set()).issuperset(keys):
            self._had.pop(queue, None)

    def had(self, queue: str, key: str | None) -> bool:
        return key in self._had.get(queue, ())

    def took(self, queue: str, key: str | None) -> None:
        self._had.setdefault(queue, set()).add(key)


class Room:
    """What one claim may still take. Candidates are offered best first; each that is taken is counted."""

    def __init__(self, limit: int, usages: Mapping[str, Usage], now: int) -> None:
        whole = usages.get(WHOLE_STORE)
        self.left = limit if whole is None else min(limit, whole.room(now))
        self._queues = {queue: usage.room(now) for queue, usage in usages.items() if queue != WHOLE_STORE}
        self._per_key = {queue: usage.limits.max_running_per_key for queue, usage in usages.items()}
        self._keys: dict[tuple[str, str], int] = {}

    def keyed(self, queue: str) -> bool:
        """Are the keys of this queue limited?"""
        return self._per_key.get(queue) is not None

    def of(self, queue: str) -> int:
        """How many tasks of this queue, whatever their keys."""
        return min(self.left, self._queues.get(queue, self.left))

    def take(self, queue: str, key: str | None, key_room: int) -> bool:
        """`key_room`: how many of this key may start, as the store found it; without a key it does not matter."""
        if self.of(queue) <= 0:
            return False
        if key is not None and self.keyed(queue):
            taken = self._keys.get((queue, key), 0)
            if taken >= key_room:
                return False
            self._keys[queue, key] = taken + 1
        self.left -= 1
        if queue in self._queues:
            self._queues[queue] -= 1
        return True
