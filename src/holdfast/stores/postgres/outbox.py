"""Sinks, and what they are yet to be told (contract section 12). Rows are written by the database itself, at the event
(migrations/0006_outbox.sql); when they are tried again is decided in policy/relaying.py.

The events of one task for one sink are a line. Only its first pending row is free to be taken; the others come to light
when that has gone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from holdfast.clock import span_micros
from holdfast.model.outbox import Delivery, Effect, NewSink, OutboxRow, OutboxState, Sink
from holdfast.policy.relaying import COUNTED, next_try, next_wake
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.rows import event_of
from holdfast.stores.postgres.statements import is_text

ROUNDS = 30
"""How often one take looks on because rows that it found stand behind others, or have become needless."""
LOOKED = 4000
"""So many rows of each sink are looked at in one round at most."""
EMPTIED = 10_000
_MOST = 2**63 - 1


# Sinks


async def declare(session: Session, new: NewSink) -> None:
    await session.rows(
        "declare_sink",
        session.given,
        new.name,
        new.url,
        new.effect,
        _listed(new.kinds),
        _listed(new.queues),
        new.secret,
        new.private,
    )


async def delete(session: Session, name: str) -> bool:
    """The sink first: from then on nothing is added, but by transactions that are open (strays.sql)."""
    if not is_text(name):
        return False
    known = await session.value("delete_sink", name)
    while await session.value("empty_sink", name, EMPTIED):
        pass
    return known is not None


async def sinks(session: Session) -> list[Sink]:
    return [Sink(**_fields(row)) for row in await session.rows("sinks", session.given, COUNTED)]


async def targets(session: Session) -> list[NewSink]:
    return [NewSink(**_fields(row)) for row in await session.rows("targets")]


def _listed(texts: tuple[str, ...] | None) -> list[str] | None:
    return None if texts is None else list(texts)


def _fields(row: Any) -> dict[str, Any]:
    fields = dict(row)
    fields["effect"] = Effect(fields["effect"])
    for name in ("kinds", "queues"):
        fields[name] = None if fields[name] is None else tuple(fields[name])
    return fields


# Relays


async def take(session: Session, names: Sequence[str], limit: int, hold: str, hold_seconds: float) -> list[OutboxRow]:
    taken: list[OutboxRow] = []
    known = [name for name in names if is_text(name)]
    look = limit
    for _ in range(ROUNDS):
        room = limit - len(taken)
        rows = await session.rows(
            "take_outbox", session.given, known, room, hold, span_micros(hold_seconds), max(look, room)
        )
        found = [_shown(row) for row in rows if row["row_id"] is not None]
        taken += found
        if len(taken) >= limit or rows[0]["looked"] == len(found):
            break
        look = min(4 * look, LOOKED)
    return sorted(taken, key=lambda row: (row.due_at, row.id))


class Again(NamedTuple):
    """How a row is told again; without `due_at` it is given up."""

    id: int
    due_at: datetime | None
    tries: int
    told: int
    last_error: str | None


async def record(session: Session, deliveries: Sequence[Delivery]) -> None:
    """In a transaction. Rows that are gone, or held by others by now, are left alone."""
    said = {(delivery.row_id, delivery.hold): delivery for delivery in reversed(deliveries)}
    rows = await session.rows("held_outbox", session.given, _ids({delivery.row_id for delivery in deliveries}))
    held = [(row, said[row["id"], row["hold"]]) for row in rows if (row["id"], row["hold"]) in said]
    told = {row["id"] for row, delivery in held if delivery.error is None and row["effect"] == Effect.ROUTE}
    again = [_again(row, delivery) for row, delivery in held if row["id"] not in told]
    if told:
        await session.rows("outbox_told", list(told))
    if again:
        await session.rows("outbox_again", *map(list, zip(*again, strict=True)))
    out = told | {one.id for one in again if one.due_at is None}
    lines = {(row["sink"], row["task_id"]) for row, _ in held if row["id"] in out}
    if lines:
        await session.rows("promote_outbox", *map(list, zip(*sorted(lines), strict=True)))


def _again(row: Any, delivery: Delivery) -> Again:
    now: datetime = row["now"]
    if delivery.error is None:
        return Again(row["id"], now + timedelta(seconds=next_wake(row["told"])), 0, row["told"] + 1, None)
    delay = next_try(row["tries"], delivery)
    due_at = None if delay is None else now + timedelta(seconds=delay)
    return Again(row["id"], due_at, row["tries"] + delivery.blame, row["told"], _kept(delivery.error))


def _kept(error: str) -> str:
    """As PostgreSQL keeps texts: what a sink answers may be anything."""
    return error.encode("utf-8", "replace").decode().replace("\x00", "\ufffd")


# People


async def listed(
    session: Session, sink: str | None, state: OutboxState | None, limit: int, after: int
) -> list[OutboxRow]:
    if not is_text(sink):
        return []
    pending = None if state is None else state is OutboxState.PENDING
    rows = await session.rows("outbox", min(after, _MOST), min(limit, _MOST), sink, pending)
    return [_shown(row) for row in rows]


async def requeue(session: Session, row_ids: Sequence[int]) -> int:
    return int(await session.value("requeue_outbox", session.given, _ids(row_ids)))


async def purge(session: Session, row_ids: Sequence[int]) -> int:
    return int(await session.value("purge_outbox", _ids(row_ids)))


def _ids(row_ids: Iterable[int]) -> list[int]:
    """Those that can be a row's id at all."""
    return [row_id for row_id in row_ids if 0 < row_id <= _MOST]


def _shown(row: Any) -> OutboxRow:
    return OutboxRow(
        id=row["row_id"],
        sink=row["sink"],
        effect=Effect(row["effect"]),
        task_id=row["task_id"],
        queue=row["queue"],
        state=OutboxState(row["state"]),
        event=None if row["id"] is None else event_of(row),
        created_at=row["at"],
        due_at=row["due_at"],
        tries=row["tries"],
        last_error=row["last_error"],
        told=row["told"],
    )
