"""The schema of the PostgreSQL store: how it is made, which names it may have, that nothing else is in its way."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import InvalidTask, SchemaMismatch
from holdfast.model.outcome import Completed, Settlement
from holdfast.stores.postgres import schema
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from tests import postgres_server
from tests.stores.postgres_support import handle, new_task, opened, request, somebody_else

STEPS = [step.name for step in schema.steps()]


def test_many_that_open_a_fresh_schema_at_once_make_it_once() -> None:
    name = postgres_server.fresh_schema()

    async def use() -> None:
        stores = [handle(name) for _ in range(6)]
        await asyncio.gather(*(store.submit([new_task()]) for store in stores))
        async with somebody_else(stores[0]) as conn:
            assert [row["name"] for row in await conn.fetch("select name from migrations order by version")] == STEPS
            assert await conn.fetchval("select count(*) from tasks") == 6
        for store in stores:
            await store.close()

    asyncio.run(use())


def test_a_dry_run_names_the_steps_and_does_none() -> None:
    async def use() -> None:
        async with opened() as store:
            assert await store.migrate(dry_run=True) == STEPS
            assert await store.migrate(dry_run=True) == STEPS
            assert await store.migrate() == STEPS
            assert await store.migrate() == []

    asyncio.run(use())


def test_the_sql_that_is_shown_does_the_same_by_hand() -> None:
    async def use() -> None:
        async with opened() as store:
            script = await store.migration_sql()
            await postgres_server.administer(lambda conn: conn.execute(script))
            assert await store.migrate(dry_run=True) == []
            assert await store.migration_sql() == ""
            await store.submit([new_task()])

    asyncio.run(use())


def test_a_newer_schema_is_refused() -> None:
    async def use() -> None:
        async with opened() as store:
            await store.submit([new_task()])
            async with somebody_else(store) as conn:
                await conn.execute("insert into migrations (version, name) values (9999, 'from the future')")
            async with opened(store._options.schema) as late:
                with pytest.raises(SchemaMismatch, match="9999"):
                    await late.submit([new_task()])
            assert (await store.queues())[0].counts == {"queued": 1}

    asyncio.run(use())


def test_a_schema_may_have_an_odd_name() -> None:
    name = f"Odd - {postgres_server.fresh_schema()} ünï$"

    async def use() -> None:
        async with opened(name) as store:
            new = new_task()
            await store.submit([new])
            assert await store.get(new.id) is not None
            await postgres_server.administer(lambda conn: conn.execute(f'drop schema "{name}" cascade'))

    asyncio.run(use())


@pytest.mark.parametrize("name", ["", "1x", 'a"b', "a;b", "pg_own", "a.b", "x" * 64, "a\x00", None, 7])
def test_a_name_that_is_no_schema_is_refused(name: object) -> None:
    with pytest.raises(InvalidTask, match="schema"):
        parsed("postgresql://host/db", {"schema": name})


@pytest.mark.skipif(bool(postgres_server.OWN), reason="makes a superuser, which a given server is spared")
def test_a_hostile_search_path_changes_nothing() -> None:
    """Tables and functions of our names stand first in the path that this user's sessions begin with."""
    evil, user = postgres_server.fresh_schema(), postgres_server.fresh_schema()
    url = postgres_server.server().url
    prepare = (
        f"create schema {evil}; create table {evil}.tasks (x int); create table {evil}.events (x int);"
        f"create function {evil}.clock_timestamp() returns timestamptz language sql as 'select null::timestamptz';"
        f"create function {evil}.now() returns timestamptz language sql as 'select null::timestamptz';"
        f"create role {user} superuser login; alter role {user} set search_path = {evil}, pg_catalog"
    )

    async def use() -> None:
        await postgres_server.administer(lambda conn: conn.execute(prepare))
        options = parsed(url.replace("//postgres@", f"//{user}@"), {"schema": postgres_server.fresh_schema()})
        store = PostgresStore(options, SYSTEM_CLOCK)
        new = new_task()
        await store.submit([new])
        (claim,) = (await store.claim(request())).claims
        await store.settle([Settlement(claim.lease, Completed())])
        assert [event.kind for event in await store.events(new.id, after=0, limit=9)][-1] == "task.completed"
        await store.close()

    asyncio.run(use())
