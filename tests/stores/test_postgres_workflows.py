"""Workflows on PostgreSQL where many are at work at once: the last members of a chord, cascades that are cut, big ones.

What a workflow means is in the conformance suite; here are the interleavings of its rows and locks.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from math import ceil
from typing import Any

import pytest

from holdfast import ids
from holdfast.errors import StoreUnavailable
from holdfast.model.claim import Claim, Lease
from holdfast.model.outcome import Completed, Emitted, ErrorInfo, Failed, Recorded, Settlement
from holdfast.model.query import Retention
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Change, Settled
from holdfast.policy.workflow import BUCKETS_FROM, INLINE_EACH
from holdfast.stores.postgres.store import PostgresStore
from tests import postgres_server
from tests.stores.postgres_support import claim_one, new_task, opened, request, somebody_else

BROKEN = Failed(ErrorInfo("no"), unrecoverable=True)
STEP = 500
"""How many dependents are advanced at once here."""
FEW, MANY = 100, 100_000


def chord(members: int, **fields: Any) -> list[NewTask]:
    """Its members and, last, its finalizer."""
    *first, last = ids.task_ids(members + 1)
    run_id = first[0]
    tasks = [new_task(id=task_id, run_id=run_id, **fields) for task_id in first]
    return [*tasks, new_task(id=last, run_id=run_id, parents=tuple(first))]


def fan(dependents: int) -> list[NewTask]:
    """A task and those that wait for it, in another queue."""
    root, *rest = ids.task_ids(dependents + 1)
    waiting = [new_task(id=task_id, run_id=root, parents=(root,), queue="later") for task_id in rest]
    return [new_task(id=root, run_id=root), *waiting]


async def settled(store: PostgresStore, claims: list[Claim], outcome: Any = None, *emitted: Emitted) -> None:
    answers = await store.settle([Settlement(claim.lease, outcome or Completed(), emitted) for claim in claims])
    assert all(isinstance(answer, Settled) for answer in answers), answers


async def status(store: PostgresStore, task: NewTask) -> str:
    found = await store.get(task.id)
    assert found is not None
    return found.status.value


async def kinds(store: PostgresStore, task: NewTask) -> list[str]:
    return [event.kind for event in await store.events(task.id, after=0, limit=99)]


async def counts(store: PostgresStore, queue: str) -> dict[str, int]:
    (info,) = [info for info in await store.queues() if info.name == queue]
    return info.counts


async def until_waiting(conn: Any, sessions: int) -> None:
    """Until so many sessions of ours stand in line for a lock."""
    asked = "select count(distinct pid) from pg_locks where not granted"
    async with asyncio.timeout(60):
        while await conn.fetchval(asked) < sessions:  # noqa: ASYNC110  only the server knows
            await asyncio.sleep(0.005)


@asynccontextmanager
async def held(conn: Any, query: str, *values: object) -> AsyncIterator[None]:
    """Somebody holds the rows that this finds."""
    async with conn.transaction():
        assert await conn.fetch(f"{query} for update", *values)
        yield


# The last members of a chord


@pytest.mark.parametrize("emitted", [(), (Emitted("custom", {}),)], ids=["plain", "the long way"])
@pytest.mark.parametrize("members", [2, 100], ids=["counted one by one", "counted in a bucket"])
def test_two_last_members_that_end_at_the_same_moment_queue_the_finalizer_once(
    members: int, emitted: tuple[Emitted, ...]
) -> None:
    """1. All but two have ended. 2. The settles of both are under way and stand before the row that counts. 3. They go
    on, one after the other: only the second one finds that it was the last."""

    async def use() -> None:
        async with opened() as first, opened(first._options.schema) as second, somebody_else(first) as other:
            tasks = chord(members)
            await first.submit(tasks)
            claims = (await first.claim(request(limit=members))).claims
            await settled(first, claims[:-2])
            table, key = ("tasks", "id") if members == 2 else ("buckets", "child")
            async with held(other, f"select from {table} where {key} = $1", tasks[-1].id):
                under_way = [
                    asyncio.create_task(settled(store, [claim], None, *emitted))
                    for store, claim in zip((first, second), claims[-2:], strict=True)
                ]
                await until_waiting(other, 2)
                assert await status(first, tasks[-1]) == "waiting"
            await asyncio.gather(*under_way)
            assert await kinds(first, tasks[-1]) == ["task.enqueued", "task.ready"]
            assert (await claim_one(first)).task_id == tasks[-1].id

    asyncio.run(use())


KILLED = """
import asyncio, os, signal, sys
from holdfast.model.claim import Lease
from holdfast.model.outcome import Completed, Settlement
from tests.stores.postgres_support import opened

