"""Limits as they are stored, and what of them is in use (contract section 9). The arithmetic: policy/limits.py."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.clock import span_micros, to_micros
from holdfast.model.limits import WHOLE_STORE, Limits, Rate
from holdfast.policy.limits import MARKING_SECONDS, MOST, Usage, carried_over, changed, spent
from holdfast.stores.postgres.pool import Session


class Limited(msgspec.Struct, frozen=True):
    """A queue, or the whole store, whose row this transaction has locked."""

    name: str
    limits: Limits
    tat: int
    changed_at: datetime | None


class InUse(msgspec.Struct, frozen=True):
    """What was found with the turn taken, and when."""

    now: datetime
    usages: dict[str, Usage]
    expired: dict[str, list[str]]
    """By queue, tasks that still look as if they ran."""


def limits_of(row: Any) -> Limits:
    rate = None if row["rate_count"] is None else Rate(row["rate_count"], row["rate_micros"] / 1_000_000)
    return Limits(
        max_running=row["max_running"], rate=rate, burst=row["burst"], max_running_per_key=row["max_running_per_key"]
    )


def limited(rows: Iterable[Any]) -> dict[str, Limited]:
    """Of turn.sql and turn_of_one.sql."""
    return {row["name"]: Limited(row["name"], limits_of(row), row["rate_tat"], row["changed_at"]) for row in rows}


async def in_use(session: Session, turn: Mapping[str, Limited], now: datetime | None) -> InUse:
    """Counted in later statements than the one that took the turn: they see what everyone before has committed."""
    names = list(turn)
    young = [one for one in turn.values() if one.changed_at is not None]
    if young:
        await session.rows("mark", [one.name for one in young])
    rows = await session.rows("usage", now, names, [_most(turn[name].limits) for name in names])
    now = rows[0]["now"]
    await _grow_up(session, young, now)
    usages = {row["name"]: Usage(turn[row["name"]].limits, row["running"], turn[row["name"]].tat) for row in rows}
    return InUse(now, usages, {row["name"]: row["expired"] for row in rows})


def _most(limits: Limits) -> int:
    """How many of what runs have to be counted."""
    return 0 if limits.max_running is None else min(limits.max_running, MOST)


async def _grow_up(session: Session, young: Sequence[Limited], now: datetime) -> None:
    """The mark that comes after the time in which somebody may not know of the change is the last one."""
    marking = timedelta(seconds=MARKING_SECONDS)
    done = [one.name for one in young if one.changed_at is not None and now >= one.changed_at + marking]
    if done:
        await session.rows("marked", done)


async def spend(session: Session, usages: Mapping[str, Usage], taken: Mapping[str, int], now: int) -> dict[str, Usage]:
    """These many tasks of each queue have been started: the rates follow; the usages as they are then."""
    after = dict(usages)
    for name, usage in usages.items():
        started = sum(taken.values()) if name == WHOLE_STORE else taken.get(name, 0)
        if started and usage.limits.rate is not None:
            tat = spent(usage.limits, usage.tat, now, started)
            after[name] = Usage(usage.limits, usage.running, tat)
    moved = [name for name in usages if after[name].tat != usages[name].tat]
    if moved:
        await session.rows("spend", moved, [after[name].tat for name in moved])
    return after


async def limit(session: Session, queue: str, changes: Mapping[str, Any]) -> Limits:
    """In a transaction of its own."""
    await session.rows("know_queue", queue)
    found = await session.row("limits_of", queue)
    now: datetime = await session.value("clock", session.given)  # with the row held: no claim of it is under way
    before = limits_of(found)
    made = changed(queue, before, changes)
    rate = (None, None) if made.rate is None else (made.rate.count, span_micros(made.rate.period))
    await session.rows(
        "limit",
        session.given,
        queue,
        made.some,
        made.max_running,
        *rate,
        made.burst,
        made.max_running_per_key,
        carried_over(made, found["rate_tat"], to_micros(now)),
    )
    if made.some:
        await session.rows("mark", [queue])
    if made.max_running_per_key == 1 and before.max_running_per_key != 1:
        await session.rows("mark_waiting", queue)
    return made
