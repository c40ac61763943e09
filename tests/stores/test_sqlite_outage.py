"""C6.8: leases that ran out while the file could not be written, and what is no evidence of that."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from holdfast import ids
from holdfast.clock import from_micros
from holdfast.errors import LeaseLost, TaskNotFound
from holdfast.model.claim import Claim, Extended, Lease
from holdfast.stores.sqlite.outage import SHORTEST_MICROS, TRAIL_MICROS, Outage
from holdfast.stores.sqlite.patience import Patience
from holdfast.stores.sqlite.store import SQLiteStore
from holdfast.testing.virtual_clock import VirtualClock
from tests.stores.sqlite_support import claim_one, new_task, opened
from tests.stores.test_sqlite_engine import Blocked

LEASE_SECONDS = 30.0


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Blocked:
    return Blocked(monkeypatch)


@asynccontextmanager
async def claimed(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[tuple[SQLiteStore, Claim, sqlite3.Connection]]:
    """A running task, and somebody else's connection to the file."""
    path = tmp_path / "tasks.db"
    async with opened(path, clock) as store:
        await store.submit([new_task(lease=LEASE_SECONDS)])
        claim = await claim_one(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            yield store, claim, other


async def extended(store: SQLiteStore, claim: Claim) -> Extended | Exception:
    (answer,) = await store.extend([claim.lease])
    return answer


def test_a_heartbeat_that_was_kept_waiting_past_its_lease_is_in_time(tmp_path: Path, blocked: Blocked) -> None:
    clock = VirtualClock()

    async def use() -> None:
        async with claimed(tmp_path, clock) as (store, claim, other):
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(extended(store, claim))
            await blocked.met()
            clock.advance(10 * LEASE_SECONDS)
            other.execute("COMMIT")
            answer = await waiting
            assert isinstance(answer, Extended)
            assert answer.expires_at == from_micros(clock.micros() + int(LEASE_SECONDS * 1_000_000))

    asyncio.run(use())


def test_a_clock_that_jumps_is_no_outage(tmp_path: Path) -> None:
    clock = VirtualClock()

    async def use() -> None:
        async with claimed(tmp_path, clock) as (store, claim, _):
            clock.advance(10 * LEASE_SECONDS)
            assert isinstance(await extended(store, claim), LeaseLost)
            assert len(await store.reap(limit=10, actor="reaper")) == 1

    asyncio.run(use())


def test_a_process_that_stood_still_while_it_waited_saw_no_outage(
    tmp_path: Path, blocked: Blocked, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = VirtualClock()
    wait = Patience.wait

    def stopped_meanwhile(waiting: Patience) -> None:
        wait(waiting)
        waiting.suspended = True

    async def use() -> None:
        async with claimed(tmp_path, clock) as (store, claim, other):
            other.execute("BEGIN IMMEDIATE")
            monkeypatch.setattr(Patience, "wait", stopped_meanwhile)
            waiting = asyncio.create_task(extended(store, claim))
            await blocked.met()
            clock.advance(10 * LEASE_SECONDS)
            other.execute("COMMIT")
            assert isinstance(await waiting, LeaseLost)

    asyncio.run(use())


def test_where_somebody_else_wrote_meanwhile_there_was_no_outage(tmp_path: Path, blocked: Blocked) -> None:
    clock = VirtualClock()

    async def use() -> None:
        async with claimed(tmp_path, clock) as (store, claim, other):
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(extended(store, claim))
            await blocked.met()
            clock.advance(10 * LEASE_SECONDS)
            other.execute("UPDATE holdfast_pulse SET last_write_at = ?", (clock.micros() - 1,))
            other.execute("COMMIT")
            assert isinstance(await waiting, LeaseLost)

    asyncio.run(use())


def test_the_repair_holds_although_the_first_call_after_the_outage_is_refused(tmp_path: Path, blocked: Blocked) -> None:
    clock = VirtualClock()

    async def use() -> None:
        async with claimed(tmp_path, clock) as (store, claim, other):
            other.execute("BEGIN IMMEDIATE")
            waiting = asyncio.create_task(store.report(Lease(ids.task_id(), 1, ids.token()), "task.progress", {}))
            await blocked.met()
            clock.advance(10 * LEASE_SECONDS)
            other.execute("COMMIT")
            with pytest.raises(TaskNotFound):
                await waiting
            assert isinstance(await extended(store, claim), Extended)

    asyncio.run(use())


# What counts as one


def test_short_waiting_is_no_outage() -> None:
    outage = Outage()
    outage.seen(0, SHORTEST_MICROS - 1)
    assert outage.window(SHORTEST_MICROS) is None


def test_failed_tries_are_one_outage_until_one_succeeds() -> None:
    outage = Outage()
    outage.seen(0, 1)
    outage.seen(10_000_000, 10_000_001)
    assert outage.window(10_000_002) == (0, 10_000_002)
    outage.over()
    assert outage.window(10_000_002) is None


def test_long_after_the_last_failed_try_nothing_is_known() -> None:
    outage = Outage()
    outage.seen(0, 2_000_000)
    assert outage.window(3_600_000_000) == (0, 2_000_000 + TRAIL_MICROS)