async def settle(schema, url, task_id, attempt, token):
    os.environ["HOLDFAST_TEST_PG_URL"] = url
    async with opened(schema) as store:
        await store.settle([Settlement(Lease(task_id, int(attempt), token), Completed())])
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(settle(*sys.argv[1:]))
"""


def test_a_member_that_is_killed_after_its_commit_has_queued_the_finalizer() -> None:
    async def use() -> None:
        async with opened() as store:
            tasks = chord(2)
            await store.submit(tasks)
            done, last = (await store.claim(request(limit=2))).claims
            await settled(store, [done])
            await asyncio.to_thread(settle_and_die, store, last.lease)
            assert await kinds(store, tasks[-1]) == ["task.enqueued", "task.ready"]
            await settled(store, [last])  # the reply was lost: the same once more
            assert await kinds(store, tasks[-1]) == ["task.enqueued", "task.ready"]
            await settled(store, [await claim_one(store)])
            assert (await store.claim(request())).claims == []

    asyncio.run(use())


def settle_and_die(store: PostgresStore, lease: Lease) -> None:
    url = postgres_server.server().url
    words = [store._options.schema, url, lease.task_id, str(lease.attempt), lease.token]
    died = subprocess.run(
        [sys.executable, "-c", KILLED, *words], env={**os.environ, "HOLDFAST_TEST_PG_URL": url}, check=False
    )
    assert died.returncode == -signal.SIGKILL


@pytest.mark.timeout(300)
def test_a_settle_of_a_member_costs_the_same_in_a_chord_of_any_size() -> None:
    few, many = asyncio.run(buffers_per_settle(FEW)), asyncio.run(buffers_per_settle(MANY))
    print(f"buffers per settle of a member: {few:.1f} of {FEW}, {many:.1f} of {MANY}")
    assert many <= 1.5 * few


async def buffers_per_settle(members: int, settles: int = 20) -> float:
    """Of everything that a settle does, by the server's own count."""
    async with opened(statement_timeout=300) as store, somebody_else(store) as other:
        await store.submit(chord(members))
        claims = (await store.claim(request(limit=settles + 5))).claims
        for claim in claims[settles:]:
            await settled(store, [claim])  # plans are made, catalogs are known
        before = await touched(store, other)
        for claim in claims[:settles]:
            await settled(store, [claim])
        return (await touched(store, other) - before) / settles


async def touched(store: PostgresStore, other: Any) -> int:
    """Buffers of our tables and indexes that were touched since the schema was made."""
    await store._opened.writer.run(lambda session: session.conn.execute("select pg_stat_force_next_flush()"))
    return int(
        await other.fetchval(
            "select sum(heap_blks_read + heap_blks_hit + coalesce(idx_blks_read + idx_blks_hit, 0))"
            " from pg_statio_user_tables where schemaname = current_schema()"
        )
    )


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_chord_of_a_hundred_thousand_is_drained_and_its_finalizer_runs() -> None:
    async def use() -> None:
        async with opened(statement_timeout=300) as store:
            tasks = chord(MANY)
            await store.submit(tasks)
            for _ in range(0, MANY, 1000):
                await settled(store, (await store.claim(request(limit=1000))).claims)
            claim = await claim_one(store)
            assert claim.task_id == tasks[-1].id
            ends = await store.parents(claim.task_id, after=MANY - 3, limit=10)
            assert [end.task_id for end in ends] == [task.id for task in tasks[-4:-1]]

    asyncio.run(use())


# Very many dependents


SIZES = [2000, pytest.param(MANY, marks=[pytest.mark.soak, pytest.mark.timeout(1200)])]


async def advanced(store: PostgresStore) -> int:
    """To the end; the number of steps."""
    steps = 0
    while done := await store.advance(limit=STEP, actor="worker-1"):
        assert done <= STEP
        steps += 1
    return steps


async def cut_in_the_middle_of_a_step(store: PostgresStore, other: Any) -> None:
    """Its connection is cut while it waits for a row of its batch: it has locked and counted the others before."""
    waiting = "select id from tasks where queue = 'later' and status in ('waiting', 'canceled')"
    async with held(other, f"{waiting} order by id desc limit 1"):
        step = asyncio.create_task(store.advance(limit=10 * MANY, actor="worker-1"))
        await until_waiting(other, 1)
        assert store._opened.writer._conn is not None
        await postgres_server.end_sessions([store._opened.writer._conn])
        with pytest.raises(StoreUnavailable):
            await step


