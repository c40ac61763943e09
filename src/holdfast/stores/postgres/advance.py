"""What follows for others when a task has ended, or has come back from an end (docs/adr/0012-workflows.md).

Every transaction calls follow() before it commits; what has turned, records.write() has noted. So there is no way for a
task to end that leaves this out. What is little is done there; what is much becomes a row of `advances`, with which
step() goes on, one bounded transaction after the other.

Locks are taken in one order: the task that has turned, buckets, tasks that wait. What an end means for one who waits is
decided in policy/workflow.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any, NamedTuple

from holdfast.model.task import TaskStatus
from holdfast.policy import workflow
from holdfast.policy.workflow import BUCKETS_FROM, INLINE_ALL, INLINE_EACH, Effect
from holdfast.stores.postgres import records
from holdfast.stores.postgres.rows import Record
from holdfast.stores.postgres.tx import Turned, Tx

_LOWEST = "00000000-0000-0000-0000-000000000000"
_NOT_WELL = (TaskStatus.FAILED, TaskStatus.CANCELED)


class Kind(StrEnum):
    DEPENDENTS = "dependents"
    """Those that wait for an ended task are told."""
    FAIL_FAST = "fail_fast"
    """The members of its name end with it."""
    REARM = "rearm"
    """It was requeued: what ended because of it comes back."""


class Place(NamedTuple):
    """How far a piece of work has come, in its own order."""

    id: str = _LOWEST
    n: int = -1


class Came(NamedTuple):
    """How many were looked at, and from where to go on; None: that was all."""

    done: int
    place: Place | None
    stuck: bool = False
    """Somebody else is at what is left."""


_FIRST = Place()


class Left(NamedTuple):
    """A row of `advances`."""

    task_id: str
    kind: Kind
    actor: str
    place: Place


# With a verb


async def follow(tx: Tx) -> None:
    """Do what is little of what the records that have turned mean for others, and leave the rest to step()."""
    for task_id in tx.resumed:
        await _go_on(tx, task_id, INLINE_EACH)
    following = _Following(tx)
    while tx.turned:
        turned, tx.turned = tx.turned, []
        await following.tell([one for one in turned if one.record.status.terminal and one.record.dependents])
        for one in turned:
            if kind := _besides(one.record):
                await following.work(kind, one)
    await _leave(tx, following.left)


def _besides(record: Record) -> Kind | None:
    """What a record that has turned means for others than those that wait for it."""
    if not record.status.terminal:
        return Kind.REARM
    root = record.status in _NOT_WELL and record.canceled_because is None
    return Kind.FAIL_FAST if root and record.fail_fast is not None else None


class _Following:
    def __init__(self, tx: Tx) -> None:
        self._tx = tx
        self._room = INLINE_ALL
        self.left: list[Left] = []

    async def tell(self, ended: Sequence[Turned]) -> None:
        """Those that wait for these tasks, all in one go."""
        few: list[Turned] = []
        for one in ended:
            if one.record.dependents <= min(INLINE_EACH, self._room):
                self._room -= one.record.dependents
                few.append(one)
            else:
                self.left.append(Left(one.record.id, Kind.DEPENDENTS, one.actor, _FIRST))
        if few:
            await _count_down(self._tx, few, _FIRST, INLINE_EACH)

    async def work(self, kind: Kind, one: Turned) -> None:
        most = min(INLINE_EACH, self._room)
        came = await _WORK[kind](self._tx, one, _FIRST, most) if most else Came(0, _FIRST)
        self._room -= came.done
        if came.place is not None:
            self.left.append(Left(one.record.id, kind, one.actor, came.place))


async def _leave(tx: Tx, left: Sequence[Left]) -> None:
    rows = [(one.task_id, one.kind, one.actor, *one.place) for one in left]
    if rows:
        await tx.session.rows("left", tx.now, *map(list, zip(*rows, strict=True)))


# What was left


async def step(tx: Tx, limit: int) -> Came | None:
    """Go on with one thing; None: nothing is left at which nobody else is."""
    task_id = await tx.session.value("next_left")
    return None if task_id is None else await _go_on(tx, task_id, limit)


async def _go_on(tx: Tx, task_id: str, limit: int) -> Came:
    record = (await records.load(tx, [task_id]))[task_id]
    row = await tx.session.row("left_of", task_id)
    if row is None:
        return Came(0, None)
    left = Left(task_id, Kind(row["kind"]), row["actor"], Place(row["after_id"], row["after_n"]))
    came = Came(0, None)
    if not _overtaken(left.kind, record.status):
        came = await _WORK[left.kind](tx, Turned(record, left.actor), left.place, limit)
    if came.place is None:
        await tx.session.rows("finished", task_id, left.kind)
    else:
        await _leave(tx, [left._replace(place=came.place)])
    return came


def _overtaken(kind: Kind, status: TaskStatus) -> bool:
    """The task is no longer what it was when this was left: whatever has changed it since has left what it means."""
    match kind:
        case Kind.DEPENDENTS:
            return not status.terminal
        case Kind.FAIL_FAST:
            return status not in _NOT_WELL
        case Kind.REARM:
            return status in _NOT_WELL


# A task has ended: those that wait for it


async def _dependents(tx: Tx, one: Turned, place: Place, limit: int) -> Came:
    last = await _count_down(tx, [one], place, limit)
    return Came(last.done, last.place if last.done == limit else None)


async def _count_down(tx: Tx, ended: Sequence[Turned], place: Place, limit: int) -> Came:
    """The edges of these tasks after `place`; of each no more than `limit`."""
    completed = [one.record.status is TaskStatus.COMPLETED for one in ended]
    rows = await tx.session.rows("count_down", [one.record.id for one in ended], completed, *place, limit)
    # Without a number: buckets, whose last members are not told apart.
    rows.sort(key=lambda row: row["n"] or len(ended) + 1)
    await _tell(tx, ended, rows)
    edges = [row for row in rows if row["n"] is not None]
    return Came(len(edges), Place(edges[-1]["child"], edges[-1]["position"]) if edges else None)


async def _tell(tx: Tx, ended: Sequence[Turned], rows: Sequence[Any]) -> None:
    takes: Counter[str] = Counter()
    taker: dict[str, Turned] = {}
    canceler: dict[str, Turned] = {}
    for row in rows:
        one = ended[(row["n"] or len(ended)) - 1]
        if row["takes"]:
            takes[row["child"]] += row["takes"]
            taker[row["child"]] = one
        elif row["cancels"]:
            canceler.setdefault(row["child"], one)
    children = await records.load(tx, [*{**taker, **canceler}]) if taker or canceler else {}
    for child in children.values():
        child.pending -= takes[child.id]
        if child.id in canceler:
            _cancel_if_it_waits(tx, child, canceler[child.id])
        if child.pending == 0 and child.status is TaskStatus.WAITING:
            _make_ready(tx, child, taker[child.id].actor)
    await records.save(tx, children.values())


def _cancel_if_it_waits(tx: Tx, child: Record, ended: Turned) -> None:
    parent = ended.record
    if workflow.effect(parent.status, child.status, child.on_parent_failure, counted=False) is Effect.CANCEL:
        _cancel(tx, child, workflow.cause(parent.id, parent.canceled_because), ended.actor)


def _make_ready(tx: Tx, child: Record, actor: str) -> None:
    """Its delay counts from now. Never before now: a front may have passed by there (fronts.py)."""
    child.run_at = max(child.run_at, tx.now + timedelta(microseconds=child.delay_micros))
    records.write(tx, child, workflow.ready(), actor)


def _cancel(tx: Tx, member: Record, because: str, actor: str) -> None:
    member.canceled_because = because
    records.write(tx, member, workflow.canceled(member.attempt, member.failures, because), actor)


# A task has ended: the members of its name


async def _fail_fast(tx: Tx, one: Turned, place: Place, limit: int) -> Came:
    """Nobody is waited for: a handler may be about to complete a member in a transaction of its own. What is passed by
    is looked at again: by then it has ended, or runs, or waits as before."""
    root = one.record
    found = await tx.session.rows("fast_members", root.run_id, root.fail_fast, place.id, limit)
    task_ids = [row["id"] for row in found]
    free = {row["id"] for row in await tx.session.rows("free", task_ids)} if task_ids else set()
    members = await records.load(tx, list(free)) if free else {}
    changed = [member for member in members.values() if _end_with(tx, member, root.id, one.actor)]
    await records.save(tx, changed)
    if len(free) < len(task_ids):
        return Came(len(changed), place, stuck=True)
    return Came(len(task_ids), Place(task_ids[-1]) if len(task_ids) == limit else None)


def _end_with(tx: Tx, member: Record, because: str, actor: str) -> bool:
    """Has that changed anything? It may have ended, or have been asked, before."""
    if member.status.terminal or member.cancel_requested_at is not None:
        return False
    if member.status is TaskStatus.RUNNING:
        member.canceled_because = because
        records.write(tx, member, workflow.asked(member.attempt, member.failures, because), actor)
    else:
        _cancel(tx, member, because, actor)
    return True


# A task was requeued


async def _rearm(tx: Tx, one: Turned, place: Place, limit: int) -> Came:
    """Until a look finds nothing: while members are waited for, whoever holds them may put others to this account."""
    done, came = 0, Came(0, place)
    while came.place is not None and not came.stuck and done < limit:
        came = await _rearm_some(tx, one, came.place, limit - done)
        done += came.done
    return came._replace(done=done)


async def _rearm_some(tx: Tx, one: Turned, place: Place, limit: int) -> Came:
    """Parents first, so that each member finds its parents as they will stay."""
    found = await tx.session.rows("because", one.record.id, place.n, limit)
    done = 0
    for part in _parts(found):
        members = await records.load(tx, [row["id"] for row in part])
        blockers = await _blockers(tx, members)
        steady = await _steady(tx, blockers, members)
        for row in part:
            member = members.get(row["id"])
            if member is None or member.canceled_because != one.record.id:
                continue
            if not _rearm_one(tx, member, blockers.get(member.id, ()), steady, members, one.actor):
                await records.save(tx, members.values())
                return Came(done, Place(n=row["seq"] - 1), stuck=True)
        await records.save(tx, members.values())
        done += len(part)
    return Came(done, Place(n=found[-1]["seq"]) if found else None)


def _parts(found: Sequence[Any]) -> Iterator[list[Any]]:
    """One that has very many parents stands alone: whoever comes before it is saved by then."""
    part: list[Any] = []
    for row in found:
        if row["parents"] >= BUCKETS_FROM:
            if part:
                yield part
            yield [row]
            part = []
        else:
            part.append(row)
    if part:
        yield part


class Blocker(NamedTuple):
    """A parent whose end keeps a task from running."""

    parent: str
    canceled_because: str | None
    gone: bool = False


def _rearm_one(
    tx: Tx,
    member: Record,
    blockers: Sequence[Blocker],
    steady: dict[str, Blocker],
    beside: dict[str, Record],
    actor: str,
) -> bool:
    """False: whether it can run is in somebody else's hands."""
    if member.status is TaskStatus.RUNNING:
        member.canceled_because = member.id  # it may have been told to stop: see policy/workflow.py, cause()
        return True
    standing = [blocker for blocker in blockers if _stands(blocker, beside)]
    if not standing:
        records.write(tx, member, workflow.rearmed(member.attempt, member.max_attempts, pending=member.pending), actor)
        return True
    other = next((found for blocker in standing if (found := _certain(blocker, steady, beside))), None)
    if other is not None:
        member.canceled_because = workflow.cause(other.parent, other.canceled_because)
    return other is not None


