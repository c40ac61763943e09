"""A real worker and a real producer behind a proxy that cuts their commits at random, before and after."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence

import pytest

from holdfast import Context, Fixed, Holdfast, Retention, Snooze, ids
from holdfast.errors import StoreUnavailable
from holdfast.events.facts import LeaseWasLost, PartFailed, TaskSettled
from holdfast.model.task import NewTask
from holdfast.stores.protocol import Store
from tests import postgres_server
from tests.cut_proxy import CutProxy, Plan, never
from tests.faults.checks import all_tasks, check_whole
from tests.runtime.support import Crew, wait_until
from tests.stores.postgres_support import handle

CUTS = 200
SOAK_CUTS = 6000
FOREVER = Retention(None, None, None)


class Ran:
    """Every start of a handler, by task and attempt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.starts: Counter[tuple[str, int]] = Counter()

    def note(self, ctx: Context) -> None:
        with self._lock:
            self.starts[ctx.id, ctx.attempt] += 1


def declare(app: Holdfast) -> Ran:
    ran = Ran()

    @app.task(name="plain", takes_context=True)
    async def plain(ctx: Context) -> int:
        ran.note(ctx)
        return ctx.attempt

    @app.task(name="stumbles", takes_context=True, backoff=Fixed(0))
    async def stumbles(ctx: Context) -> None:
        ran.note(ctx)
        if ctx.attempt == 1:
            raise ValueError("not yet")
        if ctx.attempt == 2:
            raise Snooze(0)

    @app.task(name="fails", takes_context=True, max_attempts=1)
    def fails(ctx: Context) -> None:
        ran.note(ctx)
        raise ValueError("never")

    @app.task(name="leads on", takes_context=True)
    async def leads_on(ctx: Context) -> None:
        ran.note(ctx)
        ctx.emit("led.on", {"to": "plain"})
        ctx.follow_up(app.s("plain"))

    return ran


async def submitted(store: Store, tasks: Sequence[NewTask]) -> None:
    """As a caller who wants to be sure: the same ids again."""
    while True:
        try:
            await store.submit(tasks)
            return
        except StoreUnavailable:
            continue


def batch(app: Holdfast) -> list[NewTask]:
    names = ["plain", "plain", "plain", "stumbles", "fails", "leads on"]
    calls = [app.using(idempotency_key=ids.token()).s(name) for name in names]
    return [call.new_task(ids.task_id()) for call in calls]


def cut_a_worker(cuts: int, seed: int) -> None:
    schema = postgres_server.fresh_schema()
    with CutProxy(postgres_server.server().url) as proxy, Holdfast(proxy.url, schema=schema, retention=FOREVER) as app:
        ran = declare(app)
        with Crew(app, concurrency=10) as crew:
            acknowledged = asyncio.run(produce(proxy, app, cuts, seed))
            wait_until(
                lambda: app.tasks.count()["queued"] + app.tasks.count()["running"] == 0, "all to end", seconds=60
            )
        assert min(proxy.cuts.values()) >= cuts // 3
        asyncio.run(check(schema, acknowledged, ran))
        assert not crew.of(PartFailed)
        assert not crew.of(LeaseWasLost)
        assert len(crew.of(TaskSettled)) == ran.starts.total(), "every end was told once"
    assert crew.raised is None


async def produce(proxy: CutProxy, app: Holdfast, cuts: int, seed: int) -> list[str]:
    """Work, for as long as there are cuts to be made."""
    store = app.connections.factory()
    acknowledged: list[str] = []
    try:
        await submitted(store, batch_and_note(app, acknowledged))
        proxy.decide = Plan(seed, 0.2)
        while proxy.total < cuts:
            await submitted(store, batch_and_note(app, acknowledged))
    finally:
        proxy.decide = never
        await store.close()
    return acknowledged


def batch_and_note(app: Holdfast, acknowledged: list[str]) -> list[NewTask]:
    tasks = batch(app)
    acknowledged += [new.id for new in tasks]
    return tasks


async def check(schema: str, acknowledged: list[str], ran: Ran) -> None:
    store = handle(schema)
    try:
        leading = sum(1 for task in await all_tasks(store) if task.name == "leads on")
        known = set(acknowledged)
        followed = [task.id for task in await all_tasks(store) if task.id not in known]
        assert len(followed) == leading, "one follow-up each"
        tasks = await check_whole(store, [*acknowledged, *followed])
        expected = {"plain": ("completed", 1, 0), "stumbles": ("completed", 3, 1), "fails": ("failed", 1, 1)}
        for task in tasks:
            assert (task.status, task.attempt, task.failures) == expected.get(task.name, ("completed", 1, 0)), task
        assert ran.starts == Counter({(task.id, n): 1 for task in tasks for n in range(1, task.attempt + 1)})
        assert await store.workers() == []
    finally:
        await store.close()


def test_a_worker_whose_commits_are_cut_loses_and_doubles_nothing() -> None:
    cut_a_worker(CUTS, seed=1)


@pytest.mark.soak
def test_a_worker_whose_commits_are_cut_thousands_of_times_loses_and_doubles_nothing() -> None:
    cut_a_worker(SOAK_CUTS, seed=2)
