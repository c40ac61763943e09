"""What follows for others when a task has ended, or has come back from an end (contract section 10).

A verb saves its own changes and then calls follow(): what is little is done in the same transaction, the rest is left
in holdfast_advances, and advance() goes on with it. One writer at a time makes every step exact without any locks.

    ended ──► its dependents are counted down or canceled      fail_fast ──► the members of its name end with it
    requeued ──► what was canceled because of it is re-armed
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

import msgspec

from holdfast.model.task import TaskStatus
from holdfast.policy import workflow
from holdfast.policy.workflow import INLINE_ALL, INLINE_EACH, Effect
from holdfast.stores.sqlite import records
from holdfast.stores.sqlite.blockers import Blockers
from holdfast.stores.sqlite.rows import Record
from holdfast.stores.sqlite.statements import json_param
from holdfast.stores.sqlite.tx import Turn, Tx

UNDONE = (TaskStatus.FAILED, TaskStatus.CANCELED)
"""Ends from which a task can come back."""


class Kind(StrEnum):
    ENDED = "ended"
    FAIL_FAST = "fail_fast"
    REQUEUED = "requeued"


class Work(NamedTuple):
    kind: Kind
    turn: Turn


class Mark(NamedTuple):
    """How far a work has come: the last edge, or the last member by its seq."""

    child: int = 0
    position: int = 0


class Edge(msgspec.Struct, array_like=True, gc=False):
    parent: int
    child: int
    position: int
    counted: int
    child_id: str


_edges_decoder = msgspec.json.Decoder(list[Edge])
_members_decoder = msgspec.json.Decoder(list[tuple[int, str]])
_texts_decoder = msgspec.json.Decoder(list[str])


# Within a verb


def follow(tx: Tx) -> None:
    """The last act of a verb that ends tasks or brings them back; its own changes are saved."""
    room = INLINE_ALL
    while tx.turned:
        for kind, works in groupby(_works(tx), key=lambda work: work.kind):
            if kind is Kind.ENDED:
                room = _tell_all(tx, list(works), room)
            else:
                for work in works:
                    room = _begin(tx, work, room)


def _works(tx: Tx) -> list[Work]:
    """What the tasks that have turned since it was last asked mean: first for those that wait, then for others."""
    latest = {turn.seq: turn for turn in tx.turned}  # one that has ended and come back in one verb has only come back
    turns, tx.turned = list(latest.values()), []
    reasons = _reasons(tx, [turn.id for turn in turns if not turn.status.terminal])
    works = []
    for turn in turns:
        if not turn.status.terminal:
            if turn.id in reasons:
                works.append(Work(Kind.REQUEUED, turn))
            continue
        if turn.dependents:
            works.append(Work(Kind.ENDED, turn))
        if turn.fail_fast is not None and turn.status in UNDONE and turn.canceled_because is None:
            works.append(Work(Kind.FAIL_FAST, turn))
    return sorted(works, key=lambda work: work.kind is not Kind.ENDED)


def _reasons(tx: Tx, task_ids: Sequence[str]) -> set[str]:
    """Those of these tasks because of which something is canceled."""
    if not task_ids:
        return set()
    return set(_texts_decoder.decode(tx.row("blamed_any", ids=json_param(task_ids))[0]))


def _tell_all(tx: Tx, works: Sequence[Work], room: int) -> int:
    """Ends with few dependents together, so that the members of a chord that end at once write its finalizer once."""
    together: list[Turn] = []
    for work in works:
        if work.turn.dependents <= min(INLINE_EACH, room):
            room -= work.turn.dependents
            together.append(work.turn)
        else:
            _tell_together(tx, together)
            together = []
            room = _begin(tx, work, room)
    _tell_together(tx, together)
    return room


def _tell_together(tx: Tx, turns: Sequence[Turn]) -> None:
    if turns:
        _tell(tx, turns, Mark(), sum(turn.dependents for turn in turns))


def _begin(tx: Tx, work: Work, room: int) -> int:
    """Do some of it and leave the rest; how much room there still is."""
    most = min(INLINE_EACH, room)
    done, mark = _go_on(tx, work, Mark(), most) if most else (0, Mark())
    if mark is not None:
        _leave(tx, [(work, mark)])
    return room - done


def _leave(tx: Tx, works: Iterable[tuple[Work, Mark]]) -> None:
    rows = [(work.turn.seq, work.kind, work.turn.status, work.turn.actor, *mark) for work, mark in works]
    if rows:
        tx.run("leave", rows=json_param(rows))


# What verbs have left


class Left(NamedTuple):
    """The columns of left.sql."""

    id: int
    kind: str
    made_as: str
    actor: str
    child: int
    position: int
    seq: int
    task_id: str
    run_id: str | None
    status: str
    canceled_because: str | None
    dependents: int
    fail_fast: str | None

    @property
    def work(self) -> Work:
        status = TaskStatus(self.status)
        turn = Turn(
            self.seq,
            self.task_id,
            self.run_id,
            status,
            self.canceled_because,
            self.dependents,
            self.fail_fast,
            self.actor,
        )
        return Work(Kind(self.kind), turn)

    @property
    def void(self) -> bool:
        """A requeue has overtaken the end, or a new end the requeue. An end like the one before may find this half
        done: nothing of it is done twice.
        """
        return self.status in UNDONE if self.kind == Kind.REQUEUED else self.status != self.made_as


def nothing_left(conn: sqlite3.Connection, _: int) -> int | None:
    return 0 if conn.execute("SELECT 1 FROM holdfast_advances LIMIT 1").fetchone() is None else None


def advance(tx: Tx, limit: int) -> int:
    """Some `limit` dependents, oldest work first. What turns on the way is left for later."""
    done = 0
    while done < limit:
        row = tx.row("left")
        if row is None:
            break
        left = Left(*row)
        steps, mark = (0, None) if left.void else _go_on(tx, left.work, Mark(left.child, left.position), limit - done)
        _moved_on(tx, left.id, mark)
        _leave(tx, [(new, Mark()) for new in _works(tx)])
        done += steps
    return done


def _moved_on(tx: Tx, work_id: int, mark: Mark | None) -> None:
    if mark is None:
        tx.conn.execute("DELETE FROM holdfast_advances WHERE id = ?", (work_id,))
    else:
        tx.conn.execute("UPDATE holdfast_advances SET child = ?, position = ? WHERE id = ?", (*mark, work_id))


# One portion of a work: how many it was, and the new mark, or None at the end


def _go_on(tx: Tx, work: Work, mark: Mark, limit: int) -> tuple[int, Mark | None]:
    match work.kind:
        case Kind.ENDED:
            return _tell(tx, [work.turn], mark, limit)
        case Kind.FAIL_FAST:
            return _fail_fast(tx, work.turn, mark, limit)
        case Kind.REQUEUED:
            return _rearm(tx, work.turn, mark, limit)


def _tell(tx: Tx, turns: Sequence[Turn], mark: Mark, limit: int) -> tuple[int, Mark | None]:
    """Those that wait for these tasks learn how they ended."""
    parents = {turn.seq: turn for turn in turns}
    asked = json_param([(seq, *mark) for seq in parents])
    edges = _edges_decoder.decode(tx.row("edges", parents=asked, limit=limit)[0])
    children = records.load(tx.conn, list({edge.child_id: None for edge in edges}))
    changed: dict[int, Record] = {}
    counted = []
    for edge in edges:
        turn, child = parents[edge.parent], children[edge.child_id]
        match workflow.effect(turn.status, child.status, child.on_parent_failure, counted=bool(edge.counted)):
            case Effect.NOTHING:
                continue
            case Effect.COUNT:
                _count(tx, child, turn.actor)
                if turn.status in UNDONE:
                    counted.append((edge.parent, edge.child, edge.position))
            case Effect.CANCEL:
                _cancel(tx, child, workflow.cause(turn.id, turn.canceled_because), turn.actor)
        changed[child.seq] = child
    records.save(tx, changed.values())
    if counted:
        tx.run("counted", edges=json_param(counted))
    return len(edges), Mark(edges[-1].child, edges[-1].position) if len(edges) == limit else None


def _count(tx: Tx, child: Record, actor: str) -> None:
    child.pending -= 1
    if child.pending == 0 and child.status is TaskStatus.WAITING:
        child.run_at = workflow.due_at(tx.now, child.run_at, child.delay or 0, given=child.delay is None)
        records.write(tx, child, workflow.ready(), actor)


def _cancel(tx: Tx, member: Record, because: str, actor: str) -> None:
    member.canceled_because = because
    records.write(tx, member, workflow.canceled(member.attempt, member.failures, because), actor)


def _fail_fast(tx: Tx, turn: Turn, mark: Mark, limit: int) -> tuple[int, Mark | None]:
    """The members of a name end together; what runs is asked."""
    row = tx.row("members", run_id=turn.run_id, fail_fast=turn.fail_fast, after=mark.child, limit=limit)
    named, members = _loaded(tx, row[0])
    for member in members:
        if member.status is not TaskStatus.RUNNING:
            _cancel(tx, member, turn.id, turn.actor)
        elif member.cancel_requested_at is None:
            member.canceled_because = turn.id
            records.write(tx, member, workflow.asked(member.attempt, member.failures, turn.id), turn.actor)
    records.save(tx, members)
    return len(members), Mark(named[-1][0]) if len(named) == limit else None


def _rearm(tx: Tx, turn: Turn, mark: Mark, limit: int) -> tuple[int, Mark | None]:
    """Parents first, so that each member finds its parents as they will stay."""
    named, members = _loaded(tx, tx.row("blamed", task_id=turn.id, after=mark.child, limit=limit)[0])
    blockers = Blockers(tx, members)
    for member in members:
        if member.status is TaskStatus.RUNNING:
            member.canceled_because = member.id  # it may have been told to stop: see policy/workflow.py, cause()
            continue
        other = blockers.of(member)
        if other is not None:
            member.canceled_because = workflow.cause(*other)
        else:
            rearmed = workflow.rearmed(member.attempt, member.max_attempts, pending=member.pending)
            records.write(tx, member, rearmed, turn.actor)
    records.save(tx, members)
    return len(members), Mark(named[-1][0]) if len(named) == limit else None


def _loaded(tx: Tx, text: str) -> tuple[list[tuple[int, str]], list[Record]]:
    named = _members_decoder.decode(text)
    found = records.load(tx.conn, [task_id for _, task_id in named])
    return named, [found[task_id] for _, task_id in named]
