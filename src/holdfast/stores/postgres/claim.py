"""Leases on due tasks, best first (contract section 5). What is best: sql/claim.sql; where to look: fronts.py; what
limits do to it: turn.py.
"""

from __future__ import annotations

from collections import Counter

import asyncpg
import msgspec

from holdfast import ids
from holdfast.clock import span_micros, to_micros
from holdfast.errors import HoldfastError
from holdfast.model.claim import Claim, Claimed, ClaimRequest
from holdfast.model.task import TaskStatus
from holdfast.policy import refusals
from holdfast.policy.backoff import Rng
from holdfast.policy.lease_length import lease_length
from holdfast.stores.postgres import limits, records, settle, turn
from holdfast.stores.postgres.fronts import AGAIN_SECONDS, Fronts, Place, Seen
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.rows import Record, claim_of, claims_of
from holdfast.stores.postgres.statements import is_text, is_uuid, literal
from holdfast.stores.postgres.survey import columns, discover, survey
from holdfast.stores.postgres.tx import Tx

TRIES = 3
MOST_READ = 5000
"""Where many queues have tasks of one priority, a claim compares the first ones of each: at most so many in all."""


async def claim(session: Session, request: ClaimRequest, fronts: Fronts) -> Claimed:
    """One statement; more where it finds nothing, where limits hold, and where the same claim was sent before."""
    queues = asked(request)
    shelves = fronts.order(queues)
    claimed = await _claim_from(session, request, shelves, fronts)
    if claimed.claims or claimed.more:
        return claimed
    surveyed = fronts.survey_due(seconds=AGAIN_SECONDS) and await survey(session, fronts, queues)
    if not surveyed and fronts.turns(shelves):
        return claimed  # there are due tasks, and limits hold them: nobody has to be found
    if not surveyed:
        # Whoever surveyed just now, or is at it, may have looked elsewhere (a reaper does), or before a commit.
        await discover(session, fronts, queues)
    return await _claim_from(session, request, fronts.order(queues, from_floor=True), fronts)


def asked(request: ClaimRequest) -> list[str] | None:
    """The queues that can exist at all."""
    return None if request.queues is None else [queue for queue in request.queues if is_text(queue)]


