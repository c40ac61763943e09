"""One recorded fact of a task's life (contract section 11), and how its payload is completed from its stored row."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from holdfast.clock import from_micros, iso


class Event(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    ts: datetime
    task_id: str
    run_id: str | None
    kind: str
    actor: str
    payload: dict[str, Any]


def recorded_event(
    *, seq: int, at: int, task_id: str, run_id: str | None, kind: str, actor: str, data: dict[str, Any]
) -> Event:
    """The event as read: instants are derived from the store's own, so that no row has to repeat them."""
    payload: dict[str, Any] = data | {"ts": iso(at), "task_id": task_id, "run_id": run_id, "actor": actor}
    if kind.startswith("task.") and "delay_ms" in payload:
        payload["available_at"] = iso(at + 1000 * payload.pop("delay_ms"))
    return Event(id=seq, ts=from_micros(at), task_id=task_id, run_id=run_id, kind=kind, actor=actor, payload=payload)


def recorded_error(error: dict[str, Any], at: int) -> dict[str, Any]:
    """A record's last_error as read."""
    shown = {"ts": iso(at)} | error
    if "backoff_ms" in shown:
        shown["next_available_at"] = iso(at + 1000 * shown["backoff_ms"])
    return shown
