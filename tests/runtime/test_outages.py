"""A store that goes away and comes back: told once each, and work goes on without a restart."""

from __future__ import annotations

import threading

import pytest

from holdfast import Holdfast, current_task
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


def test_progress_during_an_outage_costs_no_attempt(app: Holdfast) -> None:
    gate, back = threading.Event(), threading.Event()

    @app.task(name="counting")
    def counting() -> str:
        ctx = current_task()
        ctx.progress(1, 3)
        gate.wait(20)
        ctx.progress(2, 3)
        state.come_back()
        back.set()
        ctx.progress(3, 3)
        return "counted"

    state = memory_state(app)
    with Crew(app) as crew:
        handle = counting.enqueue()
        wait_until(lambda: len(handle.events()) == 3, "the first progress")
        state.go_away()
        crew.wait_for(StoreAway)
        gate.set()
        assert back.wait(20)
        record = ended(handle)
    assert (record.status, record.attempt, record.failures) == ("completed", 1, 0)
    said = [event.payload["done"] for event in handle.events() if event.kind == "task.progress"]
    assert said == [1, 3]