def _limit(limit: int, shelves: list[Seen]) -> int:
    widest = _widest(shelves)
    return min(limit, max(MOST_READ // widest, 1)) if widest > 1 else limit


def _widest(shelves: list[Seen]) -> int:
    """How many queues have a shelf of the same priority, at most."""
    return max(Counter(shelf.priority for shelf in shelves).values(), default=1)


async def _claim_from(session: Session, request: ClaimRequest, shelves: list[Seen], fronts: Fronts) -> Claimed:
    limit = _limit(request.limit, shelves)
    limited = msgspec.structs.replace(request, limit=limit)
    for _ in range(TRIES):
        claimed = await _claim(session, limited, shelves, fronts)
        if claimed is not None:
            cut_short = len(claimed.claims) == limit < request.limit
            return Claimed(claimed.claims, None, more=True) if cut_short else claimed
    raise asyncpg.SerializationError("the same claim, or the limits, change again and again")


async def _claim(session: Session, request: ClaimRequest, shelves: list[Seen], fronts: Fronts) -> Claimed | None:
    """None: try again."""
    try:
        if fronts.turns(shelves):
            claimed = await turn.claim(session, request, shelves, fronts)
            if claimed is not None:
                return claimed
            fronts.unlimited(shelves)
        return await _claim_freely(session, request, shelves, fronts)
    except (asyncpg.UniqueViolationError, turn.Repeated):
        return await _granted_before(session, request)  # sent twice, maybe at once: the other one was first


async def _claim_freely(session: Session, request: ClaimRequest, shelves: list[Seen], fronts: Fronts) -> Claimed | None:
    """Of queues without limits. None: there are others."""
    tokens = ids.tokens(request.limit)
    rows = await session.rows(statement_for(shelves), *parameters(session, request, tokens, shelves))
    if rows[0]["known"]:
        raise turn.Repeated
    if rows[0]["held"] is not None:
        fronts.limited(rows[0]["held"])
        return None
    next_due_at = rows[0]["next_due_at"]
    if rows[0]["id"] is None:
        return Claimed([], next_due_at)
    last = {(row["queue"], row["priority"]): row for row in rows}
    fronts.taken(shelves, {shelf: Place(row["run_at"] or row["created_at"], row["seq"]) for shelf, row in last.items()})
    return Claimed(claims_of(rows, tokens, request.worker_id), next_due_at)


def statement_for(shelves: list[Seen]) -> str:
    return "claim_line" if _widest(shelves) == 1 else "claim"


def parameters(session: Session, request: ClaimRequest, tokens: list[str], shelves: list[Seen]) -> tuple[object, ...]:
    """Of claim.sql and claim_line.sql."""
    return (
        session.given,
        request.claim_id,
        request.worker_id,
        request.limit,
        span_micros(request.lease_seconds),
        literal(tokens),
        *columns(shelves),
    )


async def _granted_before(session: Session, request: ClaimRequest) -> Claimed | None:
    """What this claim was granted; None where all of it has ended, and the claim counts as a new one."""
    held = await _held(session, request)
    if held:
        return Claimed(held, None)
    await session.rows("forget", request.claim_id)
    return None


async def _held(session: Session, request: ClaimRequest) -> list[Claim]:
    return [claim_of(row) for row in await session.rows("held", request.claim_id)]


async def claim_one(tx: Tx, request: ClaimRequest, task_id: str, rng: Rng) -> Claimed | HoldfastError:
    """The task named, or why not. A refusal is a value here: reaping its expired attempt stays done."""
    held = await _held(tx.session, request)
    if held:
        return Claimed(held, None)
    if not is_uuid(task_id):
        return refusals.not_found(task_id)
    # The turn comes before the task's own lock, and what is counted before the clock is read, as everywhere.
    limited = limits.limited(await tx.session.rows("turn_of_one", task_id))
    found = await limits.in_use(tx.session, limited, tx.session.given) if limited else None
    why = None if found is None else await turn.why_held(tx.session, limited, found, task_id)
    record = (await records.load(tx, [task_id])).get(task_id)
    if record is None:
        return refusals.not_found(task_id)
    if record.status is TaskStatus.RUNNING and record.claim_id == request.claim_id:  # sent twice at once
        return Claimed([claim_of(await tx.session.row("held_one", request.claim_id, task_id))], None)
    if record.expired(tx.now):
        settle.reap_one(tx, record, request.worker_id, rng)
        await records.save(tx, [record])
    refused = await _refused(tx, record) or (None if why is None else refusals.held(task_id, why))
    if refused is not None:
        return refused
    if found is not None:
        await limits.spend(tx.session, found.usages, {record.queue: 1}, to_micros(tx.now))
    return Claimed([await _start(tx, request, record, begun=found is not None)], None)


async def _refused(tx: Tx, record: Record) -> HoldfastError | None:
    match record.status:
        case TaskStatus.WAITING:
            return refusals.waiting(record.id)
        case TaskStatus.RUNNING:
            return refusals.already_claimed(record.id, record.claimed_by)
        case TaskStatus.QUEUED:
            if record.run_at > tx.now:
                return refusals.not_due(record.id, to_micros(record.run_at))
            paused = await tx.session.value("paused", record.queue)
            return refusals.paused(record.id, record.queue) if paused else None
        case ended:
            return refusals.ended(record.id, ended)


async def _start(tx: Tx, request: ClaimRequest, record: Record, *, begun: bool) -> Claim:
    length = lease_length(worker_seconds=request.lease_seconds, task_seconds=record.lease)
    given = tx.now, record.id, request.claim_id, request.worker_id, length, ids.token(), begun
    row = await tx.session.row("start", *given)
    tx.moved(record.queue, TaskStatus.QUEUED, TaskStatus.RUNNING)
    tx.note_plain(record.id, row["attempt"], "task.running", request.worker_id)
    return claim_of(row)
