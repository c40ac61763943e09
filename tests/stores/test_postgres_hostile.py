"""What a role, a database or a stranger's objects bring along changes nothing of what our statements mean."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StoreUnavailable
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Settlement
from holdfast.model.query import Retention
from holdfast.model.transition import Change
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from tests import pgbouncer_server, postgres_server
from tests.stores.postgres_support import new_task, request

pytestmark = pytest.mark.skipif(bool(postgres_server.OWN), reason="makes superusers, which a given server is spared")

SETTINGS = {
    "timezone": "'Pacific/Chatham'",
    "DateStyle": "'SQL, DMY'",
    "IntervalStyle": "'sql_standard'",
    "bytea_output": "'escape'",
    "extra_float_digits": "-15",
    "lc_monetary": "'C'",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "standard_conforming_strings": "off",
    "escape_string_warning": "off",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "enable_indexscan": "off",
    "enable_indexonlyscan": "off",
    "enable_tidscan": "off",
    "enable_nestloop": "off",
    "enable_sort": "off",
    "enable_material": "off",
    "plan_cache_mode": "force_custom_plan",
    "jit": "on",
    "jit_above_cost": "0",
    "statement_timeout": "200",
    "lock_timeout": "1",
    "idle_in_transaction_session_timeout": "1",
    "idle_session_timeout": "1",
    "work_mem": "'64kB'",
    "join_collapse_limit": "1",
    "from_collapse_limit": "1",
    "client_min_messages": "debug5",
    "row_security": "off",
    "check_function_bodies": "off",
}

# Names that our statements use, in schemas that come before pg_catalog.
OBJECTS = """
create schema {evil};
create table {evil}.tasks (x integer);
create table {evil}.events (x integer);
create domain {evil}.text as integer;
create domain {evil}.uuid as integer;
create domain {evil}.timestamptz as integer;
create function {evil}.now() returns timestamptz language sql as 'select null::timestamptz';
create function {evil}.clock_timestamp() returns timestamptz language sql as 'select null::timestamptz';
create function {evil}.count(anyelement) returns bigint language sql as 'select 0::bigint';
create function {evil}.gen_random_uuid() returns uuid language sql as $$select null::uuid$$;
create function {evil}.wrong(text, text) returns boolean language sql as 'select false';
create operator {evil}.= (leftarg = text, rightarg = text, function = {evil}.wrong);
create operator {evil}.<= (leftarg = text, rightarg = text, function = {evil}.wrong);
"""


@pytest.fixture
def evil() -> Iterator[str]:
    """A role, and a schema of the same name that is full of traps."""
    name = postgres_server.fresh_schema()
    yield name
    postgres_server.run_apart(lambda conn: conn.execute(f"drop owned by {name} cascade; drop role {name}"))


async def administered(sql: str) -> None:
    await postgres_server.administer(lambda conn: conn.execute(sql))


@asynccontextmanager
async def as_role(name: str, url: str | None = None, **options: str) -> AsyncIterator[PostgresStore]:
    parts = urlsplit(url or postgres_server.server().url)
    theirs = f"postgresql://{name}@{parts.hostname}:{parts.port}{parts.path}"
    store = PostgresStore(parsed(theirs, {"schema": postgres_server.fresh_schema(), **options}), SYSTEM_CLOCK)
    try:
        yield store
    finally:
        await store.close()


async def live(store: PostgresStore) -> None:
    """A little of everything, with its outcome checked."""
    good, bad = new_task(idempotency_key=ids.nonce()), new_task(run_id="r", delay_seconds=0.0)
    await store.submit([good, bad])
    assert (await store.submit([good]))[0].created
    claims = {claim.task_id: claim for claim in (await store.claim(request(limit=2))).claims}
    assert set(claims) == {good.id, bad.id}
    now = await store.now()
    assert all(claim.lease_expires_at > now for claim in claims.values())
    await store.extend([claims[good.id].lease])
    failed = Failed(ErrorInfo("no"), unrecoverable=True)
    await store.settle([Settlement(claims[good.id].lease, Completed('"ü"')), Settlement(claims[bad.id].lease, failed)])
    assert [event.kind for event in await store.events(good.id, after=0, limit=9)][-1] == "task.completed"
    await store.amend(Change.REQUEUE, [bad.id], actor="operator")
    assert await store.prune(Retention(), limit=9) == 0
    assert (await store.queues())[0].counts == {"completed": 1, "queued": 1}
    found = await store.get(good.id)
    assert found is not None
    assert found.result == "ü"
    assert [question for question, well, _ in await store.check() if well is False] == []


def test_settings_of_a_role_change_nothing(evil: str) -> None:
    prepare = f"create role {evil} superuser login;" + "".join(
        f"alter role {evil} set {name} = {value};" for name, value in SETTINGS.items()
    )

    async def use() -> None:
        await administered(prepare)
        async with as_role(evil) as store:
            await live(store)

    asyncio.run(use())


def prepare_traps(evil: str) -> str:
    return (
        f"create role {evil} superuser login; set role {evil}; {OBJECTS.format(evil=evil)} reset role;"
        f"alter role {evil} set search_path = {evil}, pg_catalog"
    )


def test_objects_in_the_way_change_nothing(evil: str) -> None:
    async def use() -> None:
        await administered(prepare_traps(evil))
        async with as_role(evil) as store:
            await live(store)

    asyncio.run(use())


@pytest.mark.skipif(pgbouncer_server.BINARY is None, reason=pgbouncer_server.MISSING)
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_a_role_that_does_not_wait_for_the_disk_is_not_followed_behind_a_pooler(evil: str, mode: str) -> None:
    async def use() -> None:
        await administered(f"create role {evil} superuser login; alter role {evil} set synchronous_commit = off")
        async with as_role(evil, pgbouncer_server.started(mode, as_user=evil), pooler=mode) as store:
            await store.submit([new_task()])
            shown = await store._opened.writer.run(lambda session: session.conn.fetchval("show synchronous_commit"))
            assert shown == "on"

    asyncio.run(use())


@pytest.mark.skipif(pgbouncer_server.BINARY is None, reason=pgbouncer_server.MISSING)
@pytest.mark.parametrize("mode", ["transaction", "session"])
def test_nor_do_they_behind_a_pooler(evil: str, mode: str) -> None:
    settings = "".join(
        f"; alter role {evil} set {name} = {value}" for name, value in SETTINGS.items() if "session_timeout" not in name
    )

    async def use() -> None:
        await administered(prepare_traps(evil) + settings)
        async with as_role(evil, pgbouncer_server.started(mode, as_user=evil), pooler=mode) as store:
            await live(store)

    asyncio.run(use())


def test_a_database_with_other_habits_changes_nothing() -> None:
    """Another collation (the most foreign one of this machine), time zone and style for everybody who connects."""
    name = postgres_server.fresh_schema()
    foreign = "select collcollate from pg_collation where collprovider = 'c' order by collname like 'C%' limit 1"
    server = postgres_server.server().url.rpartition("/")[0]

    async def use() -> None:
        locale = await postgres_server.administer(lambda conn: conn.fetchval(foreign))
        await administered(f"create database {name} template template0 encoding 'UTF8' locale '{locale}'")
        for setting in ("timezone = 'Asia/Kolkata'", "datestyle = 'German'", "search_path = nowhere"):
            await administered(f"alter database {name} set {setting}")
        store = PostgresStore(parsed(f"{server}/{name}", {}), SYSTEM_CLOCK)
        await live(store)
        await store.submit([new_task(queue=queue) for queue in ("z", "å", "Z", "a")])
        assert [queue.name for queue in await store.queues()] == ["Z", "a", "default", "z", "å"]
        await store.close()
        await administered(f"drop database {name}")

    asyncio.run(use())


def test_a_role_that_was_made_read_only_is_believed(evil: str) -> None:
    """It is somebody's word that nothing shall be written, so it is not overruled."""
    prepare = f"create role {evil} superuser login; alter role {evil} set default_transaction_read_only = on"

    async def use() -> None:
        await administered(prepare)
        async with as_role(evil) as store:
            with pytest.raises(StoreUnavailable, match="takes no writes"):
                await store.submit([new_task()])

    asyncio.run(use())
