"""What the dispatcher writes is read back as it was, field by field: no two fields here hold the same."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import pytest

from holdfast.dispatcher import both_ways
from holdfast.model.backoff import Fixed
from holdfast.model.claim import Claim, Lease
from holdfast.model.output import OutputRow, Pin
from holdfast.model.schedule import Schedule, Timing
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.workflow import ParentEnd, Step

T = TypeVar("T")

HOSTILE = '{"text":"a\\u0000b é𝄞","n":[100000000000000000000000,-0.0,1e16],"deep":{"k":[[]]}}'


def at(minute: int) -> datetime:
    return datetime(2031, 5, 17, 9, 0, 0, 123_456, UTC) + timedelta(minutes=minute)


def crossed(form: T) -> T:
    """As bytes, from one side to the other."""
    return msgspec.json.decode(msgspec.json.encode(form), type=type(form))


def claim(meta: str | None) -> Claim:
    return Claim(
        lease=Lease("task", 3, "token"),
        worker_id="worker",
        lease_expires_at=at(1),
        lease_seconds=61.5,
        name="name",
        queue="queue",
        payload=HOSTILE,
        priority=-5,
        failures=2,
        max_attempts=7,
        timeout=9.25,
        run_id="run",
        meta=meta,
        created_at=at(2),
        claimed_at=at(3),
    )


def end(task_id: str, status: TaskStatus, result: str | None = None, error: dict[str, Any] | None = None) -> ParentEnd:
    return ParentEnd(task_id=task_id, name=f"name of {task_id}", status=status, result=result, error=error)


@pytest.mark.parametrize("meta", [None, '{"a":1}'])
def test_a_claim(meta: str | None) -> None:
    given = claim(meta)
    assert both_ways.claim(crossed(both_ways.claim_out(given))) == given


def test_a_claim_from_a_dispatcher_that_said_null_for_no_meta() -> None:
    shown = msgspec.structs.replace(both_ways.claim_out(claim(None)), meta=msgspec.Raw(b"null"))
    assert both_ways.claim(crossed(shown)) == claim(None)


@pytest.mark.parametrize("meta", [None, '{"a":1}'])
def test_a_schedule(meta: str | None) -> None:
    task = NewTask(
        id="",
        name="task",
        payload=HOSTILE,
        queue="queue",
        priority=4,
        max_attempts=6,
        backoff=Fixed(2.5),
        timeout=8.5,
        lease=30.5,
        concurrency_key="key",
        run_id="run",
        meta=meta,
        inputs=(Pin("lines", 3), Pin("orders", None)),
    )
    timing = Timing(cron="0 3 * * *", timezone="Europe/Berlin", jitter=5.0, missed="all", missed_most=9)
    given = Schedule(
        name="nightly",
        timing=timing,
        task=task,
        paused=True,
        created_at=at(1),
        last_fired_at=at(2),
        declared_at=at(3),
    )
    assert both_ways.schedule(crossed(both_ways.schedule_out(given))) == given


def test_the_ends_of_parents() -> None:
    ends = [
        end("a", TaskStatus.COMPLETED, HOSTILE),
        end("b", TaskStatus.COMPLETED, "null"),
        end("c", TaskStatus.FAILED, error={"message": "it broke", "code": "Broke"}),
        end("d", TaskStatus.CANCELED),
    ]
    assert [both_ways.parent(crossed(both_ways.parent_out(one))) for one in ends] == ends
    assert bytes(both_ways.parent_out(ends[3]).result) == b"null", "to others, who has no result says so"


def test_steps_and_rows() -> None:
    step, row = Step("name", HOSTILE, at(1)), OutputRow("key", HOSTILE)
    assert both_ways.step(crossed(both_ways.step_out(step))) == step
    assert both_ways.row(crossed(both_ways.row_out(row))) == row
