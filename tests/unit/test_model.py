"""The nouns' own invariants, and folding events."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from holdfast.clock import from_micros
from holdfast.model.backoff import Fixed
from holdfast.model.event import Event, recorded_error, recorded_event
from holdfast.model.query import Retention
from holdfast.model.task import TERMINAL, NewTask, TaskStatus
from holdfast.testing.fold import UNBORN, Folded, fold, stages


def new_task(**fields: Any) -> NewTask:
    return NewTask(**({"id": "an-id", "name": "probe", "payload": "null"} | fields))


def test_a_status_compares_equal_to_its_word() -> None:
    assert [status for status in TaskStatus if status.terminal] == ["completed", "failed", "canceled"]
    assert {"completed", "failed", "canceled"} == TERMINAL


OTHERS: dict[str, Any] = {
    "name": "other",
    "queue": "other",
    "payload": "1",
    "priority": 1,
    "max_attempts": 1,
    "backoff": Fixed(1.0),
    "timeout": 1.0,
    "lease": 1.0,
    "idempotency_key": "k",
    "concurrency_key": "k",
    "run_id": "r",
    "parents": ("p",),
    "meta": "{}",
}


@pytest.mark.parametrize("field", OTHERS)
def test_content_differs_with_every_field_that_makes_another_task(field: str) -> None:
    assert new_task(**{field: OTHERS[field]}).content != new_task().content


def test_content_is_the_same_for_another_id_or_instant() -> None:
    assert new_task(id="other", run_at=from_micros(1), delay_seconds=5.0).content == new_task().content


def test_the_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        new_task().name = "other"  # type: ignore[misc]


def test_retention_keeps_dead_letters_for_ever_by_default() -> None:
    assert Retention().age_of(TaskStatus.COMPLETED) == Retention().age_of(TaskStatus.CANCELED) == timedelta(days=7)
    assert Retention().age_of(TaskStatus.FAILED) is None


# Events


def event(kind: str, **data: Any) -> Event:
    return recorded_event(seq=1, at=0, task_id="t", run_id=None, kind=kind, actor="a", data=data)


def test_a_delay_is_shown_as_the_instant_it_leads_to() -> None:
    shown = recorded_event(
        seq=7, at=1_000_000, task_id="t", run_id="r", kind="task.requeued", actor="a", data={"delay_ms": 2500}
    )
    assert shown.payload == {
        "ts": "1970-01-01T00:00:01Z",
        "task_id": "t",
        "run_id": "r",
        "actor": "a",
        "available_at": "1970-01-01T00:00:03.500000Z",
    }
    assert (shown.id, shown.ts) == (7, from_micros(1_000_000))


def test_a_custom_event_keeps_its_own_delay() -> None:
    assert event("custom", delay_ms=5).payload["delay_ms"] == 5


def test_a_handler_cannot_speak_for_the_store() -> None:
    payload = event("custom", actor="somebody else", ts="never", task_id="another").payload
    assert (payload["actor"], payload["task_id"], payload["ts"]) == ("a", "t", "1970-01-01T00:00:00Z")


def test_a_recorded_error_shows_its_instants() -> None:
    assert recorded_error({"message": "m", "backoff_ms": 1500}, 0) == {
        "ts": "1970-01-01T00:00:00Z",
        "message": "m",
        "backoff_ms": 1500,
        "next_available_at": "1970-01-01T00:00:01.500000Z",
    }
    assert "next_available_at" not in recorded_error({"message": "m"}, 0)


def test_events_survive_json() -> None:
    shown = event("task.enqueued", status="queued")
    assert msgspec.json.decode(msgspec.json.encode(shown), type=Event) == shown


# Folding

LIFE: list[tuple[Event, Folded]] = [
    (event("task.enqueued", status="waiting"), Folded(TaskStatus.WAITING, 0, 0)),
    (event("task.ready"), Folded(TaskStatus.QUEUED, 0, 0)),
    (event("task.running", attempt=1), Folded(TaskStatus.RUNNING, 1, 0)),
    (event("task.progress", attempt=1), Folded(TaskStatus.RUNNING, 1, 0)),
    (event("task.snoozed", attempt=1), Folded(TaskStatus.QUEUED, 1, 0)),
    (event("task.running", attempt=2), Folded(TaskStatus.RUNNING, 2, 0)),
    (event("task.failed", attempt=2, failures=1, terminal=False), Folded(TaskStatus.RUNNING, 2, 1)),
    (event("task.requeued", attempt=2, failures=1), Folded(TaskStatus.QUEUED, 2, 1)),
    (event("task.running", attempt=3), Folded(TaskStatus.RUNNING, 3, 1)),
    (event("task.released", attempt=3), Folded(TaskStatus.QUEUED, 3, 1)),
    (event("task.running", attempt=4), Folded(TaskStatus.RUNNING, 4, 1)),
    (event("task.failed", attempt=4, failures=2, terminal=True), Folded(TaskStatus.FAILED, 4, 2)),
    (event("task.requeued", attempt=4, failures=0), Folded(TaskStatus.QUEUED, 4, 0)),
    (event("task.canceled", attempt=4), Folded(TaskStatus.CANCELED, 4, 0)),
    (event("task.rearmed", attempt=4), Folded(TaskStatus.WAITING, 4, 0)),
    (event("task.ready"), Folded(TaskStatus.QUEUED, 4, 0)),
    (event("task.running", attempt=5), Folded(TaskStatus.RUNNING, 5, 0)),
    (event("task.cancel_requested", attempt=5), Folded(TaskStatus.RUNNING, 5, 0)),
    (event("invoice.sent", attempt=5), Folded(TaskStatus.RUNNING, 5, 0)),
    (event("task.completed", attempt=5), Folded(TaskStatus.COMPLETED, 5, 0)),
    (event("task.deleted", attempt=5), Folded(None, 5, 0)),
]


def test_folding_follows_a_life_event_by_event() -> None:
    assert list(stages(one for one, _ in LIFE)) == [expected for _, expected in LIFE]


def test_folding_gives_the_last_stage() -> None:
    assert fold(one for one, _ in LIFE[:12]) == Folded(TaskStatus.FAILED, 4, 2)
    assert fold([]) == UNBORN
