"""Waits for the ends of tasks and runs: one read per look, however many tasks are awaited.

Looks when a task has ended somewhere, if the store can tell, and besides at growing intervals. Between two looks there
is always a pause, longer where a look takes long, so that waiting costs the store little also while much happens.

A store that is away is waited for (health.py): how long is up to the caller's timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.clock import SYSTEM_CLOCK
from holdfast.health import StoreHealth
from holdfast.model.task import Task
from holdfast.stores.protocol import Store
from holdfast.wakeups.bell import Bell

FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 0.02, 1.0
GAP_SECONDS = 0.005
GAP_PER_LOOK = 4
"""A look that takes a second is followed by at least four without one."""
LOOK_LIMIT = 100
"""Records of ended tasks per read: each may hold a large result."""


class Waiter:
    """For those who wait by one handle, on its event loop."""

    def __init__(self, store: Store, health: StoreHealth) -> None:
        self._store = store
        self._health = health
        self._awaited: dict[str, list[asyncio.Future[Task | None]]] = {}
        self._looking: asyncio.Task[None] | None = None
        self._bell: Bell | None = None
        self._joined = False

    @property
    def idle(self) -> bool:
        """Nobody waits."""
        return not self._awaited

    async def ended(self, task_id: str) -> Task | None:
        """The task, once it has ended; None if there is no such task."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Task | None] = loop.create_future()
        self._awaited.setdefault(task_id, []).append(answer)
        self._joined = True
        if self._looking is None:
            self._looking = loop.create_task(self._look_on(), name="holdfast-waiter")
        self._ring()
        try:
            return await answer
        finally:
            self._leave(task_id, answer)

    def _leave(self, task_id: str, answer: asyncio.Future[Task | None]) -> None:
        others = [other for other in self._awaited.pop(task_id, ()) if other is not answer]
        if others:
            self._awaited[task_id] = others
        if self.idle:
            self._ring()  # a read that is under way is not cut off, which would cost the handle its connection

    def _ring(self) -> None:
        if self._bell is not None:
            self._bell.ring()

    async def _look_on(self) -> None:
        """While anybody waits."""
        try:
            with Bell(self._store.endings) as self._bell:
                await self._look_again_and_again(self._bell)
        except Exception as error:
            for answers in self._awaited.values():
                _give(answers, error)
        finally:
            self._looking = self._bell = None

    async def _look_again_and_again(self, bell: Bell) -> None:
        pause = FIRST_PAUSE_SECONDS
        while self._awaited:
            if self._joined:
                pause, self._joined = FIRST_PAUSE_SECONDS, False
            began = SYSTEM_CLOCK.monotonic()
            found = await self._health.persist(self._look)
            for task_id, task in found.items():
                _give(self._awaited.pop(task_id, ()), task)
            gap = max(GAP_SECONDS, GAP_PER_LOOK * (SYSTEM_CLOCK.monotonic() - began))
            if len(found) < LOOK_LIMIT:
                await asyncio.sleep(gap)
                await self._rest(bell, pause)
                pause = min(2 * pause, LAST_PAUSE_SECONDS)

    async def _look(self) -> dict[str, Task | None]:
        """Nobody may be left to look for, after an outage."""
        return await self._store.ended(list(self._awaited), limit=LOOK_LIMIT) if self._awaited else {}

    async def _rest(self, bell: Bell, seconds: float) -> None:
        if self._awaited:
            await bell.wait(seconds)


async def run_ended(store: Store, run_id: str, health: StoreHealth) -> None:
    """Return once nothing of this run can run any more, or nothing is known of it."""
    pause = FIRST_PAUSE_SECONDS
    with Bell(store.endings) as bell:
        while True:
            began = SYSTEM_CLOCK.monotonic()
            if not await health.persist(lambda: store.run_lives(run_id)):
                return
            await asyncio.sleep(max(GAP_SECONDS, GAP_PER_LOOK * (SYSTEM_CLOCK.monotonic() - began)))
            await bell.wait(pause)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)


def _give(answers: Sequence[asyncio.Future[Task | None]], answer: Task | Exception | None) -> None:
    for future in answers:
        if future.done():
            continue
        if isinstance(answer, Exception):
            future.set_exception(answer)
        else:
            future.set_result(answer)
