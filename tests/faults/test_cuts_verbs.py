"""A lost COMMIT reply is normal: every verb, cut before and after its commit, is repeated and has happened once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

import pytest

from holdfast import ids
from holdfast.errors import HoldfastError, ScheduleNotFound, StoreUnavailable, TaskNotFound
from holdfast.model.claim import Claim, Extended
from holdfast.model.outcome import (
    Completed,
    Emitted,
    ErrorInfo,
    Failed,
    Outcome,
    Released,
    Settlement,
    Snoozed,
)
from holdfast.model.query import Retention
from holdfast.model.schedule import NewSchedule, Timing
from holdfast.model.task import NewTask, Submitted, TaskStatus
from holdfast.model.transition import Amended, Change, Settled
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.postgres.submit import LARGE
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.subject import worker_info
from holdfast.testing.virtual_clock import VirtualClock
from tests import postgres_server
from tests.cut_proxy import Cut, CutProxy
from tests.faults.checks import check_whole
from tests.stores.postgres_support import new_task, request

T = TypeVar("T")

ROUNDS = 8
SOAK_ROUNDS = 145
LEASE_SECONDS = 60.0
TODAY = Retention(timedelta(0), timedelta(0), timedelta(0))


class Scene:
    """A store behind the proxy, one that is not, and what callers were told."""

    def __init__(self, proxy: CutProxy, store: Store, direct: Store, clock: VirtualClock) -> None:
        self.proxy = proxy
        self.store = store
        self.direct = direct
        self.clock = clock
        self.acknowledged: set[str] = set()
        self.deleted: set[str] = set()
        self.cut: Cut = "before"
        self.skip = 0

    async def through(self, call: Callable[[], Awaitable[T]]) -> T:
        """Cut it, and make it again as the runtime does."""
        if isinstance(self.store, PostgresStore) and self.store._surveying is not None:
            await asyncio.wait({self.store._surveying})  # beside the work of a claim before
        cuts = self.proxy.total
        self.proxy.arm(self.cut, skip=self.skip)
        with pytest.raises(StoreUnavailable):
            await call()
        assert self.proxy.total == cuts + 1
        return await call()

    async def given(self, n: int = 1, **fields: Any) -> list[NewTask]:
        tasks = [new_task(**fields) for _ in range(n)]
        await self.direct.submit(tasks)
        self.acknowledged |= {new.id for new in tasks}
        return tasks

    async def claimed(self, n: int = 1, **fields: Any) -> list[Claim]:
        await self.given(n, **fields)
        return (await self.direct.claim(request(limit=n, lease_seconds=LEASE_SECONDS))).claims

    async def status(self, task_id: str) -> TaskStatus:
        task = await self.direct.get(task_id)
        assert task is not None
        return task.status

    async def settles(self, outcomes: Sequence[Outcome], *statuses: str, **fields: Any) -> None:
        claims = await self.claimed(len(outcomes), **fields)
        ends = [Settlement(claim.lease, outcome) for claim, outcome in zip(claims, outcomes, strict=True)]
        told = await self.through(lambda: self.store.settle(ends))
        assert told == [
            Settled(claim.task_id, 1, TaskStatus(status)) for claim, status in zip(claims, statuses, strict=True)
        ]

    async def amends(self, change: Change, task_id: str, becomes: str | None) -> Amended | HoldfastError:
        (told,) = await self.through(lambda: self.store.amend(change, [task_id], actor="operator"))
        if becomes is not None:
            assert await self.status(task_id) == becomes
        return told


Verb = Callable[[Scene], Awaitable[None]]


async def submit_one(scene: Scene) -> None:
    new = new_task()
    assert await scene.through(lambda: scene.store.submit([new])) == [Submitted(new.id, created=True)]
    scene.acknowledged.add(new.id)


async def submit_many(scene: Scene) -> None:
    tasks = [new_task(idempotency_key=ids.token() if i % 2 else None, priority=i) for i in range(20)]
    told = await scene.through(lambda: scene.store.submit(tasks))
    assert told == [Submitted(new.id, created=True) for new in tasks]
    scene.acknowledged |= {new.id for new in tasks}


async def submit_a_large_batch(scene: Scene) -> None:
    """Copied in, not inserted."""
    tasks = [new_task() for _ in range(LARGE)]
    told = await scene.through(lambda: scene.store.submit(tasks))
    assert told == [Submitted(new.id, created=True) for new in tasks]
    scene.acknowledged |= {new.id for new in tasks}


async def submit_a_known_key(scene: Scene) -> None:
    (known,) = await scene.given(idempotency_key=ids.token())
    tasks = [new_task(idempotency_key=known.idempotency_key), new_task()]
    told = await scene.through(lambda: scene.store.submit(tasks))
    assert told == [Submitted(known.id, created=False), Submitted(tasks[1].id, created=True)]
    scene.acknowledged.add(tasks[1].id)


async def claim_some(scene: Scene) -> None:
    await scene.given(5)
    wanted = request(limit=3, lease_seconds=LEASE_SECONDS)
    claims = (await scene.through(lambda: scene.store.claim(wanted))).claims
    assert len(claims) == 3
    assert (await scene.store.claim(wanted)).claims == claims, "still the same leases"
    assert all(
        isinstance(told, Settled)
        for told in await scene.store.settle([Settlement(claim.lease, Completed()) for claim in claims])
    )


async def claim_by_id(scene: Scene) -> None:
    (new,) = await scene.given(priority=-1)
    wanted = request(task_id=new.id, lease_seconds=LEASE_SECONDS)
    (claim,) = (await scene.through(lambda: scene.store.claim(wanted))).claims
    assert claim.lease.attempt == 1


async def settle_plainly(scene: Scene) -> None:
    await scene.settles([Completed("1"), Completed("2")], "completed", "completed")


async def settle_failed(scene: Scene) -> None:
    await scene.settles([Failed(ErrorInfo("no"))], "queued")


async def settle_for_good(scene: Scene) -> None:
    await scene.settles([Failed(ErrorInfo("no"))], "failed", max_attempts=1)


async def settle_snoozed_and_released(scene: Scene) -> None:
    await scene.settles([Snoozed(30), Released()], "queued", "queued")


async def settle_a_mixture(scene: Scene) -> None:
    """Two commits: the plain ones first, the rest after them. Either may be the one that is cut."""
    for scene.skip in (0, 1):
        await scene.settles([Completed(), Failed(ErrorInfo("no")), Completed()], "completed", "queued", "completed")
    scene.skip = 0


async def settle_with_follow_ups(scene: Scene) -> None:
    (claim,) = await scene.claimed()
    next_one = new_task(idempotency_key=ids.token())
    end = Settlement(claim.lease, Completed(), emitted=(Emitted("mail.sent", {"no": 7}),), follow_ups=(next_one,))
    told = await scene.through(lambda: scene.store.settle([end]))
    assert told == [Settled(claim.task_id, 1, TaskStatus.COMPLETED)]
    scene.acknowledged.add(next_one.id)
    kinds = [event.kind for event in await scene.direct.events(claim.task_id, after=0, limit=100)]
    assert kinds.count("mail.sent") == 1


async def extend(scene: Scene) -> None:
    """The lost session may hold the row a moment longer; a heartbeat that meets it there leaves the lease as it is."""
    (claim,) = await scene.claimed()
    scene.clock.advance(1)
    (told,) = await scene.through(lambda: scene.store.extend([claim.lease]))
    while isinstance(told, Extended) and told.expires_at == claim.lease_expires_at:
        (told,) = await scene.store.extend([claim.lease])
    assert isinstance(told, Extended)
    assert told.expires_at == claim.lease_expires_at + timedelta(seconds=1)


async def report(scene: Scene) -> None:
    (claim,) = await scene.claimed()
    await scene.through(lambda: scene.store.report(claim.lease, "task.progress", {"done": 1}))
    kinds = [event.kind for event in await scene.direct.events(claim.task_id, after=0, limit=100)]
    assert kinds.count("task.progress") == (2 if scene.cut == "after" else 1), "a report has no name of its own"


async def cancel(scene: Scene) -> None:
    (new,) = await scene.given()
    await scene.amends(Change.CANCEL, new.id, "canceled")


async def cancel_what_runs(scene: Scene) -> None:
    (claim,) = await scene.claimed()
    await scene.amends(Change.CANCEL, claim.task_id, "running")
    kinds = [event.kind for event in await scene.direct.events(claim.task_id, after=0, limit=100)]
    assert kinds.count("task.cancel_requested") == 1


async def requeue(scene: Scene) -> None:
    (claim,) = await scene.claimed(max_attempts=1)
    await scene.direct.settle([Settlement(claim.lease, Failed(ErrorInfo("no")))])
    await scene.amends(Change.REQUEUE, claim.task_id, "queued")


async def release(scene: Scene) -> None:
    (claim,) = await scene.claimed()
    await scene.amends(Change.RELEASE, claim.task_id, "queued")


async def delete(scene: Scene) -> None:
    (claim,) = await scene.claimed()
    await scene.direct.settle([Settlement(claim.lease, Completed())])
    told = await scene.amends(Change.DELETE, claim.task_id, None)
    assert isinstance(told, TaskNotFound if scene.cut == "after" else Amended)
    scene.deleted.add(claim.task_id)


async def reap(scene: Scene) -> None:
    """The lost session may hold the rows a moment longer, and a reaper goes past rows that others hold."""
    claims = await scene.claimed(2)
    scene.clock.advance(2 * LEASE_SECONDS)
    await scene.through(lambda: scene.store.reap(limit=1000, actor="reaper"))
    for claim in claims:
        while await scene.status(claim.task_id) == "running":
            await scene.store.reap(limit=1000, actor="reaper")
        task = await scene.direct.get(claim.task_id)
        assert task is not None
        assert (task.status, task.failures) == ("queued", 1)


async def prune(scene: Scene) -> None:
    """The same holds for a pruner."""
    (claim,) = await scene.claimed()
    await scene.direct.settle([Settlement(claim.lease, Completed())])
    await scene.through(lambda: scene.store.prune(TODAY, limit=10))
    while await scene.direct.get(claim.task_id) is not None:
        await scene.store.prune(TODAY, limit=10)
    scene.deleted.add(claim.task_id)


async def enroll_and_leave(scene: Scene) -> None:
    worker = worker_info(f"worker-{next(_numbers)}")
    await scene.through(lambda: scene.store.enroll(worker))
    assert [info.id for info in await scene.direct.workers()] == [worker.id]
    assert await scene.direct.evict(actor="reaper") == [], "it is known to live"
    await scene.through(lambda: scene.store.leave(worker.id))
    assert await scene.direct.workers() == []


async def evict(scene: Scene) -> None:
    assert isinstance(scene.direct, PostgresStore)
    async with another(scene.direct, scene.clock) as dying:
        await dying.enroll(worker_info("dying"))
        await scene.given()
        (claim,) = (await dying.claim(request(worker_id="dying", lease_seconds=LEASE_SECONDS))).claims
    scene.skip = 1  # the first statement only looks
    await scene.through(lambda: scene.store.evict(actor="reaper"))
    scene.skip = 0
    assert await scene.direct.workers() == []
    (reaped,) = await scene.direct.reap(limit=1, actor="reaper")
    assert reaped.task_id == claim.task_id


async def pause(scene: Scene) -> None:
    for paused in (True, False):
        await scene.through(lambda paused=paused: scene.store.pause("mail", paused=paused))  # type: ignore[misc]
        assert [queue.paused for queue in await scene.direct.queues() if queue.name == "mail"] == [paused]


async def fire(scene: Scene) -> None:
    task = NewTask(id="", name="tick", payload="null")
    new = NewSchedule(name=f"schedule-{next(_numbers)}", timing=Timing(every=60.0), task=task)
    schedule = await scene.through(lambda: scene.store.declare_schedule(new))
    upto = schedule.last_fired_at + timedelta(minutes=1)
    tasks = [new_task(idempotency_key=ids.token()), new_task(idempotency_key=ids.token())]
    told = await scene.through(
        lambda: scene.store.fire(new.name, last_fired_at=schedule.last_fired_at, upto=upto, tasks=tasks)
    )
    assert told is (scene.cut == "before"), "it has moved on"
    (known,) = [one for one in await scene.direct.schedules() if one.name == new.name]
    assert known.last_fired_at == upto
    scene.acknowledged |= {new.id for new in tasks}


async def pause_and_delete_a_schedule(scene: Scene) -> None:
    new = NewSchedule(name="a", timing=Timing(every=60.0), task=NewTask(id="", name="tick", payload="null"))
    await scene.direct.declare_schedule(new)
    for paused in (True, False):
        await scene.through(lambda paused=paused: scene.store.pause_schedule("a", paused=paused))  # type: ignore[misc]
        assert [one.paused for one in await scene.direct.schedules()] == [paused]
    if scene.cut == "before":
        await scene.through(lambda: scene.store.delete_schedule("a"))
    else:
        with pytest.raises(ScheduleNotFound):
            await scene.through(lambda: scene.store.delete_schedule("a"))
    assert await scene.direct.schedules() == []


VERBS = [
    submit_one,
    submit_many,
    submit_a_large_batch,
    submit_a_known_key,
    claim_some,
    claim_by_id,
    settle_plainly,
    settle_failed,
    settle_for_good,
    settle_snoozed_and_released,
    settle_a_mixture,
    settle_with_follow_ups,
    extend,
    report,
    cancel,
    cancel_what_runs,
    requeue,
    release,
    delete,
    reap,
    prune,
    enroll_and_leave,
    evict,
    pause,
    fire,
    pause_and_delete_a_schedule,
]
_numbers = count(1)


def handle(url: str, schema: str, clock: VirtualClock) -> PostgresStore:
    # Without wake-ups, which have connections of their own: the next statement is the one to be cut.
    return PostgresStore(parsed(url, {"schema": schema, "evict_grace": 0, "wakeups": "off"}), clock)


@asynccontextmanager
async def another(direct: PostgresStore, clock: VirtualClock) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(direct._options, clock)
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def staged() -> AsyncIterator[Scene]:
    clock, schema, url = VirtualClock(), postgres_server.fresh_schema(), postgres_server.server().url
    with CutProxy(url) as proxy:
        store, direct = handle(proxy.url, schema, clock), handle(url, schema, clock)
        try:
            await store.now()
            await store.reap(limit=1, actor="nobody")
            yield Scene(proxy, store, direct, clock)
        finally:
            await store.close()
            await direct.close()


async def cut_again_and_again(
    verb: Verb, rounds: int, staged: Callable[[], AbstractAsyncContextManager[Scene]]
) -> None:
    async with staged() as scene:
        for turn in range(2 * rounds):
            scene.cut = "after" if turn % 2 else "before"
            await verb(scene)
            await settle_what_is_left(scene)
        assert min(scene.proxy.cuts.values()) >= rounds
        await check_whole(scene.direct, scene.acknowledged, deleted=scene.deleted)


async def settle_what_is_left(scene: Scene) -> None:
    """Every task ends, so that no verb meets what another round has left, and no lease can be left over unseen."""
    scene.clock.advance(3600)
    await scene.direct.reap(limit=1000, actor="reaper")
    scene.clock.advance(3600)
    while claims := (await scene.direct.claim(request(limit=100))).claims:
        await scene.direct.settle([Settlement(claim.lease, Completed()) for claim in claims])


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_a_verb_whose_reply_is_lost_has_happened_once(verb: Verb) -> None:
    asyncio.run(cut_again_and_again(verb, ROUNDS, staged))


@pytest.mark.soak
@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_verbs_cut_thousands_of_times_have_happened_once(verb: Verb) -> None:
    asyncio.run(cut_again_and_again(verb, SOAK_ROUNDS, staged))
