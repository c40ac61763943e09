"""The small tables of a store, one row per message: workers, schedules, tokens."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.query import WorkerInfo
from holdfast.model.schedule import Schedule
from holdfast.model.token import Token


class WorkerRow(msgspec.Struct, array_like=True, frozen=True):
    info: WorkerInfo
    started_at: int
    seen_at: int


WORKER, SCHEDULE, TOKEN = "worker", "schedule", "token"

TABLES: dict[str, msgspec.msgpack.Decoder[Any]] = {
    WORKER: msgspec.msgpack.Decoder(WorkerRow),
    SCHEDULE: msgspec.msgpack.Decoder(Schedule),
    TOKEN: msgspec.msgpack.Decoder(Token),
}
