"""What only the PostgreSQL store has to prove: locks of others, the order of events, counts, sessions that end."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.model.claim import Extended, Lease
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.query import Retention
from holdfast.stores.postgres.database import LOCK_SECONDS
from holdfast.stores.postgres.store import FOLD_ROWS
from holdfast.testing.conformance.subject import worker_info
from holdfast.testing.virtual_clock import VirtualClock
from tests import postgres_server
from tests.stores.postgres_support import claim_one, new_task, opened, request, somebody_else

TELL = "insert into events (task_id, at, kind, actor) values (gen_random_uuid(), now(), $1, 'somebody')"
FOREVER = Retention(None, None, None)
MANY = FOLD_ROWS + 10


def test_tasks_that_others_lock_do_not_hide_those_of_lower_priority() -> None:
    """1. Somebody locks the best task. 2. A claim finds it, cannot have it, and has looked no further. 3. It does."""

    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            best, second = new_task(priority=1), new_task()
            await store.submit([best, second])
            async with other.transaction():
                await other.execute("select from tasks where id = $1 for update", best.id)
                assert (await claim_one(store)).task_id == second.id
            assert (await claim_one(store)).task_id == best.id

    asyncio.run(use())


def test_a_reader_of_all_events_waits_for_a_transaction_that_commits_late() -> None:
    """1. A slow transaction draws an event id. 2. A later one draws the next and commits. 3. The reader sees neither,

    until the slow one has ended: then it sees both, in order. Also where the slow one's number is the higher: it began
    to write later, and still drew its id first.
    """

    async def use() -> None:
        async with opened() as store, somebody_else(store) as slow, somebody_else(store) as quick:
            await store.submit([new_task()])
            (first,) = await store.events(None, after=0, limit=10)
            old = quick.transaction()
            await old.start()
            await quick.execute("select pg_current_xact_id()")
            late = slow.transaction()
            await late.start()
            await slow.execute(TELL, "late")
            await quick.execute(TELL, "quick")
            await old.commit()
            new = new_task()
            await store.submit([new])
            assert await store.events(None, after=first.id, limit=10) == []
            assert len(await store.events(new.id, after=0, limit=10)) == 1, "its own reader need not wait"
            await late.commit()
            kinds = [event.kind for event in await store.events(None, after=first.id, limit=10)]
            assert kinds == ["late", "quick", "task.enqueued"]

    asyncio.run(use())


def test_a_reader_of_all_events_waits_for_nobody_who_does_not_write_them() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            await store.submit([new_task()])
            async with other.transaction():
                await other.execute("create table elsewhere (n integer)")
                await other.execute("lock table events in share update exclusive mode")  # as a vacuum has
                assert len(await store.events(None, after=0, limit=10)) == 1

    asyncio.run(use())


def test_counts_are_folded_and_stay_right() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            for _ in range(5):
                await store.submit([new_task(), new_task(queue="mail")])
            claim = await claim_one(store, queues=("mail",))
            await store.settle([Settlement(claim.lease, Completed())])
            before = await store.queues()
            await store.prune(FOREVER, limit=10)
            assert await other.fetchval("select count(*) from counts") == 2
            assert await store.queues() == before
            assert before[1].counts == {"queued": 4, "completed": 1}
            assert {question: well for question, well, _ in await store.check()}["counts"] is True

    asyncio.run(use())


def test_counts_that_nobody_folds_are_folded_by_who_reads_them() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            await store.submit([new_task()])
            await other.execute("insert into counts (queue) select 'default' from generate_series(1, $1)", MANY)
            assert (await store.queues())[0].counts == {"queued": 1}
            assert await other.fetchval("select count(*) from counts") == 1

    asyncio.run(use())


def test_a_known_key_does_not_cost_the_connection() -> None:
    async def use() -> None:
        async with opened() as store:
            await store.submit([new_task(idempotency_key="k")])
            conn = store._opened.writer._conn
            assert not (await store.submit([new_task(idempotency_key="k")]))[0].created
            assert store._opened.writer._conn is conn

    asyncio.run(use())


def test_a_session_that_was_ended_is_replaced() -> None:
    async def use() -> None:
        async with opened() as store:
            await store.submit([new_task()])
            await postgres_server.end_sessions([store._opened.writer._conn])
            await store.submit([new_task()])
            assert (await store.queues())[0].counts == {"queued": 2}

    asyncio.run(use())


def test_a_row_that_is_locked_for_too_long_makes_the_store_unavailable() -> None:
    async def use() -> None:
        async with opened(statement_timeout=0.2) as store, somebody_else(store) as other:
            await store.submit([new_task()])
            claim = await claim_one(store)
            async with other.transaction():
                await other.execute("select from tasks for update")
                with pytest.raises(StoreUnavailable, match="took too long"):
                    await store.settle([Settlement(claim.lease, Completed())])
            await store.settle([Settlement(claim.lease, Completed())])

    asyncio.run(use())


def test_a_heartbeat_passes_by_a_row_that_is_locked_and_extends_the_others() -> None:
    """A row is locked for long by its own handler's completion: its lease may run out, and is not said to be lost."""

    async def use() -> None:
        clock = VirtualClock()
        async with opened(clock=clock) as store, somebody_else(store) as other:
            await store.submit([new_task(), new_task()])
            locked, free = await claim_one(store), await claim_one(store)
            strange = Lease(locked.task_id, locked.lease.attempt, free.lease.token)
            async with other.transaction(), asyncio.timeout(LOCK_SECONDS):
                await other.execute("select from tasks where id = $1 for update", locked.task_id)
                clock.advance(timedelta(seconds=20))
                as_it_stands, extended, lost = await store.extend([locked.lease, free.lease, strange])
                assert as_it_stands == Extended(locked.lease_expires_at, cancel_requested=False)
                assert isinstance(extended, Extended)
                assert extended.expires_at - free.lease_expires_at == timedelta(seconds=20)
                assert isinstance(lost, LeaseLost)
                clock.advance(timedelta(seconds=45))
                assert await store.extend([locked.lease]) == [as_it_stands]
            assert isinstance((await store.extend([locked.lease]))[0], LeaseLost)

    asyncio.run(use())


