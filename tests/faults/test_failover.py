"""Two servers, a primary and a synchronous standby, one URL: the primary dies, is demoted, or is only cut off."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.events.facts import StoreAway
from holdfast.model.outcome import Completed, Settlement
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from tests.acceptance.crash_worker import Orders
from tests.acceptance.processes import killed_at_the_end, ledger_of, start_worker
from tests.faults.test_restarts import claimed_until, under_load
from tests.postgres_cluster import Node, fresh_node
from tests.runtime.support import wait_until
from tests.stores.postgres_support import claim_one, new_task, request

FAILOVERS = 30


@contextmanager
def pair(*, synchronous: bool = True) -> Iterator[tuple[Node, Node]]:
    """A primary and its standby."""
    with fresh_node() as primary:
        standby = primary.copied()
        if synchronous:
            primary.wait_for_standby()
        yield primary, standby


def both(*nodes: Node) -> str:
    return f"postgresql://postgres@{','.join(node.address for node in nodes)}/postgres"


def handle(url: str) -> PostgresStore:
    return PostgresStore(parsed(url, {}), SYSTEM_CLOCK)


def test_a_worker_moves_to_the_promoted_standby() -> None:
    """1. The primary is killed. 2. The standby is promoted. 3. Nothing acknowledged is lost, nothing doubled."""
    with pair() as (primary, standby), under_load(both(primary, standby)) as (_, producer):
        primary.stop("kill")
        standby.promote()
        producer.wait_for_more()


@pytest.mark.soak
def test_a_worker_moves_to_and_fro_many_times() -> None:
    with pair() as (primary, standby), under_load(both(primary, standby)) as (_, producer):
        for _ in range(FAILOVERS):
            primary.stop("kill")
            standby.promote()
            producer.wait_for_more()
            primary, standby = standby, primary
            standby.follow(primary)
            primary.wait_for_standby()


def test_a_worker_leaves_a_demoted_primary_that_goes_on_answering() -> None:
    """1. The old primary is fenced: alive, connections open, read-only. 2. The standby is promoted."""
    with pair() as (primary, standby), under_load(both(primary, standby)) as (_, producer):
        primary.set("default_transaction_read_only", "on")
        standby.promote()
        producer.wait_for_more()
        wait_until(
            lambda: primary.ask("select count(*) from pg_stat_activity where application_name = 'holdfast'") == 0,
            "every connection to leave",
        )


def test_a_server_that_is_read_only_for_a_while_is_waited_for() -> None:
    with fresh_node() as node, under_load(node.url) as (crew, producer):
        node.set("default_transaction_read_only", "on")
        assert "takes no writes" in crew.wait_for(StoreAway).error
        node.set("default_transaction_read_only", "off")
        producer.wait_for_more()


def test_an_outage_by_failover_costs_no_running_task_a_failure(tmp_path: Path) -> None:
    """As after a restart (test_restarts.py), but the server that takes over has been running all the time."""
    with pair() as (primary, standby):
        url = both(primary, standby)
        orders = Orders(url=url, ledger=str(tmp_path / "ledger"), lease=1.5)
        with Holdfast(url) as app:
            handle = app.using(max_attempts=0).enqueue("slow", str(tmp_path / "gate"))
            with killed_at_the_end(start_worker(orders, log=tmp_path / "log")):
                wait_until(lambda: ledger_of(tmp_path / "ledger")[handle.id] == [1], "it to run")
                until = claimed_until(app, handle.id)
                primary.stop("kill")
                with killed_at_the_end(start_worker(orders, log=tmp_path / "log")):
                    wait_until(lambda: datetime.now(UTC) > until + timedelta(seconds=2), "the lease to run out")
                    standby.promote()
                    app.enqueue("somebody else's", 1)
                    wait_until(lambda: claimed_until(app, handle.id) > until + timedelta(seconds=2))
                    (tmp_path / "gate").touch()
                    wait_until(lambda: handle.task().status.terminal, "it to end")
            task = handle.task()
            assert (task.status, task.attempt, task.failures) == ("completed", 1, 0), (tmp_path / "log").read_text()


def test_an_attempt_that_only_the_dead_primary_knew_is_fenced_off() -> None:
    """1. The standby stops following. 2. A claim. 3. The primary dies and the standby takes over, without the claim.

    4. The same attempt, by number, is granted again. 5. The first holder settles, and is refused.
    """

    async def use(primary: Node, standby: Node) -> None:
        store = handle(both(primary, standby))
        await store.submit([new_task()])
        sent = "select pg_current_wal_lsn()"
        wait_until(lambda: standby.ask("select pg_last_wal_replay_lsn() >= $1::pg_lsn", primary.ask(sent)))
        standby.set("primary_conninfo", "''")
        wait_until(lambda: primary.ask("select count(*) from pg_stat_replication") == 0, "the standby to stop")
        lost = await claim_one(store)
        while store._fronts.known()[0].place.run_at <= lost.claimed_at:
            await store.reap(limit=1, actor="reaper")  # until this process takes what is below for worked off
        primary.stop("kill")
        standby.promote()
        with pytest.raises(StoreUnavailable):
            await store.reap(limit=1, actor="reaper")
        again = await claim_one(store)
        assert (lost.task_id, lost.lease.attempt) == (again.task_id, again.lease.attempt) == (again.task_id, 1)
        (told,) = await store.settle([Settlement(lost.lease, Completed('"old"'))])
        assert isinstance(told, LeaseLost)
        await store.settle([Settlement(again.lease, Completed('"new"'))])
        task = await store.get(again.task_id)
        assert task is not None
        assert task.result == "new"
        await store.close()

    with pair(synchronous=False) as (primary, standby):
        asyncio.run(use(primary, standby))


def test_a_standby_alone_is_refused_in_words() -> None:
    async def use(standby: Node) -> None:
        store = handle(standby.url)
        with pytest.raises(StoreUnavailable, match="takes no writes, as a standby or a demoted primary"):
            await store.submit([new_task()])
        with pytest.raises(StoreUnavailable, match="takes no writes"):
            await store.now()
        await store.close()

    with pair(synchronous=False) as (_, standby):
        asyncio.run(use(standby))


def test_a_host_that_never_answers_does_not_hide_the_next() -> None:
    """As of a machine that is switched off: nobody accepts, nobody refuses."""

    async def use(silent: str, node: Node) -> None:
        store = handle(f"postgresql://postgres@{silent},{node.address}/postgres")
        await store.submit([new_task()])
        assert (await store.claim(request())).claims
        await store.close()

    with socket.socket() as hole, fresh_node() as node:
        hole.bind(("127.0.0.1", 0))
        hole.listen()
        asyncio.run(use(f"127.0.0.1:{hole.getsockname()[1]}", node))
