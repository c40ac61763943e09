"""Claims from queues that have limits (contract section 9). What is left of a limit: policy/limits.py."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Sequence

from holdfast.model.claim import Claim
from holdfast.model.limits import WHOLE_STORE
from holdfast.model.task import TaskStatus
from holdfast.policy import limits
from holdfast.policy.limits import Room, Usage
from holdfast.stores.memory.lines import Lane, Order, order
from holdfast.stores.memory.record import Record
from holdfast.stores.memory.state import MemoryState

_Head = tuple[tuple[int, bool, int, int], int, str, str | None, Lane]
"""A lane by its first task: priority, whether its key had its turn, run_at, order of submission."""


class Limiting:
    """One claim, as it finds the store."""

    def __init__(self, state: MemoryState, now: int) -> None:
        self._state = state
        self._now = now
        limited = {queue: line for queue, line in state.lines.items() if line.limits.some}
        running = [one for one in state.running.values() if not one.expired(now)] if limited else []
        self._running_keys = Counter((record.new.queue, record.new.concurrency_key) for record in running)
        counts = Counter(record.new.queue for record in running) + Counter({WHOLE_STORE: len(running)})
        self.usages = {queue: Usage(line.limits, counts[queue], line.tat) for queue, line in limited.items()}

    def claims(self, queues: Sequence[str], limit: int, start: Callable[[Record], Claim]) -> list[Claim]:
        """Best first over all lanes; a lane whose best may not start is left alone."""
        if not self.usages:
            return self._freely(queues, limit, start)
        room = Room(limit, self.usages, self._now)
        self._begin_turns(room, queues)
        heads: list[_Head] = []
        for n, (queue, key, lane) in enumerate(self._lanes(queues)):
            had = room.keyed(queue) and self._state.turns.had(queue, key)
            self._push(heads, n, queue, key, lane, had=had)
        taken: list[tuple[Order, Claim]] = []
        while heads and room.left:
            (_, had, *_), n, queue, key, lane = heapq.heappop(heads)
            record = self._first(queue, key, lane)
            if record is not None and room.take(queue, key, self._key_room(queue, key)):
                taken.append((order(record), start(record)))
                if room.keyed(queue):
                    self._state.turns.took(queue, key)
                self._push(heads, n, queue, key, lane, had=had)
        claims = [claim for _, claim in sorted(taken, key=lambda one: one[0])]
        self._spend(claims)
        return claims

    def _freely(self, queues: Sequence[str], limit: int, start: Callable[[Record], Claim]) -> list[Claim]:
        """Where nothing is limited, a queue has one lane."""
        lanes = [lane for queue in queues for _, lane in self._state.lines[queue].lanes]
        claims: list[Claim] = []
        while len(claims) < limit:
            heads = [record for record in (lane.best(self._now) for lane in lanes) if record is not None]
            if not heads:
                break
            claims.append(start(min(heads, key=order)))
        return claims

    def _begin_turns(self, room: Room, queues: Sequence[str]) -> None:
        for name in queues:
            if room.keyed(name) and room.of(name):
                keys = [
                    key
                    for queue, key, lane in self._lanes([name])
                    if self._first(queue, key, lane) is not None and (key is None or self._key_room(queue, key) > 0)
                ]
                self._state.turns.begin(name, keys)

    def _lanes(self, queues: Sequence[str]) -> list[tuple[str, str | None, Lane]]:
        return [(queue, key, lane) for queue in queues for key, lane in self._state.lines[queue].lanes]

    def _push(self, heads: list[_Head], n: int, queue: str, key: str | None, lane: Lane, *, had: bool) -> None:
        record = self._first(queue, key, lane)
        if record is not None:
            rank, run_at, seq = order(record)
            heapq.heappush(heads, ((rank, had, run_at, seq), n, queue, key, lane))

    def _first(self, queue: str, key: str | None, lane: Lane) -> Record | None:
        """The task of the lane that may be next; in an ordered key one that has begun goes before all others."""
        begun = self._begun(queue, key)
        if begun is None:
            return lane.best(self._now)
        return begun if begun.status is TaskStatus.QUEUED and begun.run_at <= self._now else None

    def _begun(self, queue: str, key: str | None) -> Record | None:
        if key is None or self._state.lines[queue].limits.max_running_per_key != 1:
            return None
        return min(self._state.begun.get((queue, key), {}).values(), key=lambda one: one.seq, default=None)

    def _key_room(self, queue: str, key: str | None) -> int:
        """As it was when this claim began: Room counts what it has taken since."""
        most = self._state.lines[queue].limits.max_running_per_key
        return limits.MOST if most is None else most - self._running_keys[queue, key]

    def _spend(self, claims: Sequence[Claim]) -> None:
        taken = Counter(claim.queue for claim in claims)
        taken[WHOLE_STORE] = len(claims)
        for queue, usage in self.usages.items():
            if taken[queue] and usage.limits.rate is not None:
                self._state.touch_line(queue)
                self._state.lines[queue].tat = limits.spent(usage.limits, usage.tat, self._now, taken[queue])

    def next_token(self, queues: Sequence[str]) -> int | None:
        """When a rate lets the next task start, where tasks are due and only that holds them."""
        soonest = []
        for queue in queues:
            if any(lane.best(self._now) is not None for _, lane in self._state.lines[queue].lanes):
                usages = [self._usage(name) for name in (queue, WHOLE_STORE)]
                soonest += [at for usage in usages if usage and (at := usage.next_token(self._now)) is not None]
        return min(soonest, default=None)

    def _usage(self, queue: str) -> Usage | None:
        """With what this claim has spent."""
        if queue not in self.usages:
            return None
        usage = self.usages[queue]
        return Usage(usage.limits, usage.running, self._state.lines[queue].tat)

    # One task by its id

    def why_held(self, record: Record) -> str | None:
        queue, key = record.new.queue, record.new.concurrency_key
        for name in (WHOLE_STORE, queue):
            why = self.usages[name].holds(name, self._now) if name in self.usages else None
            if why is not None:
                return why
        most = self._state.lines[queue].limits.max_running_per_key
        if key is None or most is None:
            return None
        if self._key_room(queue, key) <= 0:
            return limits.key_holds(queue, key, most, None)
        first = self._first_of_key(queue, key) if most == 1 else record
        return None if first is record else limits.key_holds(queue, key, most, first.new.id)

    def _first_of_key(self, queue: str, key: str) -> Record:
        begun = self._begun(queue, key)
        best = dict(self._state.lines[queue].lanes)[key].best(self._now) if begun is None else begun
        assert best is not None  # the one that is asked for is due
        return best

    def spend(self, claim: Claim) -> None:
        self._spend([claim])