Act = Callable[[PostgresStore, NewTask], Awaitable[None]]


async def complete(store: PostgresStore, root: NewTask) -> None:
    await settled(store, [await claim_one(store, task_id=root.id)])


async def fail(store: PostgresStore, root: NewTask) -> None:
    await settled(store, [await claim_one(store, task_id=root.id)], BROKEN)


async def requeue(store: PostgresStore, root: NewTask) -> None:
    await store.amend(Change.REQUEUE, [root.id], actor="operator")


@pytest.mark.parametrize("dependents", SIZES)
def test_very_many_dependents_follow_in_steps_also_when_one_is_cut(dependents: int) -> None:
    """A step that is cut has done nothing; whoever comes next goes on where the last whole one ended."""

    async def use() -> None:
        async with opened(statement_timeout=300) as store, somebody_else(store) as other:
            root, *rest = fan(dependents)
            await store.submit([root, *rest])
            life: list[tuple[Act, str]] = [(fail, "canceled"), (requeue, "waiting"), (complete, "queued")]
            before = "waiting"
            for act, after in life:
                await act(store, root)
                inline = (await counts(store, "later")).get(after, 0)
                assert inline <= INLINE_EACH
                assert await store.advance(limit=STEP, actor="worker-1") == STEP
                reached = {before: dependents - inline - STEP, after: inline + STEP}
                assert await counts(store, "later") == reached
                await cut_in_the_middle_of_a_step(store, other)
                assert await counts(store, "later") == reached
                assert await advanced(store) == ceil(reached[before] / STEP)
                assert await counts(store, "later") == {after: dependents}
                before = after
            told = ["task.enqueued", "task.canceled", "task.rearmed", "task.ready"]
            assert [await kinds(store, one) for one in (rest[0], rest[-1])] == [told, told]
            assert await other.fetchval("select count(*) from advances") == 0
            assert await other.fetchval("select count(*) from events where kind = 'task.ready'") == dependents

    asyncio.run(use())


def test_a_requeue_overtakes_the_cascade_of_the_failure() -> None:
    """1. A task fails; some of those that wait for it are canceled. 2. It is requeued, and re-arms these. 3. What was
    left of the failure means nothing any more. 4. It completes before all are re-armed: they run all the same."""

    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            root, *rest = fan(4 * STEP)
            await store.submit([root, *rest])
            await fail(store, root)
            await store.advance(limit=2 * STEP, actor="worker-1")
            assert await counts(store, "later") == {"waiting": 2 * STEP, "canceled": 2 * STEP}
            await requeue(store, root)
            await store.advance(limit=STEP, actor="worker-1")
            assert (await counts(store, "later"))["canceled"] in range(1, STEP + 1)
            await complete(store, root)
            await advanced(store)
            assert await counts(store, "later") == {"queued": 4 * STEP}
            assert await other.fetchval("select count(*) from advances") == 0

    asyncio.run(use())


def test_two_workers_that_advance_at_once_do_each_dependent_once() -> None:
    async def use() -> None:
        async with opened() as first, opened(first._options.schema) as second, somebody_else(first) as other:
            fans = [fan(STEP), fan(STEP), fan(STEP)]
            for root, *rest in fans:
                await first.submit([root, *rest])
                await complete(first, root)

            async def work(store: PostgresStore) -> int:
                return sum([await store.advance(limit=70, actor="worker-1") for _ in range(30)])

            assert sum(await asyncio.gather(work(first), work(second))) == 3 * STEP
            assert await counts(first, "later") == {"queued": 3 * STEP}
            assert await other.fetchval("select count(*) from events where kind = 'task.ready'") == 3 * STEP

    asyncio.run(use())


# Failures that meet a requeue


