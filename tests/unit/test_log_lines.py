"""Task data is hostile: whatever a task is called or fails with, it stays one printable line of the log."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.events import facts, log
from holdfast.model.claim import Claim, Lease
from holdfast.model.outcome import ErrorInfo, Failed
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Settled

HOSTILE = "no\n09:00:00 INFO worker.started\r\x1b[2J\x1b]0;owned\x07\x9b31m\u202e\u2028\x00"


def claim_named(name: str) -> Claim:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    return Claim(
        lease=Lease("task-1", 1, "token"),
        worker_id="worker-1",
        lease_expires_at=moment,
        lease_seconds=60.0,
        name=name,
        queue=name,
        payload="null",
        priority=0,
        failures=0,
        max_attempts=5,
        timeout=None,
        run_id=None,
        meta=None,
        created_at=moment,
        claimed_at=moment,
    )


def test_a_task_cannot_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    claim = claim_named(HOSTILE)
    told: list[facts.Told] = [
        facts.TaskSettled(claim, Failed(ErrorInfo(HOSTILE)), Settled("task-1", 1, TaskStatus.FAILED)),
        facts.LeaseWasLost(claim, HOSTILE),
        facts.NameUnknown(claim, HOSTILE),
        facts.HandlerBlocked(claim, HOSTILE, 1.0),
        facts.HandlerStuck(claim, 1, 1),
        facts.Evicted([HOSTILE]),
        facts.StoreAway(HOSTILE),
        facts.PartFailed("reaper", HOSTILE),
    ]
    with caplog.at_level(logging.DEBUG, logger="holdfast.worker"):
        for each in told:
            log.write(each)
    assert len(caplog.messages) == len(told)
    assert [message for message in caplog.messages if not message.isprintable()] == []


def test_a_line_never_shows_a_token(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="holdfast.worker"):
        log.write(facts.LeaseWasLost(claim_named("send"), "late"))
    assert caplog.messages == ["lease.lost task=task-1 name=send queue=send attempt=1 why=late"]


@given(st.text())
def test_safe_text_is_printable_and_keeps_what_was_plain(text: str) -> None:
    shown = log.safe(text, limit=10_000)
    assert shown.isprintable()
    assert shown == text or not text.isprintable()
