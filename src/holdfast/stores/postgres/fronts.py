"""Where the queued tasks of every queue and priority begin, so that a claim does not read through what is worked off.

While any transaction holds a snapshot open, PostgreSQL keeps the index entries of tasks that were claimed long ago, and
a claim that starts at the beginning reads them all: more with every task. So each process remembers, for each shelf
(a queue and a priority), two places in the order of claims:

    floor ──────────── front ───────────────►  (run_at, seq)
      │                  └ claims begin here: what was below was taken by somebody when it was last seen
      └ nothing claimable is below, nor will be: here begin surveys (survey.py), which correct the front twice a second,
        and claims that would else find nothing

What can come below the front, and how it is found (C5.2: within a second):

- A task whose transaction commits late, or one that a claim held which then came to nothing. The next survey sees it,
  for the floor is raised to a place only when every transaction that was writing at that time has ended, and never
  above that time; whoever begins later gets a later time.
- A task that becomes claimable with a time that is over already (given so, or released). Whoever writes it also writes
  a note into `late`, which surveys read; in the same process the front goes back at once.
- Anything else (a person with SQL, a clock that was set back): everything starts anew once a minute, on every new
  connection, and when the clock goes back.

The same for leases: the reaper looks for expired ones only from `leases` on.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from weakref import WeakSet

import msgspec

from holdfast.clock import SYSTEM_CLOCK
from holdfast.model.task import NewTask
from holdfast.policy.limits import Turns

LOWEST_TIME = datetime(1, 1, 1, tzinfo=UTC)
SURVEY_SECONDS = 0.5
AGAIN_SECONDS = 0.25
"""A claim that found nothing is followed by a survey, unless the last one is as young as this."""
ANEW_SECONDS = 60.0
MANY = 64
"""Of more shelves than this, claims look only at those where something was seen."""


class Place(NamedTuple):
    run_at: datetime
    seq: int


LOWEST = Place(LOWEST_TIME, 0)


class Queued(NamedTuple):
    """A task that became claimable, or will be at its time."""

    queue: str
    priority: int
    run_at: datetime


class Shelf(msgspec.Struct, gc=False):
    queue: str
    priority: int
    front: Place = LOWEST
    floor: Place = LOWEST
    candidate: Place = LOWEST
    """Becomes the floor when everybody who was writing when it was seen has ended."""
    deep: Place = LOWEST
    """No task without a key was seen up to here: where claims go on that keys hold up (turn.py)."""
    sure: Place = LOWEST
    """Nor will there be one up to here: where they begin anew."""
    arrived: bool = False
    """They have come to a task without a key, or to the end."""
    quiet: datetime = LOWEST_TIME
    """Who got his time before that had ended when they began."""
    filled: bool = True
    lowered: int = 0
    """How often: who read the shelf before must not raise it after."""
    deep_lowered: int = 0

    def lower(self, run_at: datetime) -> None:
        place = Place(run_at, 0)
        self.deep, self.sure = min(self.deep, place), min(self.sure, place)
        self.deep_lowered += 1
        if place >= self.front:
            return
        self.front, self.floor = min(self.front, place), min(self.floor, place)
        self.candidate = min(self.candidate, place)
        self.lowered += 1

    def look_anew(self, quiet: datetime) -> None:
        """For what was committed late, behind those who look for tasks without a key."""
        self.deep, self.arrived, self.quiet = self.sure, False, quiet
        self.deep_lowered += 1


class Seen(NamedTuple):
    """A shelf as somebody read it."""

    queue: str
    priority: int
    place: Place
    lowered: int
    deep: Place = LOWEST
    deep_lowered: int = 0


def _seen(shelf: Shelf, place: Place) -> Seen:
    return Seen(shelf.queue, shelf.priority, place, shelf.lowered, shelf.deep, shelf.deep_lowered)


class Walk(NamedTuple):
    """Round the keys of a queue, in their order, over many claims. A round ends where it began."""

    after: str = ""
    began: str | None = None


_all: WeakSet[Fronts] = WeakSet()


class Fronts:
    """One per store and process, used by all its threads."""

    def __init__(self) -> None:
        self.after_fork()
        _all.add(self)

    def after_fork(self) -> None:
        """Another thread may have held a lock at the fork; in the child nobody would ever release it."""
        self._lock = threading.Lock()
        self._surveying = threading.Lock()
        self.keys = Turns()
        """Of the limited queues."""
        self._start_anew()

    def start_anew(self) -> None:
        with self._lock:
            self._start_anew()

    def _start_anew(self) -> None:
        self._shelves: dict[tuple[str, int], Shelf] = {}
        self._writers: frozenset[str] = frozenset()
        self._now = LOWEST_TIME
        self._late: frozenset[int] | None = None
        self._surveyed_at = -ANEW_SECONDS
        self._began_at = SYSTEM_CLOCK.monotonic()
        self._leases = self._leases_candidate = LOWEST_TIME
        self._quiet = self._quiet_candidate = LOWEST_TIME
        self._limited: set[str] = set()
        self._walks: dict[str, Walk] = {}

    # What claims and reaping ask

    def order(self, queues: Sequence[str] | None, *, from_floor: bool = False) -> list[Seen]:
        """The shelves to claim from, the highest priority first. From the floor: all of them."""
        with self._lock:
            shelves = [shelf for shelf in self._shelves.values() if queues is None or shelf.queue in queues]
        if len(shelves) > MANY and not from_floor:
            shelves = [shelf for shelf in shelves if shelf.filled]
        shelves.sort(key=lambda shelf: (-shelf.priority, shelf.queue))
        return [_seen(shelf, shelf.floor if from_floor else shelf.front) for shelf in shelves]

    def taken(self, seen: Iterable[Seen], last: dict[tuple[str, int], Place]) -> None:
        """A claim took everything up to these places, but for what others hold."""
        with self._lock:
            for one in seen:
                place = last.get((one.queue, one.priority))
                shelf = self._shelves.get((one.queue, one.priority))
                if place is not None and shelf is not None and shelf.lowered == one.lowered:
                    shelf.front = max(shelf.front, place)

    # What claims under limits remember (turn.py)

    def turns(self, shelves: Iterable[Seen]) -> bool:
        """Had one of these queues a limit and due tasks when somebody last looked?"""
        with self._lock:
            return any(shelf.queue in self._limited for shelf in shelves)

    def limited(self, queues: Iterable[str]) -> None:
        with self._lock:
            self._limited.update(queues)

    def unlimited(self, shelves: Iterable[Seen]) -> None:
        with self._lock:
            self._limited.difference_update(shelf.queue for shelf in shelves)

    def went_deep(self, seen: Seen, place: Place, *, arrived: bool) -> None:
        """Nothing without a key was seen before this place."""
        with self._lock:
            shelf = self._shelves.get((seen.queue, seen.priority))
            if shelf is not None and shelf.deep_lowered == seen.deep_lowered:
                shelf.deep = max(shelf.deep, place)
                shelf.sure = max(shelf.sure, min(place, Place(shelf.quiet, 0)))
                shelf.arrived |= arrived

    def walk(self, queue: str) -> Walk:
        with self._lock:
            return self._walks.get(queue, Walk())

    def walked(self, queue: str, walk: Walk) -> None:
        with self._lock:
            self._walks[queue] = walk

    @property
    def leases(self) -> datetime:
        """No lease that has yet to be reaped ended before."""
        return self._leases

    # What writers tell

    def submitted(self, tasks: Iterable[NewTask]) -> None:
        self.queued({(new.queue, new.priority, new.run_at) for new in tasks if not new.parents})

    def queued(self, tasks: Iterable[tuple[str, int, datetime | None]]) -> None:
        with self._lock:
            for queue, priority, run_at in tasks:
                shelf = self._shelf(queue, priority)
                shelf.filled = True
                if run_at is not None:
                    shelf.lower(run_at)

    def _shelf(self, queue: str, priority: int) -> Shelf:
        shelf = self._shelves.get((queue, priority))
        if shelf is None:
            shelf = self._shelves[queue, priority] = Shelf(queue, priority)
        return shelf

    # What surveys ask and tell

    def survey_due(self, *, seconds: float = SURVEY_SECONDS) -> bool:
        return SYSTEM_CLOCK.monotonic() - self._surveyed_at >= seconds

    def begin_survey(self) -> bool:
        """False: somebody else is at it."""
        if not self._surveying.acquire(blocking=False):
            return False
        self._surveyed_at = SYSTEM_CLOCK.monotonic()
        return True

    def end_survey(self) -> None:
        self._surveying.release()

    def begin(self, now: datetime, late: dict[int, Queued]) -> None:
        """The survey reads the clock, and the notes of what came late."""
        with self._lock:
            if now < self._now or SYSTEM_CLOCK.monotonic() - self._began_at >= ANEW_SECONDS:
                surveyed_at = self._surveyed_at
                self._start_anew()
                self._surveyed_at = surveyed_at
            self._now = now
            known = frozenset(late) if self._late is None else self._late
            for number, queued in late.items():
                if number not in known:
                    shelf = self._shelf(queued.queue, queued.priority)
                    shelf.filled = True
                    shelf.lower(queued.run_at)
            self._late = frozenset(late)

    def known(self) -> list[Seen]:
        """Every shelf with its floor."""
        with self._lock:
            return [_seen(shelf, shelf.floor) for shelf in self._shelves.values()]

    def found(
        self,
        now: datetime,
        writers: frozenset[str],
        firsts: Sequence[tuple[Seen, Place | None]],
        first_lease: datetime | None,
    ) -> None:
        """What a survey saw: who may be writing tasks, and then where every shelf begins."""
        with self._lock:
            ended = not self._writers & writers
            for seen, first in firsts:
                shelf = self._shelves.get((seen.queue, seen.priority))
                if shelf is None or shelf.lowered != seen.lowered:
                    continue
                place = min(first or Place(now, 0), Place(now, 0))
                if ended:
                    shelf.floor = max(shelf.floor, min(shelf.candidate, place))
                    shelf.candidate = place
                # Of an empty shelf the time is not its front: somebody may be about to commit a task of just before.
                shelf.front = max(shelf.front, shelf.floor) if first is None else place
                shelf.filled = first is not None
            if ended:
                lease = min(first_lease or now, now)
                self._leases = max(self._leases, min(self._leases_candidate, lease))
                self._leases_candidate = lease
                self._quiet, self._quiet_candidate = self._quiet_candidate, now
                self._writers = writers
            for shelf in self._shelves.values():
                if shelf.arrived:
                    shelf.look_anew(self._quiet)


def _after_fork() -> None:
    for fronts in _all:
        fronts.after_fork()


os.register_at_fork(after_in_child=_after_fork)
