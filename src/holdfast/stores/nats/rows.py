"""The small tables of a store, one row per message: workers, schedules, tokens, submits to be unpacked, and what ends
still mean for others (memory/advancing.py).
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.model.query import WorkerInfo
from holdfast.model.schedule import Schedule
from holdfast.model.token import Token
from holdfast.stores.memory.state import Work


class WorkerRow(msgspec.Struct, array_like=True, frozen=True):
    info: WorkerInfo
    started_at: int
    seen_at: int


class PackRow(msgspec.Struct, array_like=True, frozen=True):
    """A large submit that is not unpacked yet (packs.py)."""

    created_at: int
    tasks: int


WORKER, SCHEDULE, TOKEN, PACK, LEFT = "worker", "schedule", "token", "pack", "left"

TABLES: dict[str, msgspec.msgpack.Decoder[Any]] = {
    WORKER: msgspec.msgpack.Decoder(WorkerRow),
    SCHEDULE: msgspec.msgpack.Decoder(Schedule),
    TOKEN: msgspec.msgpack.Decoder(Token),
    PACK: msgspec.msgpack.Decoder(PackRow),
    LEFT: msgspec.msgpack.Decoder(Work),
}
