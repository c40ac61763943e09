"""Schedules: what is stored of them, and the one step that fires (contract C10.8). When is policy/firing.py's."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.model.schedule import NewSchedule, Schedule, Timing
from holdfast.model.task import NewTask
from holdfast.policy import refusals
from holdfast.stores.postgres import submit
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.statements import is_text, json_text
from holdfast.stores.postgres.tx import Tx

_task_decoder = msgspec.json.Decoder(NewTask)


async def declare(session: Session, new: NewSchedule) -> Schedule:
    timing = new.timing
    row = await session.row(
        "declare_schedule",
        session.given,
        new.name,
        timing.cron,
        timing.timezone,
        timing.every,
        timing.jitter,
        timing.missed,
        timing.missed_most,
        json_text(new.task),
        new.declared,
    )
    return _shown(row)


async def listed(session: Session) -> list[Schedule]:
    return [_shown(row) for row in await session.rows("schedules")]


async def fire(tx: Tx, name: str, last_fired_at: datetime, upto: datetime, tasks: Sequence[NewTask]) -> bool:
    """A refused task is raised, and undoes the rest."""
    if not is_text(name) or await tx.session.value("fire", name, last_fired_at, upto) is None:
        return False
    if tasks:
        await submit.add(tx.session, tasks, tx.session.given)
    return True


async def pause(session: Session, name: str, *, paused: bool) -> None:
    if not is_text(name) or await session.value("pause_schedule", session.given, name, paused) is None:
        raise refusals.schedule_not_found(name)


async def delete(session: Session, name: str) -> None:
    if not is_text(name) or await session.value("delete_schedule", name) is None:
        raise refusals.schedule_not_found(name)


def _shown(row: Any) -> Schedule:
    fields = dict(row)
    timing = Timing(**{name: fields.pop(name) for name in Timing.__struct_fields__})
    return Schedule(timing=timing, task=_task_decoder.decode(fields.pop("task")), **fields)
