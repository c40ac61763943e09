"""Claims where limits hold (contract section 9, ADR 13): they take turns, see what runs, and take what fits.

    turn ──► in use ──► look ──► held by their keys? look deeper ──► claim what was chosen ──► the rates follow

The turn is the row of each limited queue that has due tasks, locked until the commit; the whole store's comes first. So
of the claims of such a queue one is under way at a time, and all that it reads afterwards is what the others have left.

Looking deeper: where the best tasks are held by their keys, however many they are, or these had their turn, the keys
that have queued tasks are walked, some per claim, from where the last claim of this process stopped; and tasks without
a key are looked for behind those with one, in strides that are remembered (fronts.py). A claim that came to the end of
neither says that there may be more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from holdfast import ids
from holdfast.clock import from_micros, span_micros, to_micros
from holdfast.model.claim import Claimed, ClaimRequest
from holdfast.model.limits import WHOLE_STORE
from holdfast.policy import limits as policy
from holdfast.policy.limits import Room
from holdfast.stores.postgres import limits
from holdfast.stores.postgres.fronts import Fronts, Place, Seen, Walk
from holdfast.stores.postgres.limits import InUse, Limited
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.rows import claims_of
from holdfast.stores.postgres.statements import literal
from holdfast.stores.postgres.survey import columns

LOOK_BESIDES = 10
"""So many tasks more than are wanted are looked at first, where some may be held by their keys."""
STRIDE = 1000
"""So many tasks are read at a time in search of one without a key."""
FEWEST_KEYS, MOST_KEYS = 8, 400
"""So many keys are asked at a time, or as many as tasks are wanted; and so many per claim."""


class Candidate(NamedTuple):
    """In the order of claims."""

    rank: int
    run_at: datetime
    seq: int
    id: str
    tid: str
    """Where its row is."""
    queue: str
    key: str | None


class Repeated(Exception):
    """This claim was granted before."""


async def claim(session: Session, request: ClaimRequest, shelves: list[Seen], fronts: Fronts) -> Claimed | None:
    """None: nothing that is due has a limit."""
    async with session.conn.transaction():
        turn = limits.limited(await session.rows("turn", session.given, *columns(shelves)))
        if not turn:
            return None
        found = await limits.in_use(session, turn, session.given)
        return await Turn(session, request, shelves, fronts, turn, found).claimed()


class Turn:
    """One claim that has its turn."""

    def __init__(
        self,
        session: Session,
        request: ClaimRequest,
        shelves: list[Seen],
        fronts: Fronts,
        turn: dict[str, Limited],
        found: InUse,
    ) -> None:
        self._session = session
        self._request = request
        self._shelves = shelves
        self._fronts = fronts
        self._turn = turn
        self._found = found
        self._room = Room(request.limit, found.usages, to_micros(found.now))
        self._chosen: dict[str, Candidate] = {}
        self._key_rooms: dict[tuple[str, str], int] = {}
        self._more = False

    async def claimed(self) -> Claimed:
        keyed = len(self._plain_shelves()) < len(self._shelves)
        wanted = self._room.left + (LOOK_BESIDES if keyed else 0)
        seen = await self._look(self._shelves, wanted)
        found = await self._allowed(seen)
        beyond = len(seen) == wanted
        others = await self._deeper() if beyond and self._waited_for_less(found) else None
        self._offer([*found, *(others or ())])
        if self._room.left and beyond:
            others = await self._deeper() if others is None else []
            self._offer([*others, *await self._look(self._plain_shelves(), self._room.left)])
            self._more |= bool(self._chosen)
        return await self._grant(seen)

    def _waited_for_less(self, found: Sequence[Candidate]) -> bool:
        """Are there fewer tasks here than places, but for keys that had their turn? Others may have waited longer."""
        keyed = [one for one in found if self._per_key(one.queue) is not None and self._may_start(one)]
        fresh = Counter(one.queue for one in keyed if not self._fronts.keys.had(one.queue, one.key))
        return any(fresh[queue] < self._room.of(queue) for queue in {one.queue for one in keyed})

    def _may_start(self, one: Candidate) -> bool:
        return one.key is None or self._key_rooms.get((one.queue, one.key), 0) > 0

    # Candidates

    def _per_key(self, queue: str) -> int | None:
        return self._turn[queue].limits.max_running_per_key if queue in self._turn else None

    def _plain_shelves(self) -> list[Seen]:
        return [shelf for shelf in self._shelves if self._per_key(shelf.queue) is None]

    async def _look(self, shelves: Sequence[Seen], wanted: int) -> list[Candidate]:
        """The best ones in the usual order, whatever their keys."""
        shelves = [shelf for shelf in shelves if self._room.of(shelf.queue)]
        if not shelves:
            return []
        keyed = [self._per_key(shelf.queue) is not None for shelf in shelves]
        most = [wanted if one else self._room.of(shelf.queue) for shelf, one in zip(shelves, keyed, strict=True)]
        rows = await self._session.rows(
            "look", self._found.now, *columns(shelves), most, keyed, wanted, list(self._turn)
        )
        return [
            Candidate(-priority, run_at, seq, task, tid, queue, key)
            for queue, priority, run_at, seq, task, tid, key in rows
        ]

    def _offer(self, candidates: Iterable[Candidate]) -> None:
        """Best first; in a queue whose keys are limited, keys that had their turn come after their equals."""
        offered = set(candidates)
        turns = self._fronts.keys
        for queue in {one.queue for one in offered if self._per_key(one.queue) is not None}:
            turns.begin(queue, {one.key for one in offered if one.queue == queue and self._may_start(one)})

        def order(one: Candidate) -> tuple[object, ...]:
            return one.rank, self._per_key(one.queue) is not None and turns.had(one.queue, one.key), one

        for one in sorted(offered, key=order):
            key_room = 0 if one.key is None else self._key_rooms.get((one.queue, one.key), 0)
            if one.id not in self._chosen and self._room.take(one.queue, one.key, key_room):
                self._chosen[one.id] = one

    async def _allowed(self, seen: Iterable[Candidate]) -> list[Candidate]:
        """Where the tasks of a key go in order, the first one stands for whichever was seen."""
        allowed = []
        asked: dict[str, set[str]] = {}
        for one in seen:
            per_key = self._per_key(one.queue)
            if one.key is not None and per_key is not None:
                asked.setdefault(one.queue, set()).add(one.key)
            if one.key is None or per_key != 1:
                allowed.append(one)
        for queue, keys in asked.items():
            firsts = await self._ask_keys(queue, sorted(keys))
            if self._per_key(queue) == 1:
                allowed += firsts
        return allowed

    async def _ask_keys(self, queue: str, keys: list[str]) -> list[Candidate]:
        self._key_rooms |= {(queue, key): 0 for key in keys}
        return self._of_keys(queue, await self._session.rows("keys", *self._key_values(queue, 1), keys))

    def _of_keys(self, queue: str, rows: Iterable[Any]) -> list[Candidate]:
        """Of keys.sql and walk.sql; a key that may start nothing has an empty row, or none."""
        found = []
        for key, priority, run_at, seq, task, tid, room in rows:
            self._key_rooms[queue, key] = room or 0
            if task is not None:
                found.append(Candidate(-priority, run_at, seq, task, tid, queue, key))
        return found

    def _key_values(self, queue: str, each: int) -> tuple[object, ...]:
        return self._found.now, queue, self._per_key(queue), each, self._found.expired[queue]

    # Looking deeper

    async def _deeper(self) -> list[Candidate]:
        found: list[Candidate] = []
        queues = dict.fromkeys(shelf.queue for shelf in self._shelves if self._per_key(shelf.queue) is not None)
        for queue in queues:
            if self._room.of(queue):
                found += await self._walk(queue, self._room.of(queue))
        for shelf in self._shelves:
            if self._per_key(shelf.queue) is not None and self._room.of(shelf.queue):
                found += await self._stride(shelf, self._room.of(shelf.queue))
        return found

    async def _walk(self, queue: str, wanted: int) -> list[Candidate]:
        """Along the keys, once round at most."""
        after, began = self._fronts.walk(queue)
        began = after if began is None else began
        found: list[Candidate] = []
        keys_at_once = max(wanted, FEWEST_KEYS)
        rows_at_once = wanted + keys_at_once
        walked, round_over = 0, False
        while len(found) < wanted and walked < MOST_KEYS and not round_over:
            values = *self._key_values(queue, wanted), after, keys_at_once, rows_at_once
            rows = await self._session.rows("walk", *values)
            found += [one for one in self._of_keys(queue, rows) if one.id not in self._chosen]
            keys = sorted({row["key"] for row in rows})
            end = len(keys) < keys_at_once and len(rows) < rows_at_once
            round_over = end if began == "" else after < began and (end or keys[-1] >= began)
            after = "" if end else keys[-1]
            walked += keys_at_once
        self._more |= not round_over
        self._fronts.walked(queue, Walk(after, None if found or round_over else began))
        return found

    async def _stride(self, shelf: Seen, wanted: int) -> list[Candidate]:
        """Behind tasks that have a key."""
        begin = max(shelf.place, shelf.deep)
        rows = await self._session.rows("stride", self._found.now, shelf.queue, shelf.priority, *begin, STRIDE, wanted)
        far = None if rows[0]["far_run_at"] is None else Place(rows[0]["far_run_at"], rows[0]["far_seq"])
        found = sorted(
            Candidate(-shelf.priority, row["run_at"], row["seq"], row["id"], row["tid"], shelf.queue, None)
            for row in rows
            if row["id"] is not None
        )
        place = Place(found[0].run_at, found[0].seq) if found else far or begin
        self._fronts.went_deep(shelf, place, arrived=bool(found) or far is None)
        self._more |= far is not None
        return found

    # Leases

    async def _grant(self, seen: Sequence[Candidate]) -> Claimed:
        request = self._request
        tokens = ids.tokens(request.limit)
        chosen = sorted(self._chosen.values())
        # The clock is read anew: a place may be taken of a task that has ended since it was read before.
        rows = await self._session.rows(
            "claim_chosen",
            self._session.given,
            request.claim_id,
            request.worker_id,
            request.limit,
            span_micros(request.lease_seconds),
            literal(tokens),
            *columns(self._shelves),
            literal(one.id for one in chosen),
            list(self._turn),
            [one.tid for one in chosen],
        )
        if rows[0]["known"]:
            raise Repeated
        claims = [] if rows[0]["id"] is None else claims_of(rows, tokens, request.worker_id)
        taken = Counter(claim.queue for claim in claims)
        now = to_micros(claims[0].claimed_at if claims else self._found.now)
        after = await limits.spend(self._session, self._found.usages, taken, now)
        granted = {claim.task_id for claim in claims}
        for one in chosen:
            if one.id in granted and self._per_key(one.queue) is not None:
                self._fronts.keys.took(one.queue, one.key)
        self._raise_fronts(seen, granted)
        self._fronts.limited(queue for queue in self._queues_in_turn())
        if len(claims) == request.limit:
            return Claimed(claims, None)
        soonest = [at for at in (rows[0]["next_due_at"], await self._next_token(after, now)) if at is not None]
        return Claimed(claims, min(soonest, default=None), more=self._more)

    def _queues_in_turn(self) -> Iterable[str]:
        return (shelf.queue for shelf in self._shelves if WHOLE_STORE in self._turn or shelf.queue in self._turn)

    async def _next_token(self, usages: dict[str, policy.Usage], now: int) -> datetime | None:
        """When a rate lets the next task start, where tasks are due and only that holds them."""
        soonest = {name: at for name, usage in usages.items() if (at := usage.next_token(now)) is not None}
        if not soonest:
            return None
        rows = await self._session.rows("still_due", self._found.now, *columns(self._shelves))
        due = {row["queue"] for row in rows}
        at = min((at for name, at in soonest.items() if name in due or (due and name == WHOLE_STORE)), default=None)
        return None if at is None else from_micros(at)

    def _raise_fronts(self, seen: Sequence[Candidate], granted: set[str]) -> None:
        """On every shelf up to the first that was left."""
        last: dict[tuple[str, int], Place] = {}
        left: set[tuple[str, int]] = set()
        for one in seen:
            shelf = one.queue, -one.rank
            if one.id not in granted:
                left.add(shelf)
            elif shelf not in left:
                last[shelf] = Place(one.run_at, one.seq)
        self._fronts.taken(self._shelves, last)


# One task by its id


async def why_held(session: Session, turn: dict[str, Limited], found: InUse, task_id: str) -> str | None:
    """Which limit holds a task, if it is due, in words; None: it may start."""
    for name, usage in found.usages.items():
        why = usage.holds(name, to_micros(found.now))
        if why is not None:
            return why
    for queue, limited in turn.items():
        most = limited.limits.max_running_per_key
        key = None if most is None else await session.value("key_of", task_id)
        if most is not None and key is not None:
            return await _why_key_holds(session, found, queue, key, most, task_id)
    return None


async def _why_key_holds(session: Session, found: InUse, queue: str, key: str, most: int, task_id: str) -> str | None:
    if most > 1:
        running = await session.value("key_running", queue, key, found.expired[queue])
        return None if running < most else policy.key_holds(queue, key, most, None)
    first = await session.row("goes_first", found.now, queue, key)
    if first is None or first["id"] == task_id:
        return None
    return policy.key_holds(queue, key, most, None if first["runs"] else first["id"])
