"""Workflows on NATS, as several handles see them: each knows only what the stream has told it, or what it has read."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import wraps
from itertools import pairwise
from typing import Any

import pytest

from holdfast import ids
from holdfast.errors import HoldfastError
from holdfast.model.claim import Claim, ClaimRequest
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Outcome, Settlement
from holdfast.model.query import TaskFilter
from holdfast.model.task import NewTask, Task, TaskStatus
from holdfast.model.transition import Change
from holdfast.policy.workflow import LIVE, RUNS_ANYWAY
from holdfast.stores.nats.images import PARENTS_MOST
from holdfast.stores.nats.messages import TOLD_MOST
from holdfast.stores.nats.options import parsed
from holdfast.stores.nats.store import NatsStore
from tests import jetstream_servers

DONE = Completed()
DEAD = Failed(ErrorInfo("it broke"), unrecoverable=True)
BOSS = "operator"
ENDED = (TaskStatus.FAILED, TaskStatus.CANCELED)

Open = Callable[[], NatsStore]
Test = Callable[[Open], Awaitable[None]]


@asynccontextmanager
async def handles() -> AsyncIterator[Open]:
    url = jetstream_servers.single().url(jetstream_servers.fresh_prefix())
    opened: list[NatsStore] = []

    def another() -> NatsStore:
        opened.append(NatsStore(parsed(url, {})))
        return opened[-1]

    try:
        yield another
    finally:
        for store in opened:
            await store.close()
        jetstream_servers.remove(url)


def with_handles(test: Test) -> Callable[[], None]:
    async def run() -> None:
        async with handles() as another:
            await test(another)

    @wraps(test)
    def wrapped() -> None:
        asyncio.run(run())

    del wrapped.__wrapped__  # or pytest takes the handles for a fixture
    return wrapped


def new_task(**fields: Any) -> NewTask:
    return NewTask(**({"id": ids.task_id(), "name": "probe", "payload": "null", "run_id": "run"} | fields))


def chord(members: int, **fields: Any) -> list[NewTask]:
    group = [new_task() for _ in range(members)]
    return [*group, new_task(name="finalizer", parents=tuple(member.id for member in group), **fields)]


def fan(children: int) -> list[NewTask]:
    root = new_task(name="root")
    return [root, *(new_task(parents=(root.id,)) for _ in range(children))]


def chain(length: int) -> list[NewTask]:
    names = ids.task_ids(length)
    links = [new_task(id=child, parents=(parent,)) for parent, child in pairwise(names)]
    return [new_task(id=names[0]), *links]


async def claimed(store: NatsStore, limit: int = 1, task_id: str | None = None) -> list[Claim]:
    request = ClaimRequest(claim_id=ids.task_id(), worker_id="worker", limit=limit, task_id=task_id)
    return list((await store.claim(request)).claims)


async def settled(store: NatsStore, claims: Sequence[Claim], outcome: Outcome = DONE) -> None:
    answers = await store.settle([Settlement(claim.lease, outcome) for claim in claims])
    assert [answer for answer in answers if isinstance(answer, HoldfastError)] == []


async def end(store: NatsStore, task_id: str, outcome: Outcome = DONE) -> None:
    await settled(store, await claimed(store, task_id=task_id), outcome)


async def amended(store: NatsStore, change: Change, *task_ids: str) -> None:
    answers = await store.amend(change, task_ids, actor=BOSS)
    assert [answer for answer in answers if isinstance(answer, HoldfastError)] == []


async def advanced(store: NatsStore, limit: int = 1000) -> int:
    total = 0
    while done := await store.advance(limit=limit, actor=BOSS):
        total += done
    return total


async def counts(store: NatsStore) -> dict[str, int]:
    run = await store.run("run")
    assert run is not None
    return dict(run.counts)


async def kinds(store: NatsStore, task_id: str) -> list[str]:
    return [event.kind for event in await store.events(task_id, after=0, limit=100)]


def kept(store: NatsStore) -> Counter[TaskStatus]:
    """What its replica has."""
    return Counter(record.status for record in store._ledger.replica.records.values())


# Several handles


@pytest.mark.parametrize("members", [3, PARENTS_MOST + 1, pytest.param(200, marks=pytest.mark.soak)])
def test_parents_of_one_child_that_end_on_many_handles_at_once_queue_it_once(members: int) -> None:
    async def prove() -> None:
        async with handles() as another:
            tasks = chord(members)
            stores = [another() for _ in range(4)]
            await stores[0].submit(tasks)
            claims = await claimed(stores[0], members)
            shares = [claims[at::4] for at in range(4)]
            await asyncio.gather(
                *(settled(store, [claim]) for store, share in zip(stores, shares, strict=True) for claim in share)
            )
            assert await kinds(stores[1], tasks[-1].id) == ["task.enqueued", "task.ready"]
            assert [claim.name for claim in await claimed(stores[2], 10)] == ["finalizer"]

    asyncio.run(prove())


@with_handles
async def test_what_a_handle_left_is_done_by_another_when_it_is_gone(another: Open) -> None:
    first, second = another(), another()
    tasks = fan(2000)
    await first.submit(tasks)
    await end(first, tasks[0].id)
    await first.close()
    assert (await counts(second))["waiting"] >= 1900
    assert await advanced(second) >= 1900
    assert await counts(second) == {"completed": 1, "queued": 2000}
    assert second._ledger.replica.left == {}
    events = await second.events(None, after=0, limit=10_000)
    assert Counter(event.kind for event in events)["task.ready"] == 2000


@with_handles
async def test_several_handles_go_on_with_the_same_at_once(another: Open) -> None:
    stores = [another() for _ in range(3)]
    tasks = fan(1200)
    await stores[0].submit(tasks)
    await end(stores[0], tasks[0].id, DEAD)
    done = await asyncio.gather(*(advanced(store, 150) for store in stores))
    assert sum(done) == 1100
    assert await counts(stores[0]) == {"failed": 1, "canceled": 1200}
    events = await stores[0].events(None, after=0, limit=10_000)
    assert Counter(event.kind for event in events)["task.canceled"] == 1200


@with_handles
async def test_a_fresh_handle_requeues_a_member_of_a_run_that_has_ended(another: Open) -> None:
    first, second = another(), another()
    tasks = chain(4)
    await first.submit(tasks)
    await end(first, tasks[0].id)
    await end(first, tasks[1].id, DEAD)
    assert await counts(first) == {"completed": 1, "failed": 1, "canceled": 2}
    await amended(second, Change.REQUEUE, tasks[1].id)
    assert await counts(second) == {"completed": 1, "queued": 1, "waiting": 2}
    for task in tasks[1:]:
        await end(first, task.id)
    assert await counts(second) == {"completed": 4}


@with_handles
async def test_a_replica_that_never_saw_a_canceled_child_counts_for_it(another: Open) -> None:
    """1. A child is canceled by a person. 2. A handle that opens then ends its parents. 3. It waits for nothing."""
    first = another()
    tasks = chord(2)
    await first.submit(tasks)
    await amended(first, Change.CANCEL, tasks[-1].id)
    second = another()
    await end(second, tasks[0].id)
    ended = {TaskStatus.COMPLETED: 1, TaskStatus.CANCELED: 1}
    assert kept(second) == {TaskStatus.QUEUED: 1, **ended}, "while the run lives they are kept"
    await end(second, tasks[1].id)
    assert kept(second) == {}, "and no longer"
    await amended(another(), Change.REQUEUE, tasks[-1].id)
    found = await first.get(tasks[-1].id)
    assert found is not None
    assert found.status is TaskStatus.QUEUED


@with_handles
async def test_a_handle_that_has_the_whole_run_follows_its_ended_members(another: Open) -> None:
    """1. Two handles load a run. 2. One of them ends and re-arms members. 3. The other goes on without a read."""
    first, second = another(), another()
    a, b, c, side = ids.task_ids(4)
    tasks = [new_task(id=a), new_task(id=b), new_task(id=c, parents=(a, b)), new_task(id=side)]
    await first.submit(tasks)
    await end(first, a, DEAD)
    for store in (second, first):
        await amended(store, Change.REQUEUE, a)
        await end(store, a, DEAD)
    await second._ledger.fresh()
    assert kept(second) == kept(first) == {TaskStatus.FAILED: 1, TaskStatus.QUEUED: 2, TaskStatus.CANCELED: 1}
    revs = {task_id: record.rev for task_id, record in first._ledger.replica.records.items()}  # type: ignore[attr-defined]
    assert revs == {task_id: record.rev for task_id, record in second._ledger.replica.records.items()}  # type: ignore[attr-defined]
    await amended(second, Change.REQUEUE, a)
    await asyncio.gather(end(first, a), end(second, b))
    assert await kinds(first, c) == ["task.enqueued", *["task.canceled", "task.rearmed"] * 3, "task.ready"]


@with_handles
async def test_an_end_that_is_too_large_to_be_told_is_read(another: Open) -> None:
    first, second = another(), another()
    a, b, c = ids.task_ids(3)
    await first.submit([new_task(id=a), new_task(id=b), new_task(id=c, parents=(a, b))])
    await amended(second, Change.CANCEL, c)
    await amended(second, Change.REQUEUE, c)  # now it has the whole run
    large = f'"{"x" * TOLD_MOST}"'
    await end(first, a, Completed(large))
    await end(second, b, DEAD)
    await amended(second, Change.REQUEUE, b)
    await end(second, b)
    assert [parent.result for parent in await first.parents(c, after=0, limit=5)] == [large, "null"]
    assert await counts(first) == {"completed": 2, "queued": 1}


@with_handles
async def test_what_is_deleted_of_a_run_is_not_waited_for(another: Open) -> None:
    first, second = another(), another()
    tasks = fan(3)
    await first.submit(tasks)
    await end(first, tasks[0].id, DEAD)
    await amended(first, Change.DELETE, tasks[1].id)
    await amended(second, Change.REQUEUE, tasks[0].id)
    await end(first, tasks[0].id)
    assert await counts(second) == {"completed": 1, "queued": 2}


@with_handles
async def test_a_run_is_forgotten_with_its_last_member(another: Open) -> None:
    store = another()
    tasks = [*chain(2), new_task(run_id="other")]
    await store.submit(tasks)
    await amended(store, Change.CANCEL, tasks[0].id)
    await amended(store, Change.DELETE, tasks[0].id)
    assert [run.id for run in await store.runs(limit=10, after=None)] == ["other", "run"]
    await amended(store, Change.DELETE, tasks[1].id)
    assert [run.id for run in await store.runs(limit=10, after=None)] == ["other"]
    assert await store._ledger.reader.subjects(store._ledger.subjects.members("run")) == []


@with_handles
async def test_tasks_of_no_run_are_told_of_by_nobody(another: Open) -> None:
    store = another()
    task = new_task(run_id=None)
    await store.submit([task])
    await end(store, task.id)
    (subject,) = await store._ledger.reader.subjects(store._ledger.subjects.live_anywhere(task.id))
    assert (await store._ledger.reader.last([subject]))[subject].body == b""


# A random life on several handles

PARENTS = 3


def drawn(rng: random.Random, size: int) -> list[NewTask]:
    names = ids.task_ids(size)
    tasks = []
    for n, name in enumerate(names):
        parents = tuple(rng.choice(names[:n]) for _ in range(rng.randrange(PARENTS + 1))) if n else ()
        anyway = rng.random() < 0.2
        tasks.append(new_task(id=name, parents=parents, on_parent_failure=RUNS_ANYWAY if anyway else "cancel"))
    return tasks


async def lived(store: NatsStore, rng: random.Random, tasks: Sequence[NewTask], acts: int) -> None:
    for _ in range(acts):
        some = [rng.choice(tasks).id for _ in range(2)]
        match rng.randrange(6):
            case 0:
                await store.amend(Change.REQUEUE, some, actor=BOSS)
            case 1 if rng.random() < 0.3:
                await store.amend(Change.CANCEL, some, actor=BOSS)
            case 2:
                await store.advance(limit=rng.choice([1, 100]), actor=BOSS)
            case _:
                outcome = DEAD if rng.random() < 0.4 else DONE
                await settled_or_lost(store, await claimed(store, rng.randrange(1, 4)), outcome)


async def settled_or_lost(store: NatsStore, claims: Sequence[Claim], outcome: Outcome) -> None:
    await store.settle([Settlement(claim.lease, outcome) for claim in claims])


def ensure_lawful(tasks: dict[str, Task]) -> None:
    """What holds whenever nothing is left to be done (contract C10.2 to C10.4)."""
    for task in tasks.values():
        parents = [tasks[parent] for parent in task.parents]
        blocked = task.on_parent_failure != RUNS_ANYWAY and any(parent.status in ENDED for parent in parents)
        open_still = any(parent.status in LIVE for parent in parents)
        if task.status is TaskStatus.WAITING:
            assert open_still, f"{task.id} waits for nobody"
            assert not blocked, f"{task.id} waits, though a parent has failed"
        if task.canceled_because is not None and task.status is TaskStatus.CANCELED:
            assert blocked, f"{task.id} is canceled, and no parent is to blame"
            assert tasks[task.canceled_because].status in ENDED, f"{task.id} is canceled because of one that is back"


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 6))])
def test_a_random_life_on_several_handles_is_lawful(seed: int) -> None:
    async def prove() -> None:
        rng = random.Random(seed)
        async with handles() as another:
            stores = [another() for _ in range(4)]
            tasks = drawn(rng, 40)
            await stores[0].submit(tasks)
            for _ in range(4):
                seeds = [rng.randrange(1 << 30) for _ in stores]
                await asyncio.gather(
                    *(lived(store, random.Random(one), tasks, 12) for store, one in zip(stores, seeds, strict=True))
                )
                await advanced(stores[0])
                ensure_lawful({task.id: task for task in await stores[1].page(TaskFilter(run_id="run", limit=100))})
            await ends_well(stores, tasks)

    asyncio.run(prove())


async def ends_well(stores: Sequence[NatsStore], tasks: Sequence[NewTask]) -> None:
    """Requeued and completed, all of it comes to its end."""
    for turn in range(10 * len(tasks)):
        store = stores[turn % len(stores)]
        await settled_or_lost(store, await claimed(store, 100), DONE)
        await advanced(store)
        dead = [task.id for task in tasks if (await found(store, task.id)).status in ENDED]
        if not dead and not await store.run_lives("run"):
            break
        for task_id in dead:
            await store.amend(Change.REQUEUE, [task_id], actor=BOSS)
    assert await counts(stores[0]) == {"completed": len(tasks)}


async def found(store: NatsStore, task_id: str) -> Task:
    task = await store.get(task_id)
    assert task is not None
    return task


# The line


@with_handles
async def test_a_follow_up_that_was_not_written_is_not_in_line(another: Open) -> None:
    """1. A key is held. 2. A settle plans a follow-up with it, is refused, and plans again without."""
    store = another()
    held, task = new_task(idempotency_key="k"), new_task()
    await store.submit([held, task])
    await amended(store, Change.CANCEL, held.id)
    claims = await claimed(store)
    again = new_task(idempotency_key="k")
    (answer,) = await store.settle([Settlement(claims[0].lease, DONE, follow_ups=(again,))])
    assert not isinstance(answer, HoldfastError)
    assert await claimed(store) == []


@with_handles
async def test_what_another_handle_has_canceled_is_not_in_line(another: Open) -> None:
    first, second = another(), another()
    await first.submit([task := new_task(run_id=None)])
    await first.queues()
    await amended(second, Change.CANCEL, task.id)
    await first._ledger.fresh()
    assert await claimed(first) == []
