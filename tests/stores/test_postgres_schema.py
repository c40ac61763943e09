"""The schema of the PostgreSQL store: how it is made, which names it may have, that nothing else is in its way."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError, InvalidTask, SchemaMismatch, StoreUnavailable
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Settlement
from holdfast.model.query import Retention, WorkerInfo
from holdfast.model.transition import Change
from holdfast.stores.postgres import database, schema
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from tests import postgres_server
from tests.stores import postgres_described
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
                assert await conn.fetchval("select count(*) from tasks") == 1

    asyncio.run(use())


def test_an_open_handle_soon_refuses_a_schema_that_has_become_newer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use() -> None:
        async with opened() as store:
            await store.submit([new_task()])
            async with somebody_else(store) as conn:
                await conn.execute("insert into migrations (version, name) values (9999, 'from the future')")
                await store.submit([new_task()])  # it has looked a moment ago
                monkeypatch.setattr(database, "LOOK_SECONDS", 0.0)
                for call in (store.submit([new_task()]), store.claim(request()), store.queues()):
                    with pytest.raises(SchemaMismatch, match="install the newer Holdfast"):
                        await call
                await conn.execute("delete from migrations where version = 9999")
                assert len((await store.claim(request(limit=9))).claims) == 2

    asyncio.run(use())


def test_opening_makes_nothing_where_it_is_told_to_leave_that_to_others() -> None:
    async def use() -> None:
        async with opened(migrate="never") as store:
            with pytest.raises(SchemaMismatch, match="no tables of Holdfast; run `holdfast migrate`"):
                await store.submit([new_task()])
            assert await store.migrate() == STEPS
            await store.submit([new_task()])

    asyncio.run(use())


@pytest.mark.parametrize("version", sorted({schema.oldest(), schema.newest()}))
def test_every_verb_works_on_each_version_that_is_known(version: int) -> None:
    """A new worker beside old ones, before the migration; opening leaves that to `holdfast migrate`."""

    async def use() -> None:
        async with opened() as store:
            await migrated(store, upto=version)
            first, second = new_task(), new_task(idempotency_key="k")
            await store.enroll(WorkerInfo(id="worker-1", host="h", pid=1, queues=None, concurrency=1, version="1"))
            await store.submit([first, second])
            assert (await store.submit([new_task(idempotency_key="k")]))[0].id == second.id
            good, bad = (await store.claim(request(limit=2))).claims
            assert not isinstance((await store.extend([good.lease]))[0], HoldfastError)
            await store.report(good.lease, "task.progress", {"done": 1})
            failed = Failed(ErrorInfo("no"), unrecoverable=True)
            await store.settle([Settlement(good.lease, Completed()), Settlement(bad.lease, failed)])
            await store.amend(Change.REQUEUE, [second.id], actor="operator")
            await store.pause("default", paused=True)
            assert (await store.claim(request())).claims == []
            await store.reap(limit=9, actor="reaper")
            await store.evict(actor="reaper")
            assert await store.prune(Retention(completed=timedelta(0)), limit=9) == 1
            await store.leave("worker-1")
            assert [(queue.name, queue.counts) for queue in await store.queues()] == [("default", {"queued": 1})]
            async with somebody_else(store) as conn:
                assert await conn.fetchval("select max(version) from migrations") == version

    asyncio.run(use())


def test_an_old_schema_says_that_it_cannot_join_transactions() -> None:
    async def use() -> None:
        async with opened() as store:
            await migrated(store, upto=1)
            with pytest.raises(SchemaMismatch, match="run `holdfast migrate`"):
                await store.joining()

    asyncio.run(use())


def test_an_old_schema_says_that_it_has_no_schedules() -> None:
    async def use() -> None:
        before = [step.version for step in schema.steps() if step.name < "0005_schedules"][-1]
        async with opened() as store:
            await migrated(store, upto=before)
            with pytest.raises(SchemaMismatch, match="run `holdfast migrate`"):
                await store.schedules()

    asyncio.run(use())


def test_opening_brings_an_old_schema_up_to_date_where_that_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    later = with_another_step(monkeypatch, "CREATE TABLE {schema}.extra ()")

    async def use() -> None:
        async with opened() as old:
            await migrated(old, upto=later.version - 1)
            await old.submit([new_task()])
            assert await old.migrate(dry_run=True) == [later.name]
            async with opened(old._options.schema, migrate="always") as new:
                await new.submit([new_task()])
            assert await old.migrate(dry_run=True) == []

    asyncio.run(use())


def test_a_migration_lets_everybody_else_pass_while_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Somebody reads in a transaction. 2. A step wants the table for itself and has to wait: whoever comes after it
    waits too. 3. So it lets go again and again, and everybody gets their turn. 4. The reader ends, the step is done."""
    later = with_another_step(monkeypatch, "ALTER TABLE {schema}.tasks ADD COLUMN extra integer")

    async def use() -> None:
        async with opened() as store, opened(store._options.schema) as other:
            await migrated(store, upto=later.version - 1)
            await store.submit([new_task()])
            async with somebody_else(store) as reader:
                async with reader.transaction():
                    await reader.fetch("select from tasks")
                    migrating = asyncio.create_task(other.migrate())
                    await until_it_waits(store)
                    for _ in range(5):
                        await store.submit([new_task()])
                        (claim,) = (await store.claim(request())).claims
                        await store.settle([Settlement(claim.lease, Completed())])
                    assert not migrating.done()
                assert await migrating == [later.name]
            (claim,) = (await store.claim(request())).claims
            await store.settle([Settlement(claim.lease, Completed())])
            assert (await store.queues())[0].counts == {"completed": 6}

    asyncio.run(use())