def test_a_failure_and_the_requeue_of_another_parent_agree_in_either_order() -> None:
    """1. Q has failed, so C is canceled because of it; P, its other parent, runs. 2. Q is requeued and P fails; both
    stand before C. 3. Whoever is first, C ends canceled because of P: the requeue saw P as failed, or P found C
    waiting."""

    async def use(first: str) -> None:
        async with opened() as store, opened(store._options.schema) as beside, somebody_else(store) as other:
            q, p, c = ids.task_ids(3)
            tasks = [new_task(id=q, run_id=q), new_task(id=p, run_id=q), new_task(id=c, run_id=q, parents=(q, p))]
            await store.submit(tasks)
            await settled(store, [await claim_one(store, task_id=q)], BROKEN)
            running = await claim_one(store, task_id=p)
            acts: dict[str, Callable[[PostgresStore], Coroutine[Any, Any, Any]]] = {
                "requeue": lambda on: on.amend(Change.REQUEUE, [q], actor="operator"),
                "fail": lambda on: settled(on, [running], BROKEN),
            }
            (second,) = acts.keys() - {first}
            async with held(other, "select from tasks where id = $1", c):
                one = asyncio.create_task(acts[first](store))
                await until_waiting(other, 1)
                two = asyncio.create_task(acts[second](beside))
                await until_waiting(other, 2)
            await asyncio.gather(one, two)
            found = await store.get(c)
            assert found is not None
            assert (found.status, found.canceled_because) == (TaskStatus.CANCELED, p)

    asyncio.run(use("requeue"))
    asyncio.run(use("fail"))


def test_two_parents_that_are_requeued_at_once_re_arm_their_child() -> None:
    """1. P and Q have failed, so C is canceled because of P; D because of Q. 2. Q is requeued; it has seen that D is
    all that ended because of it, and waits for D. 3. P is requeued. It must not take Q for failed: nobody would look at
    C again. 4. Q goes on."""

    async def use() -> None:
        async with opened() as first, opened(first._options.schema) as second, somebody_else(first) as other:
            p, q, c, d = two_parents()
            await first.submit([p, q, c, d])
            for _ in range(2):
                await settled(first, [await claim_one(first)], BROKEN)
            assert await reasons(first, c, d) == [p.id, q.id]
            async with held(other, "select from tasks where id = $1", d.id):
                under_way = asyncio.create_task(second.amend(Change.REQUEUE, [q.id], actor="them"))
                await until_waiting(other, 1)
                await first.amend(Change.REQUEUE, [p.id], actor="us")
            await under_way
            await advanced(first)
            assert [await status(first, task) for task in (c, d)] == ["waiting", "waiting"]
            assert await reasons(first, c, d) == [None, None]

    asyncio.run(use())


def two_parents() -> list[NewTask]:
    """P and Q; C, which waits for both; D, which waits for Q."""
    p, q, c, d = ids.task_ids(4)
    return [
        new_task(id=p, run_id=p),
        new_task(id=q, run_id=p),
        new_task(id=c, run_id=p, parents=(p, q)),
        new_task(id=d, run_id=p, parents=(q,)),
    ]


async def reasons(store: PostgresStore, *tasks: NewTask) -> list[str | None]:
    """Because of which tasks these are canceled."""
    found = [await store.get(task.id) for task in tasks]
    return [task.canceled_because for task in found if task is not None]


def test_a_requeue_looks_again_after_it_had_to_wait() -> None:
    """1. Y has failed and took M with it; X too, and took C, which also waits for M, and one with many parents. 2. X is
    requeued: C goes to Y's account, because of M; then X waits for the one with many parents. 3. Y is requeued. It has
    seen that M is all that ended because of it, and waits for M, which X holds. 4. X commits. 5. Y finds C too."""

    async def use() -> None:
        async with opened() as first, opened(first._options.schema) as second, somebody_else(first) as other:
            x, y, *rest = ids.task_ids(BUCKETS_FROM + 5)
            *others, m, c, many = rest
            tasks = [new_task(id=task_id, run_id=x) for task_id in (x, y)]
            tasks += [new_task(id=task_id, run_id=x, queue="later") for task_id in others]
            tasks += [
                new_task(id=m, run_id=x, parents=(y,)),
                new_task(id=c, run_id=x, parents=(x, m)),
                new_task(id=many, run_id=x, parents=(x, *others)),
            ]
            await first.submit(tasks)
            for task_id in (x, y):
                await settled(first, [await claim_one(first, task_id=task_id)], BROKEN)
            assert await reasons(first, *tasks[-3:]) == [y, x, x]
            async with held(other, "select from tasks where id = $1", many):
                one = asyncio.create_task(first.amend(Change.REQUEUE, [x], actor="us"))
                await until_waiting(other, 1)
                two = asyncio.create_task(second.amend(Change.REQUEUE, [y], actor="them"))
                await until_waiting(other, 2)
            await asyncio.gather(one, two)
            await advanced(first)
            assert [await status(first, task) for task in tasks[-3:]] == ["waiting"] * 3

    asyncio.run(use())


