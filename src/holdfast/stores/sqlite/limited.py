"""Which tasks a claim may take where limits hold (contract section 9). What is left of a limit: policy/limits.py.

What runs is counted when somebody claims; the transaction that counts is the one that claims, and there is only one at
a time. So limits are exact, and nothing has to be kept in step.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.model.limits import WHOLE_STORE
from holdfast.policy import limits
from holdfast.policy.limits import Room, Turns, Usage
from holdfast.stores.sqlite import lines
from holdfast.stores.sqlite.keys import Keys, Offer, Walk
from holdfast.stores.sqlite.limits import limits_of
from holdfast.stores.sqlite.lines import Level, Limitation
from holdfast.stores.sqlite.rows import Record
from holdfast.stores.sqlite.statements import statement
from holdfast.stores.sqlite.tx import Tx

_OF_QUEUE = "SELECT name, limits, rate_tat FROM holdfast_queues WHERE limited AND name IN (?, ?)"
_SPEND = "UPDATE holdfast_queues SET rate_tat = ? WHERE name = ?"


class Choice(NamedTuple):
    tasks: list[int]
    """Their seqs, best first."""
    walks: dict[str, Walk]
    more: bool
    """There are keys that were not looked at."""
    served: list[tuple[str, str | None]]
    """Queues and keys that have their turn with this."""


def _in_turn(offers: Sequence[Offer], room: Room, turns: Turns) -> list[Offer]:
    """Best first; in a queue whose keys are limited, keys that had their turn come after their equals."""
    keys: dict[str, set[str | None]] = {}
    for offer in offers:
        if room.keyed(offer.place.queue):
            keys.setdefault(offer.place.queue, set()).add(offer.key)
    for queue, found in keys.items():
        turns.begin(queue, found)

    def order(offer: Offer) -> tuple[object, ...]:
        queue = offer.place.queue
        return offer.place.rank, queue in keys and turns.had(queue, offer.key), offer.place

    return sorted(offers, key=order)


def of_queue(conn: sqlite3.Connection, queue: str) -> list[Limitation]:
    """What a task of this queue is under."""
    return [Limitation(*row) for row in conn.execute(_OF_QUEUE, (queue, WHOLE_STORE)).fetchall()]


class Limited:
    """One claim, as it finds the limited queues."""

    def __init__(self, conn: sqlite3.Connection, now: int, limitations: Iterable[Limitation]) -> None:
        self._conn = conn
        self._now = now
        self._usages = {one.queue: self._usage(one) for one in limitations}

    def _usage(self, one: Limitation) -> Usage:
        found = limits_of(one.limits)
        return Usage(found, 0 if found.max_running is None else self._running(one.queue, found.max_running), one.tat)

    def _running(self, queue: str, most: int) -> int:
        name = "leased" if queue == WHOLE_STORE else "placed"
        asked = {"queue": queue, "now": self._now, "most": most}
        return int(self._conn.execute(statement(name), asked).fetchone()[0])

    def counts(self, queue: str) -> bool:
        """Does a task of this queue take a place that a limit counts?"""
        return queue in self._usages or WHOLE_STORE in self._usages

    # The best tasks

    def choice(self, levels: Sequence[Level], limit: int, walks: Mapping[str, Walk], turns: Turns) -> Choice:
        room = Room(limit, self._usages, self._now)
        free = [level for level in levels if level.queue not in self._usages]
        offers = [Offer(place) for place in lines.best(self._conn, self._now, free, room.left)]
        walked: dict[str, Walk] = {}
        for level in levels:
            wanted = room.of(level.queue)
            if level.queue in self._usages and wanted > 0:
                keys = self._keys(level.queue) if level.keyed else None
                if keys is None:
                    places = lines.best(self._conn, self._now, [level], wanted)
                    offers += [Offer(place) for place in places]
                else:
                    found, walked[level.queue] = keys.offers(level, wanted, walks.get(level.queue, Walk()), turns)
                    offers += found
        chosen = [offer for offer in _in_turn(offers, room, turns) if room.take(offer.place.queue, *offer[1:])]
        more = any(room.of(queue) > 0 and not walk.over for queue, walk in walked.items())
        served = [(offer.place.queue, offer.key) for offer in chosen if room.keyed(offer.place.queue)]
        return Choice([offer.place.seq for offer in sorted(chosen)], walked, more, served)

    def _keys(self, queue: str) -> Keys | None:
        most = self._usages[queue].limits.max_running_per_key if queue in self._usages else None
        return None if most is None else Keys(self._conn, self._now, queue, most)

    def next_token(self, queues: Sequence[str]) -> int | None:
        """When a rate lets the next task start, where tasks are due and only that holds them."""
        if all(usage.limits.rate is None for usage in self._usages.values()):
            return None
        due = lines.due(self._conn, self._now, [(queue, keyed) for queue in queues for keyed in (0, 1)])
        names = {level.queue for level in due} | ({WHOLE_STORE} if due else set())
        soonest = [usage.next_token(self._now) for queue, usage in self._usages.items() if queue in names]
        return min((at for at in soonest if at is not None), default=None)

    # One task by its id

    def why_held(self, record: Record) -> str | None:
        """Why a due task may not start, in words."""
        for name in (WHOLE_STORE, record.queue):
            why = self._usages[name].holds(name, self._now) if name in self._usages else None
            if why is not None:
                return why
        keys = None if record.concurrency_key is None else self._keys(record.queue)
        return None if keys is None else keys.why_held(record)

    # What was taken

    def spend(self, tx: Tx, queues: Iterable[str]) -> None:
        """A task of each of these queues was started."""
        taken = Counter(queues)
        taken[WHOLE_STORE] = taken.total()
        for queue, usage in self._usages.items():
            if usage.limits.rate is not None and taken[queue]:
                tat = limits.spent(usage.limits, usage.tat, self._now, taken[queue])
                tx.conn.execute(_SPEND, (tat, queue))
                self._usages[queue] = Usage(usage.limits, usage.running, tat)