def test_leases_that_ran_out_before_the_server_started_hold_for_one_length_more() -> None:
    """As after a restart: the lease ran out, nothing was written since, and the server's start is later."""

    async def use() -> None:
        async with opened() as store, somebody_else(store) as other:
            await store.submit([new_task(), new_task()])
            kept, lost = (await store.claim(request(limit=2))).claims
            await other.execute("update events set at = pg_postmaster_start_time() - interval '1 hour'")
            age = "update tasks set lease_expires_at = pg_postmaster_start_time() - $1::interval where id = $2"
            await other.execute(age, timedelta(minutes=30), kept.task_id)
            await other.execute(age, timedelta(hours=2), lost.task_id)
            async with opened(store._options.schema) as back:
                told = await back.settle([Settlement(kept.lease, Completed()), Settlement(lost.lease, Completed())])
                assert isinstance(told[1], LeaseLost)
                assert not isinstance(told[0], Exception)

    asyncio.run(use())


def test_a_worker_is_not_evicted_within_its_grace() -> None:
    async def use() -> None:
        async with opened(evict_grace=3600) as store, opened(store._options.schema, evict_grace=0) as strict:
            await store.enroll(worker_info("worker-1"))
            assert await strict.evict(actor="reaper") == []
            await postgres_server.end_sessions([store._opened.keeper._conn])
            async with opened(store._options.schema, evict_grace=3600) as patient:
                assert await patient.evict(actor="reaper") == []
            assert await store.evict(actor="reaper") == [], "it comes back under another lock"
            assert await strict.evict(actor="reaper") == []

    asyncio.run(use())
