"""What sinks are yet to be told (contract section 12): taken by relays, held while they tell it, kept until it is told.

Of the events of one task for one sink only the first pending one is a `head`, and only heads are looked at: whoever
removes a head makes the next row one, in the same transaction. So a line that does not get on costs a relay nothing,
however long it is. When a row is tried again: policy/relaying.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.clock import from_micros, span_micros
from holdfast.model.event import Event
from holdfast.model.outbox import Delivery, Effect, OutboxRow, OutboxState
from holdfast.policy.relaying import next_try, next_wake
from holdfast.stores.sqlite.rows import EventRow, event_of
from holdfast.stores.sqlite.statements import json_param, number_param, statement, text_param
from holdfast.stores.sqlite.tx import Tx

LOOKED_AT = 500
"""So many more rows are looked at per round than are wanted: wake-ups that would wake nobody go on the way."""
ROUNDS = 20

Line = tuple[str, str]
"""Sink and task: what is told in order."""


class OutboxColumns(msgspec.Struct, array_like=True, gc=False):
    """The columns of outbox_rows.sql."""

    id: int
    sink: str
    effect: Effect
    task_id: str
    queue: str
    state: OutboxState
    created_at: int
    due_at: int
    tries: int
    last_error: str | None
    event: int | None
    at: int | None
    run_id: str | None
    kind: str | None
    actor: str | None
    attempt: int | None
    data: str | None
    name: str | None
    parents: str | None
    max_attempts: int | None
    told: int


class Held(msgspec.Struct, array_like=True, gc=False):
    """The columns of outbox_held.sql."""

    id: int
    sink: str
    task_id: str
    effect: Effect
    hold: str | None
    due_at: int
    tries: int
    told: int
    last_error: str | None


class Stays(NamedTuple):
    """The columns of outbox_changed.sql."""

    id: int
    state: OutboxState
    due_at: int
    tries: int
    told: int
    last_error: str | None


_free_decoder = msgspec.json.Decoder(list[tuple[int, int, bool | int]])
_held_decoder = msgspec.json.Decoder(list[Held])
_dead_decoder = msgspec.json.Decoder(list[tuple[int, str, str, Effect]])
_ids_decoder = msgspec.json.Decoder(list[int])
_rows_decoder = msgspec.json.Decoder(list[OutboxColumns])


# Taking


def nothing_free(conn: sqlite3.Connection, sinks: Sequence[str], now: int) -> list[OutboxRow] | None:
    """The answer of a take that finds nothing; None where there is something to write."""
    found = conn.execute(statement("outbox_any"), {"sinks": _names(sinks), "now": now}).fetchone()[0]
    return None if found else []


def take(tx: Tx, sinks: Sequence[str], limit: int, hold: str, hold_seconds: float) -> list[OutboxRow]:
    free = sorted(place for sink in dict.fromkeys(sinks) for place in _free(tx, sink, limit))
    ids = [row_id for _, row_id in free[:limit]]
    if not ids:
        return []
    rows = json_param(ids)
    tx.run("outbox_taken", rows=rows, hold=hold, until=tx.now + span_micros(hold_seconds))
    return sorted(_shown_all(tx.conn, rows), key=lambda row: (row.due_at, row.id))


def _free(tx: Tx, sink: str, limit: int) -> list[tuple[int, int]]:
    """Rows that may be taken: since when, and their ids. A wake-up for a task that is not queued any more is dropped:
    one that is queued again has a new one.
    """
    asked = limit + LOOKED_AT
    found: list[tuple[int, int]] = []
    for _ in range(ROUNDS):
        heads = _free_decoder.decode(tx.row("outbox_free", sink=text_param(sink), now=tx.now, limit=asked)[0])
        stale = [row_id for _, row_id, wakes_nobody in heads if wakes_nobody]
        found = [(free_at, row_id) for free_at, row_id, wakes_nobody in heads if not wakes_nobody]
        if stale:
            tx.run("outbox_gone", rows=json_param(stale))
        if len(found) >= limit or len(heads) < asked:
            break
    return found


# How it went


def record(tx: Tx, deliveries: Sequence[Delivery]) -> None:
    asked = json_param([delivery.row_id for delivery in deliveries])
    held = {row.id: row for row in _held_decoder.decode(tx.row("outbox_held", rows=asked)[0])}
    gone: list[int] = []
    stay: list[Stays] = []
    lines: set[Line] = set()
    for delivery in deliveries:
        row = held.get(delivery.row_id)
        if row is None or row.hold != delivery.hold:
            continue
        del held[row.id]
        stays = _after(row, delivery, tx.now)
        if stays is None:
            gone.append(row.id)
        else:
            stay.append(stays)
        if row.effect is Effect.ROUTE and (stays is None or stays.state is OutboxState.DEAD):
            lines.add((row.sink, row.task_id))
    if gone:
        tx.run("outbox_gone", rows=json_param(gone))
    if stay:
        tx.run("outbox_changed", rows=json_param(stay))
    _move_up(tx, lines)


def _after(row: Held, delivery: Delivery, now: int) -> Stays | None:
    """What stays of a row; None: nothing."""
    if delivery.error is None:
        if row.effect is Effect.ROUTE:
            return None
        due_at = now + span_micros(next_wake(row.told))
        return Stays(row.id, OutboxState.PENDING, due_at, 0, row.told + 1, None)
    delay, tries = next_try(row.tries, delivery), row.tries + delivery.blame
    if delay is None:
        return Stays(row.id, OutboxState.DEAD, row.due_at, tries, row.told, delivery.error)
    return Stays(row.id, OutboxState.PENDING, now + span_micros(delay), tries, row.told, delivery.error)


def _move_up(tx: Tx, lines: Iterable[Line]) -> None:
    """The first of each of these lines becomes its head."""
    if lines:
        tx.run("outbox_heads", lines=json_param(list(lines)))


# For people


def listed(
    conn: sqlite3.Connection, sink: str | None, state: OutboxState | None, limit: int, after: int
) -> list[OutboxRow]:
    asked = {"sink": None if sink is None else text_param(sink), "after": number_param(after), "limit": limit}
    if state is OutboxState.DEAD:
        found = conn.execute(statement("outbox_listed_dead"), asked)
    else:
        found = conn.execute(statement("outbox_listed"), asked | {"state": state})
    return _shown_all(conn, found.fetchone()[0])


def requeue(tx: Tx, row_ids: Sequence[int]) -> int:
    """A row that is older than the head of its line stands before it again."""
    dead = _dead(tx, row_ids)
    lines = {(sink, task_id) for _, sink, task_id, effect in dead if effect is Effect.ROUTE}
    if lines:
        tx.run("outbox_unhead", lines=json_param(list(lines)))
    tx.run("outbox_requeued", rows=json_param([row_id for row_id, *_ in dead]), now=tx.now)
    _move_up(tx, lines)
    return len(dead)


def of_sink(conn: sqlite3.Connection, sink: str) -> list[int]:
    """The ids of all that waits for it, or was given up, the dead first: while any is left, some are pending."""
    return _ids_decoder.decode(conn.execute(statement("outbox_of_sink"), {"sink": text_param(sink)}).fetchone()[0])


def forget(tx: Tx, row_ids: Sequence[int]) -> None:
    tx.run("outbox_gone", rows=json_param(row_ids))


def purge(tx: Tx, row_ids: Sequence[int]) -> int:
    dead = _dead(tx, row_ids)
    tx.run("outbox_gone", rows=json_param([row_id for row_id, *_ in dead]))
    return len(dead)


def _dead(tx: Tx, row_ids: Sequence[int]) -> list[tuple[int, str, str, Effect]]:
    return _dead_decoder.decode(tx.row("outbox_dead", rows=json_param(list(dict.fromkeys(row_ids))))[0])


def _names(sinks: Sequence[str]) -> str:
    return json_param([sink for sink in sinks if isinstance(text_param(sink), str)])


def _shown_all(conn: sqlite3.Connection, ids: str) -> list[OutboxRow]:
    found = conn.execute(statement("outbox_rows"), {"rows": ids}).fetchone()[0]
    return [_shown(row) for row in _rows_decoder.decode(found)]


def _shown(row: OutboxColumns) -> OutboxRow:
    return OutboxRow(
        id=row.id,
        sink=row.sink,
        effect=row.effect,
        task_id=row.task_id,
        queue=row.queue,
        state=row.state,
        event=_event(row),
        created_at=from_micros(row.created_at),
        due_at=from_micros(row.due_at),
        tries=row.tries,
        last_error=row.last_error,
        told=row.told,
    )


def _event(row: OutboxColumns) -> Event | None:
    if row.event is None or row.at is None or row.kind is None or row.actor is None:
        return None
    return event_of(
        EventRow(
            row.event,
            row.at,
            row.task_id,
            row.run_id,
            row.kind,
            row.actor,
            row.attempt,
            row.data,
            row.name,
            row.queue,
            row.parents,
            row.max_attempts,
        )
    )
