"""A worker process that dies at a named point: `python -m tests.acceptance.crash_worker '{"url": …}'`.

The product has no points to die at; they are made from outside: the handler kills its own process, or the store
that is given to the worker does, around the verb in question. Every run of the handler is noted in a ledger first.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from holdfast import Context, Fixed, Holdfast
from holdfast.errors import HoldfastError
from holdfast.model.claim import Claimed, ClaimRequest, Lease
from holdfast.model.outcome import Settlement
from holdfast.model.transition import Settled
from holdfast.model.workflow import Step
from holdfast.stores.protocol import Store

ADVANCE_BATCH = 100
POINTS = ("after_claim", "in_handler", "before_settle", "after_settle")


class Orders(msgspec.Struct, kw_only=True):
    url: str
    ledger: str
    point: str = ""
    """Where to die: one of POINTS, around a step, after a batch of a workflow's dependents."""
    after: int = 1
    """At the how-manieth passage of that point."""
    lease: float = 60.0
    concurrency: int = 5
    until_idle: bool = False
    stop_until: str = ""
    """A file: before its first settle the process stops itself, and again, until the file exists when it goes on."""
    refusals: str = ""
    """A file for the codes of settles that were refused."""


class Fate:
    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._passages = 0

    def pass_by(self, point: str) -> None:
        if point == self._orders.point:
            self._passages += 1
            if self._passages == self._orders.after:
                os.kill(os.getpid(), signal.SIGKILL)

    async def stop(self) -> None:
        while self._may_not_go_on():
            os.kill(os.getpid(), signal.SIGSTOP)
            await asyncio.sleep(0.01)

    def _may_not_go_on(self) -> bool:
        return bool(self._orders.stop_until) and not Path(self._orders.stop_until).exists()

    def note(self, *words: object) -> None:
        append(self._orders.ledger, *words)

    def refused(self, code: str) -> None:
        if self._orders.refusals:
            append(self._orders.refusals, code)


def append(file: str, *words: object) -> None:
    """One line, in one write: it is there if the process dies right after."""
    line = " ".join(str(word) for word in words) + "\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, line.encode())
    os.close(descriptor)


class FatefulStore:
    """The real store, with a chance to die before and after its verbs."""

    def __init__(self, store: Store, fate: Fate) -> None:
        self._store = store
        self._fate = fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def claim(self, request: ClaimRequest) -> Claimed:
        claimed = await self._store.claim(request)
        if claimed.claims:
            self._fate.pass_by("after_claim")
        return claimed

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | HoldfastError]:
        self._fate.pass_by("before_settle")
        await self._fate.stop()
        answers = await self._store.settle(settlements)
        self._fate.pass_by("after_settle")
        for answer in answers:
            self._fate.pass_by("after_each_settle")
            if isinstance(answer, HoldfastError):
                self._fate.refused(answer.code)
        return answers

    async def record_step(self, lease: Lease, name: str, result: str) -> Step:
        self._fate.pass_by("before_step")
        step = await self._store.record_step(lease, name, result)
        self._fate.pass_by("after_step")
        return step

    async def advance(self, *, limit: int, actor: str) -> int:
        advanced = await self._store.advance(limit=min(limit, ADVANCE_BATCH), actor=actor)
        if advanced:
            self._fate.pass_by("after_advance")
        return advanced


def declare(app: Holdfast, fate: Fate) -> None:
    @app.task(name="work", takes_context=True, max_attempts=0, backoff=Fixed(0))
    async def work(ctx: Context, number: int) -> int:
        fate.note(ctx.id, ctx.attempt, ctx.lease_token, os.getpid())
        fate.pass_by("in_handler")
        await asyncio.sleep(0)
        return ctx.attempt

    @app.task(name="slow", takes_context=True, max_attempts=0)
    def slow(ctx: Context, gate: str) -> int:
        fate.note(ctx.id, ctx.attempt, ctx.lease_token, os.getpid())
        while not Path(gate).exists() and not ctx.cancel_requested:
            time.sleep(0.01)
        return ctx.attempt

    @app.task(name="collect", takes_context=True, max_attempts=0, backoff=Fixed(0))
    def collect(ctx: Context, values: list[int]) -> list[int]:
        fate.note(ctx.id, ctx.attempt, ctx.lease_token, os.getpid())
        return values

    @app.task(name="stepwise", takes_context=True, max_attempts=0, backoff=Fixed(0))
    async def stepwise(ctx: Context) -> list[int]:
        async def one(name: str) -> int:
            fate.note(name, ctx.attempt)
            return ctx.attempt

        return [await ctx.astep(name, one, name) for name in ("first", "second", "third")]


def run_worker(orders: Orders, declare: Callable[[Holdfast, Fate], None]) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(message)s")
    app, fate = Holdfast(orders.url), Fate(orders)
    declare(app, fate)
    open_store = app.connections.factory
    app.connections.factory = lambda: cast(Store, FatefulStore(open_store(), fate))
    worker = app.worker(concurrency=orders.concurrency, lease=orders.lease, poll_interval=0.1, grace=5)
    worker.run(until_idle=orders.until_idle)


if __name__ == "__main__":
    run_worker(msgspec.json.decode(sys.argv[1], type=Orders), declare)