def test_a_migration_that_never_gets_its_lock_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    later = with_another_step(monkeypatch, "ALTER TABLE {schema}.tasks ADD COLUMN extra integer")
    monkeypatch.setattr(schema, "PATIENCE_SECONDS", 0.0)

    async def use() -> None:
        async with opened() as store:
            await migrated(store, upto=later.version - 1)
            async with somebody_else(store) as reader, reader.transaction():
                await reader.fetch("select from tasks")
                with pytest.raises(StoreUnavailable, match="look for a long transaction"):
                    await store.migrate()
            assert await store.migrate() == [later.name]

    asyncio.run(use())


def with_another_step(monkeypatch: pytest.MonkeyPatch, sql: str) -> schema.Step:
    """This Holdfast knows one version more, for the length of a test."""
    later = schema.Step(schema.newest() + 1, f"{schema.newest() + 1:04}_later", sql)
    known = (*schema.steps(), later)
    monkeypatch.setattr(schema, "steps", lambda: known)
    return later


async def migrated(store: PostgresStore, *, upto: int) -> None:
    base = store._opened.database
    conn = await base.connect({})
    await schema.migrate(conn, base.schema, base.label, upto=upto)
    await conn.close()


async def until_it_waits(store: PostgresStore) -> None:
    """Until a step of a migration stands in line for the table of tasks."""
    asked = "select exists (select from pg_locks where not granted and relation = 'tasks'::regclass)"
    async with somebody_else(store) as conn, asyncio.timeout(60):
        while not await conn.fetchval(asked):  # noqa: ASYNC110  only the server knows
            await asyncio.sleep(0.01)


ODD = ["Upper", "1x", "a.b", "a;b", "Odd - ünï$", 'a"b', "a'b", '"', "'", "a b", "%s", "{schema}", "--", "$", "{0}"]


@pytest.mark.parametrize("name", [*ODD, "ü" * 31 + "x"])
def test_a_schema_may_have_any_name(name: str) -> None:
    """Also by psql's hand: the same objects, the same rights."""

    async def use() -> None:
        async with opened(name) as store:
            new = new_task()
            await store.submit([new])
            (claim,) = (await store.claim(request())).claims
            await store.settle([Settlement(claim.lease, Completed())])
            assert [event.kind for event in await store.events(new.id, after=0, limit=9)][-1] == "task.completed"
            drop = f"drop schema {store._options.quoted_schema} cascade"
            await postgres_server.administer(lambda conn: conn.execute(store.roles_sql()))
            await postgres_server.administer(lambda conn: conn.execute(drop))
            script = await store.migration_sql(0)
            await postgres_server.administer(lambda conn: conn.execute(script))
            assert await store.migrate(dry_run=True) == []
            await postgres_server.administer(lambda conn: conn.execute(drop))

    asyncio.run(use())


@pytest.mark.parametrize("name", ["", "pg_own", "x" * 64, "ü" * 32, "a\x00", "a\nb", "a\\b", "a$b$c", None, 7])
def test_a_name_that_is_no_schema_is_refused(name: object) -> None:
    with pytest.raises(InvalidTask, match="schema"):
        parsed("postgresql://host/db", {"schema": name})


@pytest.mark.parametrize("option", ["migrate", "pooler"])
def test_an_option_that_is_no_word_of_ours_is_refused(option: str) -> None:
    with pytest.raises(InvalidTask, match=f"{option} is 'maybe'; write "):
        parsed(f"postgresql://host/db?{option}=maybe", {})


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


def test_the_migrations_make_the_declared_schema() -> None:
    made = postgres_server.run_apart(postgres_described.migrated)
    declared = postgres_described.DECLARED.read_text()
    assert made == declared, f"if the change is meant: {postgres_described.COMMAND}"


def test_functions_run_with_the_rights_of_their_caller_and_a_path_of_their_own() -> None:
    functions = [line for line in postgres_described.DECLARED.read_text().splitlines() if line.startswith("function ")]
    assert [
        line for line in functions if "security invoker" not in line or " set search_path=pg_catalog" not in line
    ] == []
