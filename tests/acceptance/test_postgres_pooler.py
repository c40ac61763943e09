"""Real work through a real PgBouncer, in both of its modes; and what is said where the URL does not name it."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import asyncpg
import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import NotSupported
from holdfast.model.outcome import Completed, Settlement
from holdfast.stores.postgres import faults
from holdfast.stores.postgres.database import HOT, Database
from holdfast.stores.postgres.options import Options, parsed
from holdfast.stores.postgres.store import PostgresStore
from tests import pgbouncer_server, postgres_server
from tests.acceptance.cli_driver import Cli, eventually
from tests.stores.postgres_support import new_task, request

pytestmark = pytest.mark.skipif(pgbouncer_server.BINARY is None, reason=pgbouncer_server.MISSING)


def options(mode: str, **given: Any) -> Options:
    return parsed(pgbouncer_server.started(mode), {"schema": postgres_server.fresh_schema(), **given})


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_workers_work_behind_a_pooler(cli: Cli, mode: str) -> None:
    schema = postgres_server.fresh_schema()
    url = f"{pgbouncer_server.started(mode, size=20)}?schema={schema}&pooler={mode}"
    workers = [cli.start("--app", "shop:app", "--url", url, "worker") for _ in range(2)]
    for worker in workers:
        worker.wait_for("worker.started")
    for number in range(10):
        assert cli("--app", "shop:app", "--url", url, "enqueue", "shop.add", str(number)).code == 0
    assert cli("--app", "shop:app", "--url", url, "enqueue", "shop.steps", "5").code == 0
    eventually(
        lambda: cli("--url", url, "queues", "list", "--json").json["counts"] == {"completed": 11}, "everything is done"
    )
    assert "pooler" in cli("--url", url, "doctor").out
    for worker in workers:
        worker.signal(signal.SIGTERM)
        assert worker.ended() == 0, worker.said


def test_what_neighbours_leave_behind_in_sessions_is_not_found() -> None:
    """1. Three others hold all sessions of the pool and leave their settings in them. 2. We get those sessions."""
    chosen = options("transaction", pooler="transaction")

    async def use() -> None:
        neighbours = [await asyncpg.connect(chosen.dsn, statement_cache_size=0) for _ in range(3)]
        for neighbour in neighbours:
            await neighbour.execute("begin; set search_path = nowhere; set timezone = 'Asia/Kolkata'")
            await neighbour.execute("set default_transaction_isolation = serializable; set enable_indexscan = off")
        for neighbour in neighbours:
            await neighbour.execute("commit")
        store = PostgresStore(chosen, SYSTEM_CLOCK)
        await store.submit([new_task()])
        (claim,) = (await store.claim(request())).claims
        await store.settle([Settlement(claim.lease, Completed())])
        assert (await store.queues())[0].counts == {"completed": 1}
        await store.close()
        for neighbour in neighbours:
            await neighbour.execute("discard all")
            await neighbour.close()

    asyncio.run(use())


def test_we_leave_nothing_behind_in_sessions() -> None:
    chosen = options("transaction", pooler="transaction")

    async def use() -> None:
        store = PostgresStore(chosen, SYSTEM_CLOCK)
        await asyncio.gather(store.submit([new_task()]), store.queues(), store.now())
        neighbours = [await asyncpg.connect(chosen.dsn, statement_cache_size=0) for _ in range(3)]
        for neighbour in neighbours:
            await neighbour.execute("begin")
        for neighbour in neighbours:
            assert await neighbour.fetchval("show search_path") == '"$user", public'
            assert await neighbour.fetchval("show plan_cache_mode") == "auto"
            assert await neighbour.fetchval("select count(*) from pg_prepared_statements where name <> ''") == 0
            assert await neighbour.fetchval("select count(*) from pg_locks where locktype = 'advisory'") == 0
        for neighbour in neighbours:
            await neighbour.close()
        await store.close()

    asyncio.run(use())


@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_pooler_that_the_url_does_not_name_is_noticed(cli: Cli, mode: str) -> None:
    ran = cli("--url", pgbouncer_server.url(mode), "tasks", "list", "--json")
    assert (ran.code, ran.error["code"]) == (4, NotSupported.code)
    assert "?pooler=transaction" in ran.error["message"]


def test_a_pooler_that_drops_our_settings_in_silence_is_noticed() -> None:
    """Its owner has told it to, to please some other driver."""
    names = Database(parsed("postgresql://host/db", {}))._settings() | HOT
    url = pgbouncer_server.started("transaction", ignored=",".join(names))

    async def use() -> None:
        store = PostgresStore(parsed(url, {"schema": postgres_server.fresh_schema()}), SYSTEM_CLOCK)
        with pytest.raises(NotSupported, match="pooler=transaction"):
            await store.submit([new_task()])
        await store.close()

    asyncio.run(use())


@pytest.mark.parametrize("sql", ["execute nothing", "prepare twice as select 1; prepare twice as select 1"])
def test_lost_and_doubled_statements_name_the_pooler(sql: str) -> None:
    async def use() -> None:
        with pytest.raises(asyncpg.PostgresError) as caught:
            await postgres_server.administer(lambda conn: conn.execute(sql))
        assert isinstance(faults.translated(caught.value, "the store"), NotSupported)

    asyncio.run(use())


def test_only_a_session_of_its_own_shows_that_a_worker_lives() -> None:
    async def capable(mode: str) -> bool:
        store = PostgresStore(options(mode, pooler=mode), SYSTEM_CLOCK)
        await store.close()
        return store.capabilities.early_reaping

    assert asyncio.run(capable("session"))
    assert not asyncio.run(capable("transaction"))
