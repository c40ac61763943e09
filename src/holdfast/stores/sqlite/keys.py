"""Which tasks of a queue may start where its keys are limited (contract C9.3, C9.4).

The best tasks are looked at first. If too many of those are held by their keys, or their keys had their turn, the keys
themselves are walked, some per claim; the next claim goes on from there. So a claim costs the same however many tasks a
full key has.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from holdfast.policy import limits
from holdfast.policy.limits import Turns
from holdfast.stores.sqlite import lines
from holdfast.stores.sqlite.lines import Level, Place
from holdfast.stores.sqlite.rows import Record
from holdfast.stores.sqlite.statements import json_param, statement

LOOKED_AT = 50
"""So many tasks are looked at in the usual order, or twice as many as are wanted."""
WALKED = 50
"""So many keys are walked per claim, and as many as are wanted."""


class Offer(NamedTuple):
    """A task that may start, if there is room. Offers sort as they are claimed."""

    place: Place
    key: str | None = None
    key_room: int = limits.MOST


class Walk(NamedTuple):
    """How far the keys of a queue were walked. A round in which no key may start ends where it began."""

    at: str = ""
    since: str | None = None
    around: bool = False
    over: bool = False

    def on(self, keys: Sequence[str], asked: int, *, found: bool) -> Walk:
        """Having seen these keys; fewer than asked for are the last ones."""
        ended = len(keys) < asked
        at = "" if ended else keys[-1]
        if found:
            return Walk(at, over=ended and self.at == "")
        since = self.at if self.since is None else self.since
        around = self.around or ended
        over = (around and at >= since) or (self.around and ended)
        return Walk(at, over=True) if over else Walk(at, since, around)


class _First(msgspec.Struct, array_like=True, gc=False):
    """The task of a key that goes first where they go in order."""

    rank: int
    run_at: int
    seq: int
    key: str
    id: str
    may_start: int


_texts = msgspec.json.Decoder(list[str])
_numbers = msgspec.json.Decoder(dict[str, int])
_line = msgspec.json.Decoder(list[tuple[int, int, int, str]])
_firsts = msgspec.json.Decoder(list[_First])


class Keys:
    """The keys of one queue, of each of which `most` tasks may run at once."""

    def __init__(self, conn: sqlite3.Connection, now: int, queue: str, most: int) -> None:
        self._conn = conn
        self._now = now
        self._queue = queue
        self._most = most

    def offers(self, level: Level, wanted: int, walk: Walk, turns: Turns) -> tuple[list[Offer], Walk]:
        """Tasks that may start, best first; and how far the walk came, or that it found all that there is."""
        looked_at = max(LOOKED_AT, 2 * wanted)
        first = lines.best(self._conn, self._now, [level], looked_at)
        offers = self._of_tasks(first)
        if len(first) < looked_at:
            return sorted(offers), Walk(walk.at, over=True)
        if sum(not turns.had(self._queue, offer.key) for offer in offers) >= wanted:
            return sorted(offers), walk
        asked = WALKED + wanted
        keys = self._walked(walk.at, asked)
        found = self._of_keys(keys, wanted)
        return sorted({*offers, *found}), walk.on(keys, asked, found=bool(found))

    def why_held(self, record: Record) -> str | None:
        """Why a due task may not start, in words."""
        key = str(record.concurrency_key)
        if self._rooms([key])[key] <= 0:
            return limits.key_holds(self._queue, key, self._most, None)
        if self._most > 1:
            return None
        (first,) = self._firsts([key])
        return None if first.seq == record.seq else limits.key_holds(self._queue, key, self._most, first.id)

    def _of_tasks(self, places: Sequence[Place]) -> list[Offer]:
        if not places:
            return []
        named = _texts.decode(self._asked("keys_of", tasks=json_param([place.seq for place in places])))
        if self._most == 1:
            return self._in_order(dict.fromkeys(named))
        rooms = self._rooms(dict.fromkeys(named))
        seen: Counter[str] = Counter()
        offers = []
        for place, key in zip(places, named, strict=True):
            seen[key] += 1
            if seen[key] <= rooms[key]:
                offers.append(Offer(place, key, rooms[key]))
        return offers

    def _walked(self, after: str, limit: int) -> list[str]:
        return _texts.decode(self._asked("key_walk", queue=self._queue, after=after, limit=limit))

    def _of_keys(self, keys: Sequence[str], wanted: int) -> list[Offer]:
        if self._most == 1:
            return self._in_order(keys)
        rooms = {key: room for key, room in self._rooms(keys).items() if room > 0}
        asked = {"keys": json_param(list(rooms)), "limit": min(self._most, wanted)}
        found = _line.decode(self._asked("key_lines", queue=self._queue, **asked))
        return [Offer(Place(rank, run_at, seq, self._queue), key, rooms[key]) for rank, run_at, seq, key in found]

    def _in_order(self, keys: Iterable[str]) -> list[Offer]:
        firsts = [first for first in self._firsts(keys) if first.may_start]
        return [Offer(Place(one.rank, one.run_at, one.seq, self._queue), one.key, 1) for one in firsts]

    def _firsts(self, keys: Iterable[str]) -> list[_First]:
        return _firsts.decode(self._asked("key_firsts", queue=self._queue, keys=json_param(list(keys))))

    def _rooms(self, keys: Iterable[str]) -> dict[str, int]:
        """How many tasks of each of these keys may start."""
        running = _numbers.decode(self._asked("keys_running", queue=self._queue, keys=json_param(list(keys))))
        return {key: self._most - number for key, number in running.items()}

    def _asked(self, name: str, **parameters: Any) -> str:
        return str(self._conn.execute(statement(name), parameters | {"now": self._now}).fetchone()[0])
