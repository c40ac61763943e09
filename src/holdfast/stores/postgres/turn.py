"""Claims where limits hold (contract section 9, ADR 13): they take turns, see what runs, and take what fits.

    turn ──► in use ──► look ──► held by their keys? look deeper ──► claim what was chosen ──► the rates follow

The turn is the row of each limited queue that has due tasks, locked until the commit; the whole store's comes first. So
of the claims of such a queue one is under way at a time, and all that it reads afterwards is what the others have left.

Looking deeper: where the best tasks are held by their keys, however many they are, the keys that have queued tasks are
walked, some per claim, from where the last claim of this process stopped; and tasks without a key are looked for behind
those with one, in strides that are remembered (fronts.py). A claim that came to the end of neither says that there may
be more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import NamedTuple

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
from holdfast.stores.postgres.rows import Record, claims_of
from holdfast.stores.postgres.statements import literal
from holdfast.stores.postgres.survey import columns

LOOK_BESIDES = 10
"""So many tasks more than are wanted are looked at first, where some may be held by their keys."""
STRIDE = 1000
"""So many tasks are read at a time in search of one without a key."""
KEYS_BESIDES, KEYS_PER_CLAIM = 2, 400
"""So many keys more than tasks are wanted are asked at a time, as some of them are held; and so many in all."""


class Candidate(NamedTuple):
    """In the order of claims."""

    rank: int
    run_at: datetime
    seq: int
    id: str
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
        self._offer(await self._allowed(seen))
        if self._room.left and len(seen) == wanted:
            self._offer([*await self._deeper(), *await self._look(self._plain_shelves(), self._room.left)])
            self._more |= bool(self._chosen)
        return await self._grant(seen)

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
        return [Candidate(-priority, run_at, seq, task, queue, key) for queue, priority, run_at, seq, task, key in rows]

    def _offer(self, candidates: Iterable[Candidate]) -> None:
        """Best first."""
        for one in sorted(set(candidates)):
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

    def _of_keys(self, queue: str, rows: Iterable[tuple[str, int, datetime, int, str | None, int]]) -> list[Candidate]:
        """Of keys.sql and walk.sql; a key that may start nothing has an empty row, or none."""
        found = []
        for key, priority, run_at, seq, task, room in rows:
            self._key_rooms[queue, key] = room or 0
            if task is not None:
                found.append(Candidate(-priority, run_at, seq, task, queue, key))
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
        keys_at_once = wanted + KEYS_BESIDES
        rows_at_once = wanted + keys_at_once
        walked, round_over = 0, False
        while len(found) < wanted and walked < KEYS_PER_CLAIM and not round_over:
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
            Candidate(-shelf.priority, row["run_at"], row["seq"], row["id"], shelf.queue, None)
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
        rows = await self._session.rows(
            "claim_chosen",
            self._found.now,
            request.claim_id,
            request.worker_id,
            request.limit,
            span_micros(request.lease_seconds),
            literal(tokens),
            *columns(self._shelves),
            literal(one.id for one in sorted(self._chosen.values())),
            list(self._turn),
        )
        if rows[0]["known"]:
            raise Repeated
        claims = [] if rows[0]["id"] is None else claims_of(rows, tokens, request.worker_id)
        taken = Counter(claim.queue for claim in claims)
        now = to_micros(self._found.now)
        after = await limits.spend(self._session, self._found.usages, taken, now)
        self._raise_fronts(seen, {claim.task_id for claim in claims})
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


async def why_held(session: Session, turn: dict[str, Limited], found: InUse, record: Record) -> str | None:
    """Which limit holds a due task, in words; None: it may start."""
    for name, usage in found.usages.items():
        why = usage.holds(name, to_micros(found.now))
        if why is not None:
            return why
    queue = record.queue
    most = turn[queue].limits.max_running_per_key if queue in turn else None
    key = None if most is None else await session.value("key_of", record.id)
    if key is None or most is None:
        return None
    rows = await session.rows("keys", found.now, queue, most, 1, found.expired[queue], [key])
    if rows and (most > 1 or rows[0]["id"] == record.id):
        return None
    first, runs = await session.row("goes_first", found.now, queue, key)
    return policy.key_holds(queue, key, most, None if most > 1 or runs else first)
