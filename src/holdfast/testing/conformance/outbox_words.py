"""Sinks and relays in few words: declared, taken, told. For the cases about the outbox."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from holdfast.model.outbox import Delivery, Effect, NewSink, OutboxRow, OutboxState, Sink
from holdfast.testing.conformance.checks import equal, present
from holdfast.testing.conformance.registry import Proof
from holdfast.testing.conformance.registry import case as plain_case
from holdfast.testing.conformance.subject import EVERYTHING, Subject

HOOK = "hook"
RELAY = "relay-1"
HOLD_SECONDS = 30.0


def case(*clauses: str, needs: tuple[str, ...] = ()) -> Callable[[Proof], Proof]:
    return plain_case(*clauses, needs=("outbox", *needs))


def hook(name: str = HOOK, **fields: Any) -> NewSink:
    return NewSink(**({"name": name, "url": "https://example.org/told", "effect": Effect.ROUTE} | fields))


async def rows(subject: Subject, sink: str | None = None, state: OutboxState | None = None) -> list[OutboxRow]:
    return await subject.store.outbox(sink=sink, state=state, limit=EVERYTHING, after=0)


async def take(subject: Subject, *sinks: str, limit: int = EVERYTHING, hold: str = RELAY) -> list[OutboxRow]:
    return await subject.store.take_outbox(sinks or (HOOK,), limit=limit, hold=hold, hold_seconds=HOLD_SECONDS)


def delivered(row: OutboxRow, hold: str = RELAY) -> Delivery:
    return Delivery(row_id=row.id, hold=hold)


def refused_by_sink(row: OutboxRow, **fields: Any) -> Delivery:
    given: dict[str, Any] = {"row_id": row.id, "hold": RELAY, "error": "answered 500"}
    return Delivery(**(given | fields))


async def record(subject: Subject, *deliveries: Delivery) -> None:
    await subject.store.record_deliveries(deliveries)


async def deliver_all(subject: Subject, *sinks: str) -> list[OutboxRow]:
    """What is told to these sinks until nothing is due, in the order in which they hear it."""
    told: list[OutboxRow] = []
    while taken := await take(subject, *sinks):
        told += taken
        await record(subject, *map(delivered, taken))
    return told


async def dead_row(subject: Subject, sink: str = HOOK) -> OutboxRow:
    """The first row that is due, given up."""
    row = (await take(subject, sink, limit=1))[0]
    await record(subject, refused_by_sink(row, final=True))
    return row


def kinds(told: Sequence[OutboxRow]) -> list[str]:
    return [present(row.event, "the event that is told").kind for row in told]


@asynccontextmanager
async def same_rows(subject: Subject) -> AsyncIterator[None]:
    """What is done inside writes no row and takes none away."""
    before = await rows(subject)
    yield
    equal(await rows(subject), before, "the outbox is as it was")


async def only_sink(subject: Subject) -> Sink:
    found = await subject.store.sinks()
    equal(len(found), 1, "there is one sink")
    return found[0]
