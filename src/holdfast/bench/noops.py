"""The tasks that are measured, as cheap as a task can be, and the app of the worker processes that run them.

`holdfast worker --app holdfast.bench.noops:app` works on the store of HOLDFAST_URL.
"""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from holdfast.app import Holdfast
from holdfast.clock import SYSTEM_CLOCK
from holdfast.context import Context
from holdfast.declared import DeclaredTask


class Noops(NamedTuple):
    noop: DeclaredTask[[int], None, object]
    arrive: DeclaredTask[[], float, object]
    """Its result is the moment it began, on the clock that all processes of a machine share."""
    survive: DeclaredTask[[], float, object]
    """Waits for ever at its first attempt; the next one's result is as above."""
    give: DeclaredTask[[int], int, object]
    gather: DeclaredTask[[list[int]], int, object]
    """The finalizer of a chord of those."""


def declare(app: Holdfast) -> Noops:
    @app.task(name="bench.noop")
    async def noop(_number: int) -> None:
        pass

    @app.task(name="bench.arrive")
    async def arrive() -> float:
        return SYSTEM_CLOCK.monotonic()

    @app.task(name="bench.survive", takes_context=True)
    async def survive(context: Context) -> float:
        if context.attempt == 1:
            await asyncio.Event().wait()
        return SYSTEM_CLOCK.monotonic()

    @app.task(name="bench.give")
    async def give(number: int) -> int:
        return number

    @app.task(name="bench.gather")
    async def gather(numbers: list[int]) -> int:
        return sum(numbers)

    return Noops(noop, arrive, survive, give, gather)


app = Holdfast()
declare(app)