def test_who_fails_fast_waits_for_nobody() -> None:
    """1. A handler completes M in a transaction of its own, which is open. 2. Another member of its name fails: what is
    free ends with it, M is passed by. 3. The transaction is rolled back. 4. The next look asks M to stop."""

    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            m, broken, idle, busy = (new_task(run_id="r", fail_fast="all") for _ in range(4))
            await store.submit([m, broken, idle, busy])
            await claim_one(store, task_id=m.id)
            await claim_one(store, task_id=busy.id)
            claim = await claim_one(store, task_id=broken.id)
            async with held(other, "select from tasks where id = $1", m.id):
                await settled(store, [claim], BROKEN)
                assert await status(store, idle) == "canceled"
                assert await store.advance(limit=STEP, actor="worker-1") == 0
            await advanced(store)
            for asked in (m, busy):
                assert await kinds(store, asked) == ["task.enqueued", "task.running", "task.cancel_requested"]
            assert await other.fetchval("select count(*) from advances") == 0

    asyncio.run(use())


# Transactions of others


@pytest.mark.parametrize("members", [2, 100])
def test_a_workflow_is_submitted_and_its_members_are_completed_in_transactions_of_others(members: int) -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            tasks = chord(members)
            await store.now()
            joined = (await store.joining()).into(other)
            for _ in range(2):  # the second time all of it is known
                async with other.transaction():
                    answers = await joined.asubmit(tasks)
                assert all(answer.created for answer in answers)
            found = await store.get(tasks[-1].id)
            assert found is not None
            assert (found.status, found.parents) == (TaskStatus.WAITING, [task.id for task in tasks[:-1]])
            for claim in (await store.claim(request(limit=members))).claims:
                async with other.transaction():
                    await joined.acomplete(Settlement(claim.lease, Completed()))
                await settled(store, [claim], Recorded())
            assert await kinds(store, tasks[-1]) == ["task.enqueued", "task.ready"]

    asyncio.run(use())


def test_a_worker_that_dies_after_the_transaction_of_its_handler_leaves_the_rest_to_others() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            tasks = chord(1)
            await store.submit(tasks)
            claim = await claim_one(store)
            async with other.transaction():
                await (await store.joining()).into(other).acomplete(Settlement(claim.lease, Completed()))
            assert await status(store, tasks[-1]) == "waiting"
            assert await store.advance(limit=STEP, actor="worker-1") == 1
            assert await status(store, tasks[-1]) == "queued"

    asyncio.run(use())


# What is kept, and for how long


@pytest.mark.parametrize("key", [None, "k"], ids=["copied", "inserted"])
def test_a_large_chord_is_kept_the_same_however_it_is_written(key: str | None) -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            first, *rest = chord(300)
            tasks = [new_task(id=first.id, run_id=first.run_id, idempotency_key=key), *rest]
            await store.submit(tasks)
            assert [one.created for one in await store.submit(tasks)] == [True] * 301
            found = await store.get(tasks[-1].id)
            assert found is not None
            assert found.parents == [task.id for task in tasks[:-1]]
            rows = await other.fetch("select bucket, open from buckets order by bucket")
            assert [tuple(row) for row in rows] == [*((n, 18) for n in range(16)), (16, 12)]
            assert await other.fetchval("select pending from tasks where parents > 0") == 17
            assert await other.fetchval("select max(pg_column_size(t)) from tasks t") < 1000

    asyncio.run(use())


def test_nothing_of_a_workflow_is_left_when_its_tasks_are_gone() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            tasks = chord(100)
            await store.submit(tasks)
            claims = (await store.claim(request(limit=100))).claims
            await store.record_step(claims[0].lease, "pay", "1")
            await settled(store, claims)
            await settled(store, [await claim_one(store)])
            assert await store.prune(Retention(completed=timedelta(0)), limit=1000) == 101
            for table in ("tasks", "edges", "buckets", "steps", "advances"):
                assert await other.fetchval(f"select count(*) from {table}") == 0, table

    asyncio.run(use())


def test_a_task_whose_failed_parent_is_gone_is_not_left_waiting_for_it() -> None:
    async def use(members: int) -> None:
        async with opened() as store:
            tasks = chord(members)
            await store.submit(tasks)
            broken, *rest = (await store.claim(request(limit=members))).claims
            await settled(store, [broken], BROKEN)
            await settled(store, rest)
            await store.amend(Change.DELETE, [broken.task_id], actor="operator")
            (refusal,) = await store.amend(Change.REQUEUE, [tasks[-1].id], actor="operator")
            assert broken.task_id in str(refusal)
            assert await status(store, tasks[-1]) == "canceled"

    asyncio.run(use(2))
    asyncio.run(use(100))