def _stands(blocker: Blocker, beside: dict[str, Record]) -> bool:
    """With what this transaction has changed and not yet saved."""
    parent = beside.get(blocker.parent)
    return parent is None or parent.status in _NOT_WELL


def _certain(blocker: Blocker, steady: dict[str, Blocker], beside: dict[str, Record]) -> Blocker | None:
    """As it will be once this transaction is over, if that is known."""
    parent = beside.get(blocker.parent)
    if parent is not None:
        return Blocker(parent.id, parent.canceled_because)
    return blocker if blocker.gone else steady.get(blocker.parent)


async def _steady(tx: Tx, blockers: dict[str, list[Blocker]], beside: dict[str, Record]) -> dict[str, Blocker]:
    """Of these parents, by id, those that stay as they are. Without that:
    1. P and Q have failed; C is canceled because of P. 2. Q is requeued; nothing is canceled because of it. 3. P is
    requeued, reads Q as failed, and puts C to Q's account. 4. Both commit, and nobody looks at C again.
    """
    asked = {one.parent for found in blockers.values() for one in found if not one.gone and one.parent not in beside}
    rows = await tx.session.rows("steady", list(asked)) if asked else ()
    return {row["id"]: Blocker(*row) for row in rows}


async def blocked_by(tx: Tx, record: Record) -> str | None:
    """The first parent whose end keeps this locked task from running."""
    found = (await _blockers(tx, {record.id: record})).get(record.id)
    return found[0].parent if found else None


async def _blockers(tx: Tx, members: dict[str, Record]) -> dict[str, list[Blocker]]:
    """Of these locked tasks; of one that has very many parents, one."""
    waiting = [member for member in members.values() if member.pending]
    few = [member.id for member in waiting if member.parents < BUCKETS_FROM]
    blockers: dict[str, list[Blocker]] = {}
    for row in await tx.session.rows("blockers", few) if few else ():
        blockers.setdefault(row["child"], []).append(Blocker(row["parent"], row["canceled_because"], row["gone"]))
    for member in waiting:
        if member.parents >= BUCKETS_FROM:
            row = await tx.session.row("blocker", member.run_id, member.id)
            if row is not None:
                blockers[member.id] = [Blocker(*row)]
    return blockers


_WORK: dict[Kind, Callable[[Tx, Turned, Place, int], Awaitable[Came]]] = {
    Kind.DEPENDENTS: _dependents,
    Kind.FAIL_FAST: _fail_fast,
    Kind.REARM: _rearm,
}
