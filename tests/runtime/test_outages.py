"""A store that goes away and comes back: told once each, and work goes on without a restart."""

from __future__ import annotations

import threading

import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from holdfast.events.facts import PartFailed, StoreAway, StoreBack
from tests.runtime.support import Crew, ended, memory_state, wait_until


def test_an_outage_is_told_once_and_survived(app: Holdfast, monkeypatch: pytest.MonkeyPatch) -> None:
    @app.task(name="quick")
    async def quick() -> int:
        return 1

    state = memory_state(app)
    tried: set[str] = set()
    ensure_here = state.ensure_here

    def noted() -> None:
        try:
            ensure_here()
        except StoreUnavailable:
            tried.add(threading.current_thread().name)
            raise

    monkeypatch.setattr(state, "ensure_here", noted)
    with Crew(app) as crew:
        assert quick.enqueue().result(timeout=10) == 1
        state.go_away()
        wait_until(lambda: {crew.thread.name, "holdfast-keeper"} <= tried, "both loops to notice")
        state.come_back()
        assert quick.enqueue().result(timeout=10) == 1
        wait_until(lambda: crew.of(StoreBack))
    assert len(crew.of(StoreAway)) == len(crew.of(StoreBack)) == 1
    assert not crew.of(PartFailed)


def test_what_ends_during_an_outage_is_settled_after_it(app: Holdfast) -> None:
    """1. a task runs; 2. the store goes away for longer than its lease; 3. it ends; 4. the store is back."""
    gate = threading.Event()

    @app.task(name="slow")
    def slow() -> str:
        gate.wait(20)
        return "kept"

    state = memory_state(app)
    with Crew(app, lease=0.5) as crew:
        handle = slow.enqueue()
        wait_until(lambda: handle.task().status == "running")
        state.go_away()
        crew.wait_for(StoreAway)
        expires_at = next(iter(state.running.values())).lease_expires_at
        assert expires_at is not None
        wait_until(lambda: state.clock.micros() > expires_at + 100_000)
        gate.set()
        state.come_back()
        record = ended(handle)
    assert (record.status, record.result, record.attempt, record.failures) == ("completed", "kept", 1, 0)
