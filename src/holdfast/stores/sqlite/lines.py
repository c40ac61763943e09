"""Due tasks in the order of claims: priority, run_at, submission (contract C5.2).

Every queue has two lines, one of tasks with a key and one of the others, so that however many of the first a limit
holds, they do not stand before the others.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec

from holdfast.model.claim import ClaimRequest
from holdfast.stores.sqlite.statements import json_param, statement

ABOVE_ALL = 32768
"""Higher than any priority."""


class Level(NamedTuple):
    """A line and its best priority that has due tasks."""

    queue: str
    keyed: int
    priority: int


class Place(NamedTuple):
    """A due task. Places sort as they are claimed."""

    rank: int
    """The priority, the highest first."""
    run_at: int
    seq: int
    queue: str


class Limitation(NamedTuple):
    """The stored limits of a queue."""

    queue: str
    limits: str
    tat: int


class Look(NamedTuple):
    """What pick.sql found."""

    held: bool
    levels: list[Level]
    next_due: int | None
    first: str
    queues: str
    limits: list[Limitation]


_levels_decoder = msgspec.json.Decoder(list[Level])
_limits_decoder = msgspec.json.Decoder(list[Limitation])
_candidates_decoder = msgspec.json.Decoder(list[tuple[int, int, str]])


def look(conn: sqlite3.Connection, request: ClaimRequest, now: int) -> Look:
    parameters = {
        "queues": None if request.queues is None else json_param(request.queues),
        "claim_id": request.claim_id,
        "limit": request.limit,
        "now": now,
    }
    held, levels, next_due, first, queues, limits = conn.execute(statement("pick"), parameters).fetchone()
    return Look(held != "[]", _levels_decoder.decode(levels), next_due, first, queues, _limits_decoder.decode(limits))


def best(conn: sqlite3.Connection, now: int, levels: Iterable[Level], limit: int) -> list[Place]:
    """Up to `limit` due tasks of these lines. Priorities are walked downwards, each merged over the lines that have due
    tasks there.
    """
    lines = {(queue, keyed): priority for queue, keyed, priority in levels}
    taken: list[Place] = []
    while lines and len(taken) < limit:
        top = max(lines.values())
        room = limit - len(taken)
        tied = [line for line, priority in lines.items() if priority == top]
        merged = heapq.merge(*(_candidates(conn, now, Level(*line, top), room) for line in tied))
        taken += [Place(-top, *candidate) for candidate in islice(merged, room)]
        for line in tied:
            del lines[line]
        if len(taken) < limit:
            lines |= {(queue, keyed): priority for queue, keyed, priority in due(conn, now, tied, below=top)}
    return taken


def due(conn: sqlite3.Connection, now: int, lines: Sequence[tuple[str, int]], *, below: int = ABOVE_ALL) -> list[Level]:
    """Those of these lines that have due tasks of less than this priority."""
    asked = {"lines": json_param(lines), "below": below, "now": now}
    return _levels_decoder.decode(conn.execute(statement("deeper"), asked).fetchone()[0])


def next_due(conn: sqlite3.Connection, now: int, queues: str) -> int | None:
    """When the next task of these queues falls due."""
    at: int | None = conn.execute(statement("next_due"), {"queues": queues, "now": now}).fetchone()[0]
    return at


def _candidates(conn: sqlite3.Connection, now: int, level: Level, limit: int) -> list[tuple[int, int, str]]:
    asked = {"queue": level.queue, "keyed": level.keyed, "priority": level.priority, "now": now, "limit": limit}
    return _candidates_decoder.decode(conn.execute(statement("candidates"), asked).fetchone()[0])
