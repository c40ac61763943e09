"""The least that each role needs, through the real store and command line; and what each is refused."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import asyncpg
import pytest

from holdfast import Holdfast
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import DatasetNotFound, Forbidden, SchemaMismatch
from holdfast.model.outbox import Delivery, Effect, NewSink
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.output import Mode, Output, OutputRow, Pin
from holdfast.model.query import Retention, TaskFilter
from holdfast.model.token import NewToken, Scope
from holdfast.model.transition import Change
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from tests import postgres_server
from tests.acceptance.cli_driver import Cli, eventually
from tests.stores.postgres_support import new_task, request

pytestmark = pytest.mark.skipif(bool(postgres_server.OWN), reason="makes roles, which a given server is spared")

ROLES = ("producer", "worker", "viewer")


class Site(NamedTuple):
    """A schema that its owner has made, with a login for each role."""

    schema: str
    urls: dict[str, str]

    def store(self, role: str) -> PostgresStore:
        return PostgresStore(parsed(self.urls[role], {}), SYSTEM_CLOCK)


@pytest.fixture
def site() -> Site:
    schema = postgres_server.fresh_schema()
    server = urlsplit(postgres_server.server().url)
    logins = {role: f"{schema}_{role}" for role in ("owner", "stranger", *ROLES)}
    made = Site(
        schema,
        {
            role: f"postgresql://{login}@{server.hostname}:{server.port}{server.path}?schema={schema}"
            for role, login in logins.items()
        },
    )

    async def make(conn: Any) -> None:
        for login in logins.values():
            await conn.execute(f"create role {login} login")
        await conn.execute(f"create schema {schema} authorization {logins['owner']}")
        await conn.execute(f"alter role {logins['owner']} createrole")

    async def grant(conn: Any) -> None:
        for role in ROLES:
            await conn.execute(f"grant holdfast_{role} to {logins[role]}")

    async def prepare() -> None:
        await postgres_server.administer(make)
        owner = made.store("owner")
        await owner.migrate()
        script = owner.roles_sql()
        await owner.close()
        conn = await asyncpg.connect(made.urls["owner"].partition("?")[0])
        await conn.execute(script)
        await conn.execute(script)  # as after every migration
        await conn.close()
        await postgres_server.administer(grant)

    asyncio.run(prepare())
    return made


def with_store(site: Site, role: str, work: Callable[[PostgresStore], Coroutine[Any, Any, Any]]) -> Any:
    async def use() -> Any:
        store = site.store(role)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(use())


def refused(site: Site, role: str, work: Callable[[PostgresStore], Coroutine[Any, Any, Any]]) -> None:
    with pytest.raises(Forbidden, match="permission denied"):
        with_store(site, role, work)


def test_a_producer_enqueues_and_a_worker_works_and_the_result_comes_back(cli: Cli, site: Site) -> None:
    worker = cli.start("--app", "shop:app", "--url", site.urls["worker"], "worker", "--worker-id", "w1")
    worker.wait_for("worker.started")
    app = Holdfast(site.urls["producer"])
    assert app.using(idempotency_key="k").enqueue("shop.add", 2, 3).result(timeout=30) == 5
    assert app.using(idempotency_key="k").enqueue("shop.add", 2, 3).created is False
    steps = app.enqueue("shop.steps", 3).id
    app.close()
    show = ("--url", site.urls["viewer"], "tasks", "show", steps, "--json")
    eventually(lambda: cli(*show).json["status"] == "completed", "the viewer sees that it is done")
    worker.signal(signal.SIGTERM)
    assert worker.ended() == 0, worker.said


def test_a_worker_may_do_what_workers_and_operators_do(site: Site) -> None:
    async def work(store: PostgresStore) -> None:
        kept, canceled = new_task(), new_task()
        await store.submit([kept, canceled])
        await store.amend(Change.CANCEL, [canceled.id], actor="operator")
        (claim,) = (await store.claim(request())).claims
        await store.extend([claim.lease])
        await store.report(claim.lease, "task.progress", {})
        await store.settle([Settlement(claim.lease, Completed())])
        await store.reap(limit=1, actor="reaper")
        await store.evict(actor="reaper")
        await store.pause("default", paused=True)
        await store.amend(Change.DELETE, [canceled.id], actor="operator")
        assert await store.prune(Retention(completed=timedelta(0)), limit=9) == 1
        assert await store.prune(Retention(), limit=9) == 0
        assert [question for question, well, _ in await store.check() if well is False] == []

    with_store(site, "worker", work)


def test_a_viewer_looks_at_everything_but_secrets(cli: Cli, site: Site) -> None:
    task_id = cli("--url", site.urls["producer"], "enqueue", "any", "1", "--json").json["id"]
    with_store(site, "worker", lambda store: store.claim(request()))
    url = ("--url", site.urls["viewer"])
    for command in (
        ("tasks", "list"),
        ("tasks", "show", task_id),
        ("tasks", "events", task_id),
        ("tasks", "why", task_id),
        ("dlq", "list"),
        ("queues", "list"),
        ("workers",),
        ("doctor",),
    ):
        ran = cli(*url, *command)
        assert ran.code == 0, ran
    assert "may look" in cli(*url, "doctor").out
    for column in ("token", "settled_token", "claim_id", "*"):
        for role in ("viewer", "producer"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                asyncio.run(selected(site, role, f"{column} from {site.schema}.tasks"))
    assert asyncio.run(selected(site, "worker", f"count(token) from {site.schema}.tasks")) == 1


async def selected(site: Site, role: str, what: str) -> Any:
    conn = await asyncpg.connect(site.urls[role].partition("?")[0])
    try:
        return await conn.fetchval(f"select {what}")
    finally:
        await conn.close()


def test_many_counts_are_left_to_a_worker_to_put_together(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.stores.postgres.store.FOLD_ROWS", 0)
    with_store(site, "producer", lambda store: store.submit([new_task(queue="a")]))
    with_store(site, "producer", lambda store: store.submit([new_task(queue="a")]))
    (queue,) = with_store(site, "viewer", lambda store: store.queues())
    assert queue.counts == {"queued": 2}


def test_a_viewer_changes_nothing(cli: Cli, site: Site) -> None:
    refused(site, "viewer", lambda store: store.submit([new_task()]))
    refused(site, "viewer", lambda store: store.claim(request()))
    refused(site, "viewer", lambda store: store.pause("default", paused=True))
    ran = cli("--url", site.urls["viewer"], "enqueue", "any", "--json")
    assert (ran.code, ran.error["code"]) == (4, "forbidden")


def test_a_producer_neither_claims_nor_takes_away(site: Site) -> None:
    new = new_task()
    with_store(site, "producer", lambda store: store.submit([new]))
    assert with_store(site, "producer", lambda store: store.page(TaskFilter()))[0].id == new.id
    yesterday = datetime.now(UTC) - timedelta(days=1)
    several = [new_task(run_at=yesterday) for _ in range(500)]
    with_store(site, "producer", lambda store: store.submit(several[:2]))
    with_store(site, "producer", lambda store: store.submit(several[2:]))  # so many are copied in
    refused(site, "producer", lambda store: store.claim(request()))
    refused(site, "producer", lambda store: store.claim(request(task_id=new.id)))
    refused(site, "producer", lambda store: store.amend(Change.CANCEL, [new.id], actor="producer"))
    refused(site, "producer", lambda store: store.reap(limit=1, actor="producer"))
    refused(site, "producer", lambda store: store.prune(Retention(), limit=1))
    refused(site, "producer", lambda store: store.pause("default", paused=True))


HOOK = NewSink(name="hook", url="https://host", effect=Effect.ROUTE, secret="s3cret")
WAKES = NewSink(name="wakes", url="sqs://host", effect=Effect.WAKE)
TOKEN = NewToken(id="t", name="mine", scopes=(Scope.READ,), digest="d")


async def told_and_written(store: PostgresStore) -> None:
    """Sinks, a token, a dataset."""
    for sink in (HOOK, WAKES):
        await store.declare_sink(sink)
    await store.add_token(TOKEN)
    await store.submit([new_task()])
    (claim,) = (await store.claim(request())).claims
    output = Output("orders", Mode.APPEND, (OutputRow("a", "1"),))
    await store.settle([Settlement(claim.lease, Completed(), outputs=(output,))])


def test_a_worker_relays_and_writes_and_a_dispatcher_needs_no_more(site: Site) -> None:
    async def work(store: PostgresStore) -> None:
        await told_and_written(store)
        assert [sink.secret for sink in await store.targets()] == ["s3cret", None]
        rows = await store.take_outbox(["hook", "wakes"], limit=9, hold="r", hold_seconds=9.0)
        assert [row.sink for row in rows] == ["hook"]
        await store.record_deliveries([Delivery(row_id=rows[0].id, hold="r", error="no", final=True)])
        assert await store.requeue_outbox([rows[0].id]) == 1
        assert (await store.token("t")) == (await store.tokens())[0]
        assert await store.revoke_token("t")
        async with asyncio.timeout(60):
            own = store.own_transaction()
            joined = (await store.joining()).into(await own.aenter())
            await joined.asubmit([new_task(inputs=(Pin("orders", 1),))])
            await own.aleave(commit=True)
        await store.prune(Retention(outputs=timedelta(0)), limit=9)
        assert await store.delete_sink("hook")

    with_store(site, "worker", work)


def test_what_a_producer_submits_is_told_and_pinned_and_no_secret_is_shown(site: Site) -> None:
    with_store(site, "worker", told_and_written)
    pins = (Pin("orders", 1),)
    several = [new_task(inputs=pins) for _ in range(300)]

    async def produce(store: PostgresStore) -> None:
        await store.submit([new_task(idempotency_key="k")])
        await store.submit([new_task(), new_task(inputs=pins, idempotency_key="k")])
        await store.submit(several)
        with pytest.raises(DatasetNotFound):
            await store.submit([new_task(inputs=(Pin("orders", 2),))])
        assert await store.pinned(several[0].id) == {"orders": 1}

    with_store(site, "producer", produce)
    assert asyncio.run(selected(site, "producer", f"{site.schema}.enqueue('any') is not null"))
    assert with_store(site, "viewer", lambda store: store.sinks())[1].pending == 304
    for role in ("producer", "viewer"):
        refused(site, role, lambda store: store.targets())
        refused(site, role, lambda store: store.tokens())
        refused(site, role, lambda store: store.add_token(TOKEN))
        refused(site, role, lambda store: store.declare_sink(HOOK))
        refused(site, role, lambda store: store.take_outbox(["hook"], limit=1, hold="r", hold_seconds=1.0))
        refused(site, role, lambda store: store.purge_outbox([1]))
        for what in ("secret from {}.sinks", "digest from {}.tokens"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                asyncio.run(selected(site, role, what.format(site.schema)))


def test_a_viewer_looks_at_datasets_and_at_what_waits(site: Site) -> None:
    with_store(site, "worker", told_and_written)

    async def look(store: PostgresStore) -> None:
        assert [(sink.name, sink.signed) for sink in await store.sinks()] == [("hook", True), ("wakes", False)]
        assert len(await store.outbox(sink=None, state=None, limit=9, after=0)) == 4
        assert [info.latest.rows for info in await store.datasets(limit=9, after=None)] == [1]
        assert len(await store.dataset_versions("orders", limit=9, before=None)) == 1
        assert await store.dataset_rows("orders", 1, after=None, limit=9) == [OutputRow("a", "1")]
        assert ("outbox", True) in [(question, well) for question, well, _ in await store.check()]

    with_store(site, "viewer", look)


@pytest.mark.parametrize("role", ROLES)
def test_only_the_owner_migrates(site: Site, role: str) -> None:
    async def tried() -> None:
        conn = await asyncpg.connect(site.urls[role].partition("?")[0])
        try:
            for act in (
                f"create table {site.schema}.mine ()",
                f"alter table {site.schema}.tasks add column mine integer",
                f"insert into {site.schema}.migrations (version, name) values (9999, 'mine')",
                f"truncate {site.schema}.tasks",
            ):
                with pytest.raises(asyncpg.InsufficientPrivilegeError):
                    await conn.execute(act)
        finally:
            await conn.close()

    asyncio.run(tried())


def test_who_may_not_make_the_tables_is_told_who_does(cli: Cli, site: Site) -> None:
    missing = (
        site.urls["worker"]
        .replace(site.schema, "no_such_schema_of_ours")
        .replace("no_such_schema_of_ours_worker@", f"{site.schema}_worker@")
    )
    revoke = "revoke create on database postgres from public"
    asyncio.run(postgres_server.administer(lambda conn: conn.execute(revoke)))
    ran = cli("--url", missing, "tasks", "list", "--json")
    assert ran.code == 5
    assert ran.error["code"] == SchemaMismatch.code
    assert "run `holdfast migrate` as the owner of the schema" in ran.error["message"]
    assert cli("--url", missing, "migrate", "--json").error["code"] == Forbidden.code


def test_a_stranger_is_refused(site: Site) -> None:
    refused(site, "stranger", lambda store: store.page(TaskFilter()))


def test_a_producer_enqueues_in_plain_sql_and_repeats_it(site: Site) -> None:
    enqueue = f"{site.schema}.enqueue('any', idempotency_key => 'k')"
    assert asyncio.run(selected(site, "producer", enqueue)) == asyncio.run(selected(site, "producer", enqueue))
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        asyncio.run(selected(site, "viewer", f"{site.schema}.enqueue('any')"))
