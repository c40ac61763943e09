"""Schedules: what is stored of them, and the one step that fires (contract C10.8). When is policy/firing.py's."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from holdfast.clock import from_micros, maybe_from_micros, to_micros
from holdfast.model.schedule import NewSchedule, Schedule, Timing
from holdfast.model.task import NewTask
from holdfast.policy import refusals
from holdfast.stores.sqlite.statements import json_param, statement, text_param
from holdfast.stores.sqlite.submit import submit
from holdfast.stores.sqlite.tx import Tx

_task_decoder = msgspec.json.Decoder(NewTask)


def declare(tx: Tx, new: NewSchedule) -> Schedule:
    declared_at = tx.now if new.declared else None
    row = tx.row(
        "declare_schedule",
        schedule=new.name,
        task=json_param(new.task),
        now=tx.now,
        declared_at=declared_at,
        **msgspec.structs.asdict(new.timing),
    )
    return _shown(row)


def listed(conn: sqlite3.Connection) -> list[Schedule]:
    return [_shown(row) for row in conn.execute(statement("schedules"))]


def fire(tx: Tx, name: str, last_fired_at: datetime, upto: datetime, tasks: Sequence[NewTask]) -> bool:
    """A refused task is raised, and undoes the rest."""
    stands_at, moves_to = to_micros(last_fired_at), to_micros(upto)
    moved = tx.run("fire", schedule=text_param(name), last_fired_at=stands_at, upto=moves_to).rowcount == 1
    if moved and tasks:
        submit(tx, tasks)
    return moved


def pause(tx: Tx, name: str, *, paused: bool) -> None:
    _found(name, tx.run("pause_schedule", schedule=text_param(name), paused=int(paused), now=tx.now))


def delete(tx: Tx, name: str) -> None:
    _found(name, tx.run("delete_schedule", schedule=text_param(name)))


def _found(name: str, done: sqlite3.Cursor) -> None:
    if done.rowcount != 1:
        raise refusals.schedule_not_found(name)


def _shown(row: Any) -> Schedule:
    name, cron, timezone, every, jitter, missed, missed_most, task, paused, created, last_fired, declared = row
    return Schedule(
        name=name,
        timing=Timing(cron=cron, timezone=timezone, every=every, jitter=jitter, missed=missed, missed_most=missed_most),
        task=_task_decoder.decode(task),
        paused=bool(paused),
        created_at=from_micros(created),
        last_fired_at=from_micros(last_fired),
        declared_at=maybe_from_micros(declared),
    )
