"""Several worker processes under one: starts them, passes signals on, starts again what died.

Children are in sessions of their own, so that a Ctrl-C on the terminal reaches them once, through here. Each holds the
reading end of a pipe whose writing end only the supervisor has: if the supervisor is killed, that pipe ends, and the
children stop in order by themselves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from typing import NamedTuple

from holdfast.clock import SYSTEM_CLOCK

log = logging.getLogger("holdfast.supervisor")

FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 30.0
SETTLED_SECONDS = 60.0
"""A child that lived so long starts again without a growing pause."""
USAGE = 2
STOPPING = (signal.SIGINT, signal.SIGTERM)


class Plan(NamedTuple):
    arguments: list[str]
    processes: int
    worker_id: str | None
    until_idle: bool

    def command(self, number: int, leash: int) -> list[str]:
        named = ["--worker-id", f"{self.worker_id}-{number}"] if self.worker_id is not None else []
        return [sys.executable, "-m", "holdfast", *self.arguments, *named, "--leash", str(leash)]


def supervise(plan: Plan) -> int:
    """Run until every child has ended; the worst of their exit codes."""
    return asyncio.run(_Supervisor(plan).run())


class _Supervisor:
    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._children: dict[int, asyncio.subprocess.Process] = {}
        self._stopping = asyncio.Event()
        self._leash, self._held = os.pipe()

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in STOPPING:
            loop.add_signal_handler(number, self._pass_on, number)
        numbers = range(1, self._plan.processes + 1)
        codes = await asyncio.gather(*(self._keep(number) for number in numbers))
        os.close(self._leash)
        os.close(self._held)
        return max(codes)

    def _pass_on(self, number: int) -> None:
        self._stopping.set()
        for child in self._children.values():
            child.send_signal(number)

    async def _keep(self, number: int) -> int:
        """One place among the processes: a child, and its successors; the exit code of the last."""
        pause = FIRST_PAUSE_SECONDS
        while True:
            started_at = SYSTEM_CLOCK.monotonic()
            code = await self._one_life(number)
            if self._stopping.is_set() or code == USAGE or (code == 0 and self._plan.until_idle):
                return self._judged(code)
            if SYSTEM_CLOCK.monotonic() - started_at > SETTLED_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            log.warning("process.died number=%d code=%d; starting another in %g s", number, code, pause)
            if await self._asked_within(pause):
                return self._judged(code)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    async def _one_life(self, number: int) -> int:
        child = await asyncio.create_subprocess_exec(
            *self._plan.command(number, self._leash),
            stdin=asyncio.subprocess.DEVNULL,
            pass_fds=(self._leash,),
            start_new_session=True,
        )
        self._children[number] = child
        if self._stopping.is_set():
            child.send_signal(signal.SIGTERM)  # the signal came while this child was being started
        log.info("process.started number=%d pid=%d", number, child.pid)
        try:
            return await child.wait()
        finally:
            del self._children[number]

    async def _asked_within(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return False
        return True

    def _judged(self, code: int) -> int:
        """A child that our signal caught before it could listen held nothing: that is an orderly end."""
        if self._stopping.is_set() and -code in STOPPING:
            return 0
        return code if code >= 0 else 1
