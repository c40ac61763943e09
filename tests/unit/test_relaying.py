"""What the doctor says of the outbox (contract C12.3)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from holdfast.model.outbox import Effect, Sink
from holdfast.policy.relaying import BEHIND_SECONDS, backlog

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def sink(**fields: Any) -> Sink:
    plain: dict[str, Any] = {
        "name": "hook",
        "url": "https://example.org",
        "effect": Effect.ROUTE,
        "kinds": None,
        "queues": None,
    }
    rest = {"private": False, "signed": True, "created_at": NOW, "pending": 0, "dead": 0, "oldest_at": None}
    return Sink(**(plain | rest | fields))


def test_all_is_well_while_nobody_waits_for_long() -> None:
    assert backlog([], NOW) == (True, "nobody is told of changes")
    assert backlog([sink()], NOW)[0] is True
    assert backlog([sink(pending=3, oldest_at=NOW - timedelta(seconds=BEHIND_SECONDS))], NOW)[0] is True


def test_what_waits_for_long_or_is_dead_should_be_looked_at() -> None:
    late = sink(pending=3, oldest_at=NOW - timedelta(seconds=BEHIND_SECONDS + 1))
    well, words = backlog([sink(), late], NOW)
    assert well is None
    assert "2 sinks, 3 rows wait, the oldest for 601 s" in words
    well, words = backlog([sink(dead=2)], NOW)
    assert well is None
    assert "2 are dead; see `holdfast sinks list` and `holdfast outbox list`" in words
