"""Notices that the worker's event loop is blocked, names handler and line, and ends what has outlived its timeout.

Runs on the side loop. A blocked loop cannot fire its own timers, so here is the only place left to keep C6.6 and C7.7.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from types import FrameType

from holdfast.clock import SYSTEM_CLOCK
from holdfast.events.bus import Bus
from holdfast.events.facts import HandlerBlocked, LeaseWasLost, TaskSettled
from holdfast.health import StoreHealth
from holdfast.model.outcome import Settlement
from holdfast.model.transition import Settled
from holdfast.runtime.runner import Run, Runner
from holdfast.stores.protocol import TaskStore

PING_SECONDS = 0.25
BLOCKED_SECONDS = 1.0
OVERDUE_SECONDS = 0.5
HOPELESS_SECONDS = 30.0
"""A loop that is blocked this long by a handler past its timeout counts as wholly stuck."""


class Watchdog:
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        thread_id: int,
        runner: Runner,
        bus: Bus,
        hopeless: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._thread_id = thread_id
        self._runner = runner
        self._bus = bus
        self._hopeless = hopeless
        self._pinged_at: float | None = None
        self._report_after = BLOCKED_SECONDS

    async def run(self, store: TaskStore, health: StoreHealth) -> None:
        while True:
            await asyncio.sleep(PING_SECONDS)
            blocked = self._blocked_seconds()
            if blocked < BLOCKED_SECONDS:
                self._report_after = BLOCKED_SECONDS
                continue
            if blocked >= self._report_after:
                self._report(blocked)
                self._report_after = 2 * blocked
            await self._end_overdue(store, health, blocked)

    def _blocked_seconds(self) -> float:
        """How long the loop has left a ping unanswered; the next one is sent once it has answered."""
        now = SYSTEM_CLOCK.monotonic()
        if self._pinged_at is None:
            if self._runner.runs:
                self._pinged_at = now
                self._loop.call_soon_threadsafe(self._pong)
            return 0.0
        return now - self._pinged_at

    def _pong(self) -> None:
        self._pinged_at = None

    def _report(self, blocked: float) -> None:
        frame = sys._current_frames().get(self._thread_id)
        run = self._blocking_run()
        if frame is not None and self._pinged_at is not None:
            self._bus.publish(HandlerBlocked(run.claim if run else None, _place(frame, run), blocked))

    def _blocking_run(self) -> Run | None:
        current = asyncio.current_task(self._loop)
        return next((run for run in list(self._runner.runs.values()) if run.job.handle is current), None)

    async def _end_overdue(self, store: TaskStore, health: StoreHealth, blocked: float) -> None:
        now = SYSTEM_CLOCK.monotonic()
        for run in list(self._runner.runs.values()):
            timeout = run.claim.timeout
            if timeout is None or now < run.started_at + timeout + OVERDUE_SECONDS:
                continue
            settlement = self._runner.take_stuck(run)
            if settlement is not None:
                await self._settle(run, settlement, store, health)
                self._runner.despair_if_all_stuck(run)
            if blocked > HOPELESS_SECONDS and run is self._blocking_run():
                self._hopeless()

    async def _settle(self, run: Run, settlement: Settlement, store: TaskStore, health: StoreHealth) -> None:
        (answer,) = await health.persist(lambda: store.settle([settlement]))
        if isinstance(answer, Settled):
            self._bus.publish(TaskSettled(run.claim, settlement.outcome, answer))
        else:
            self._bus.publish(LeaseWasLost(run.claim, str(answer)))


def _place(frame: FrameType, run: Run | None) -> str:
    """Where the handler itself is, and where the thread is, if that is deeper."""
    deepest = _line(frame)
    code = getattr(run.job.definition.handler, "__code__", None) if run else None
    walk: FrameType | None = frame
    while walk is not None and walk.f_code is not code:
        walk = walk.f_back
    if walk is None or walk is frame:
        return deepest
    return f"{_line(walk)} in {deepest}"


def _line(frame: FrameType) -> str:
    return f"{frame.f_code.co_filename}:{frame.f_lineno} ({frame.f_code.co_qualname})"
