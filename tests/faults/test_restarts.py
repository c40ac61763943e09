"""The server goes away under a working worker, in every way it can, and the worker goes on by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast, Retention, health
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StoreUnavailable
from holdfast.events.facts import LeaseWasLost, PartFailed, StoreAway
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from tests.acceptance.crash_worker import Orders
from tests.acceptance.processes import killed_at_the_end, ledger_of, start_worker
from tests.faults.load import Producer, check_load, declare, wait_until_all_ended
from tests.postgres_cluster import How, Node, fresh_node
from tests.runtime.support import Crew, wait_until

FOREVER = Retention(None, None, None)
TERMINATIONS = 60


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    with fresh_node(max_connections="20") as made:
        yield made


@contextmanager
def under_load(url: str, **options: Any) -> Iterator[tuple[Crew, Producer]]:
    """A worker and a producer while the block lasts; afterwards all that was acknowledged has ended as it should."""
    schema = f"load_{SYSTEM_CLOCK.micros()}"
    with Holdfast(url, schema=schema, retention=FOREVER, **options) as app:
        ran = declare(app)
        with Crew(app, concurrency=10) as crew:
            with Producer(app) as producer:
                producer.wait_for_more()
                yield crew, producer
                producer.wait_for_more()
            wait_until_all_ended(app)
        check_load(lambda: PostgresStore(parsed(url, {"schema": schema}), SYSTEM_CLOCK), producer.acknowledged, ran)
    assert crew.raised is None
    assert not crew.of(PartFailed)
    assert not crew.of(LeaseWasLost)


def test_nobody_waits_long_between_two_tries() -> None:
    """What bounds the time from the return of a server to the first call that finds it."""
    assert health.LONGEST_PAUSE_SECONDS * 1.5 < 2


@pytest.mark.parametrize("how", ["fast", "immediate", "kill"])
def test_a_restart_costs_a_worker_nothing(node: Node, how: How) -> None:
    with under_load(node.url) as (_, producer):
        for _ in range(3):
            node.restart(how)
            producer.wait_for_more()


def test_a_worker_whose_sessions_are_ended_again_and_again_goes_on(node: Node) -> None:
    ended = 0
    with under_load(node.url) as (_, producer):
        while ended < TERMINATIONS:
            ended += node.end_sessions()
            producer.wait_for_more()


def test_a_worker_waits_for_a_free_connection(node: Node) -> None:
    """1. Others take every connection, also ours. 2. None of ours can come back. 3. They go, and the worker goes on."""
    ours = "from pg_stat_activity where application_name like 'holdfast%'"

    async def exhaust() -> None:
        admin = await asyncpg.connect(node.url)
        others = []
        store = PostgresStore(parsed(node.url, {}), SYSTEM_CLOCK)
        try:
            while True:
                await admin.execute(f"select pg_terminate_backend(pid) {ours}")
                try:
                    others.append(await asyncpg.connect(node.url))
                except asyncpg.TooManyConnectionsError:
                    if not await admin.fetchval(f"select count(*) {ours}"):
                        break
            with pytest.raises(StoreUnavailable, match="it has no connection left; raise max_connections"):
                await store.now()
        finally:
            for conn in (*others, admin):
                await conn.close()

    with under_load(node.url) as (crew, producer):
        asyncio.run(exhaust())
        crew.wait_for(StoreAway)
        producer.wait_for_more()


def test_a_worker_waits_for_a_table_that_is_locked(node: Node) -> None:
    async def lock(crew: Crew, schema: str) -> None:
        conn = await asyncpg.connect(node.url)
        try:
            async with conn.transaction():
                await conn.execute(f"lock table {schema}.tasks in access exclusive mode")
                await asyncio.to_thread(crew.wait_for, StoreAway)
        finally:
            await conn.close()

    with under_load(node.url, statement_timeout=0.3) as (crew, producer):
        schema = node.ask("select max(nspname) from pg_namespace where nspname like 'load%'")
        asyncio.run(lock(crew, schema))
        producer.wait_for_more()


# C6.8, with real worker processes


def claimed_until(app: Holdfast, task_id: str) -> datetime:
    expires_at = app.tasks.get(task_id).lease_expires_at
    assert expires_at is not None
    return expires_at


@pytest.mark.parametrize("how", ["fast", "kill"])
def test_an_outage_longer_than_a_lease_costs_no_running_task_a_failure(node: Node, tmp_path: Path, how: How) -> None:
    """1. A task runs. 2. The server is away for longer than its lease. 3. Another worker, new, is there first as

    often as not, and reaps. 4. The task ends, in its first attempt.
    """
    url = f"{node.url}?schema=outage_{how}"
    orders = Orders(url=url, ledger=str(tmp_path / "ledger"), lease=1.5)
    with Holdfast(url) as app:
        handles = [app.using(max_attempts=0).enqueue("slow", str(tmp_path / "gate")) for _ in range(3)]
        with killed_at_the_end(start_worker(orders, log=tmp_path / "log")):
            wait_until(lambda: len(ledger_of(tmp_path / "ledger")) == 3, "all to run")
            until = max(claimed_until(app, handle.id) for handle in handles)
            node.stop(how)
            with killed_at_the_end(start_worker(orders, log=tmp_path / "log")):
                # Heartbeats were under way: the lease may have been extended once more.
                wait_until(lambda: datetime.now(UTC) > until + timedelta(seconds=1.5 + 0.5), "the leases to run out")
                node.start()
                wait_until(
                    lambda: min(claimed_until(app, handle.id) for handle in handles) > until + timedelta(seconds=2)
                )
                (tmp_path / "gate").touch()
                wait_until(lambda: all(handle.task().status.terminal for handle in handles), "all to end")
        for handle in handles:
            task = handle.task()
            assert (task.status, task.attempt, task.failures) == ("completed", 1, 0), (tmp_path / "log").read_text()


def test_the_work_of_a_killed_worker_does_not_wait_for_its_lease(node: Node, tmp_path: Path) -> None:
    """Its leases are 60 s long; the server tells the others that its session is gone (C6.7)."""
    url, ledger = f"{node.url}?schema=killed", tmp_path / "ledger"
    orders = Orders(url=url, ledger=str(ledger), lease=60, concurrency=1)
    with Holdfast(url) as app:
        handle = app.using(max_attempts=0).enqueue("slow", str(tmp_path / "gate"))
        with killed_at_the_end(start_worker(orders, log=tmp_path / "log")) as process:
            wait_until(lambda: ledger_of(ledger)[handle.id] == [1])
            with killed_at_the_end(start_worker(orders, log=tmp_path / "log")):
                wait_until(lambda: len(app.workers.list()) == 2)
                process.kill()
                process.wait()
                (tmp_path / "gate").touch()
                wait_until(lambda: handle.task().status.terminal)
        task = handle.task()
        assert (task.status, task.attempt, task.failures) == ("completed", 2, 1)
        assert ledger_of(ledger)[handle.id] == [1, 2]
