"""Work for a worker under faults: tasks of every kind, a producer that never gives up, and what must come of it."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from holdfast import Context, Fixed, Holdfast, Snooze, ids
from holdfast.errors import StoreUnavailable
from holdfast.events.facts import LeaseWasLost, PartFailed, TaskSettled, Told
from holdfast.model.task import NewTask
from holdfast.stores.protocol import Store
from tests.faults.checks import all_tasks, check_whole
from tests.runtime.support import wait_until

NAMES = ("plain", "plain", "plain", "stumbles", "fails", "leads on")
ENDS = {"plain": ("completed", 1, 0), "stumbles": ("completed", 3, 1), "fails": ("failed", 1, 1)}
"""Status, attempt and failures; of any other as of the plain ones."""
PAUSE_SECONDS = 0.02


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


def batch(app: Holdfast) -> list[NewTask]:
    calls = [app.using(idempotency_key=ids.token()).s(name) for name in NAMES]
    return [call.new_task(ids.task_id()) for call in calls]


class Producer:
    """Submits work on a thread of its own, as a caller who wants to be sure: after a fault the same ids again."""

    def __init__(
        self, app: Holdfast, make: Callable[[Holdfast], list[NewTask]] = batch, pause: float = PAUSE_SECONDS
    ) -> None:
        self._app = app
        self._pause = pause
        self._make = make
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._raised: BaseException | None = None
        self.acknowledged: list[str] = []

    def __enter__(self) -> Producer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the last submit was never answered"
        assert self._raised is None

    def _run(self) -> None:
        try:
            asyncio.run(self._produce())
        except BaseException as error:
            self._raised = error

    async def _produce(self) -> None:
        store = self._app.connections.factory()
        while not self._stop.is_set():
            tasks = self._make(self._app)
            await submitted(store, tasks)
            self.acknowledged += [new.id for new in tasks]
            await asyncio.sleep(self._pause)
        await store.close()

    def wait_for_more(self) -> None:
        """Until something more has been acknowledged."""
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) > before or self._raised, "a submit to be acknowledged", seconds=60)
        if self._raised is not None:
            raise self._raised


async def submitted(store: Store, tasks: Sequence[NewTask]) -> None:
    while True:
        try:
            await store.submit(tasks)
            return
        except StoreUnavailable:
            await asyncio.sleep(PAUSE_SECONDS)


def wait_until_all_ended(app: Holdfast) -> None:
    def ended() -> bool:
        counts = app.tasks.count()
        return counts["queued"] + counts["running"] == 0

    wait_until(ended, "all to end", seconds=60)


def check_load(open_store: Callable[[], Store], acknowledged: Sequence[str], ran: Ran) -> None:
    """Everything acknowledged, and one follow-up each of those that lead on, has ended as it should, and ran once."""

    async def check() -> None:
        store = open_store()
        known = set(acknowledged)
        found = await all_tasks(store)
        followed = [task.id for task in found if task.id not in known]
        assert len(followed) == sum(task.name == "leads on" for task in found), "one follow-up each"
        for task in await check_whole(store, [*acknowledged, *followed]):
            assert (task.status, task.attempt, task.failures) == ENDS.get(task.name, ENDS["plain"]), task
        assert ran.starts == Counter({(task.id, n): 1 for task in found for n in range(1, task.attempt + 1)})
        assert await store.workers() == []
        await store.close()

    asyncio.run(check())


def check_told(told: Sequence[Told], ran: Ran) -> None:
    """Every end was told once: as recorded, or as lost where a later attempt began before the settle was made again."""
    lost = [fact.claim for fact in told if isinstance(fact, LeaseWasLost)]
    assert sum(isinstance(fact, TaskSettled) for fact in told) + len(lost) == ran.starts.total()
    for claim in lost:
        assert (claim.task_id, claim.lease.attempt + 1) in ran.starts, "the end of this attempt was recorded"
    assert not [fact for fact in told if isinstance(fact, PartFailed)]
