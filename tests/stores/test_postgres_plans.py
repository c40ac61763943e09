"""Every statement reaches its rows of the big tables through an index, planned as the store plans it.

Statements are found in the folder, so that a new one is looked at without anybody remembering to. The tables are filled
and the planner knows it: on empty ones every plan is right.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from holdfast import ids
from holdfast.model.outbox import Effect, NewSink
from holdfast.stores.postgres import statements
from holdfast.stores.postgres.database import HOT, READS, Database
from holdfast.stores.postgres.options import parsed
from tests import postgres_server
from tests.stores.postgres_support import new_task, opened, request

FOLDER = Path(statements.__file__).parent / "sql"
NAMES = sorted(file.stem for file in FOLDER.glob("*.sql"))

BIG = {"tasks", "events", "edges", "buckets", "steps", "outbox", "dataset_versions", "dataset_rows", "pins"}
"""The others hold few rows, or are read whole on purpose."""

READ = {
    "get", "find", "page", "exists", "events_of_all", "events_of_one", "queues", "workers", "parents", "run", "runs",
    "first_of_run", "steps", "outbox", "sinks", "datasets", "dataset_versions", "dataset_version", "dataset_rows",
    "inputs", "written_by_parents", "token", "tokens", "oldest_due",
}  # fmt: skip
"""Run on the connection for reads, which plans anew for every call; all others on the one for writes."""

COUNTING = {"miscounted"}
"""The doctor's: it compares the counts with the real ones."""

UNPLANNED = {"lock"}

MANY = 4000
VALUES = {
    "uuid": "'01980000-0000-7000-8000-000000000000'",
    "timestamp with time zone": "'2030-01-01'",
    "text": "'a'",
    "boolean": "true",
    "smallint": "3",
    "integer": "3",
    "bigint": "10",
    "double precision": "1.5",
}

FILL_DATASETS = f"""
insert into datasets (name, created_at, last, base, rows)
    select 'd' || n, now(), {MANY // 100}, 1, 0 from generate_series(1, 100) as n;
insert into dataset_versions (dataset, version, base, rows, added, task_id, created_at, latest, mode)
    select d.name, v, 1, 1, 1, gen_random_uuid(), now(), v = d.last, 'append'
    from datasets as d, generate_series(1, d.last) as v;
insert into dataset_rows (dataset, base, version, key, value)
    select v.dataset, v.base, v.version, 'k' || v.version, '1' from dataset_versions as v;
insert into pins (task_id, dataset, version)
    select gen_random_uuid(), v.dataset, v.version from dataset_versions as v
"""


@cache
def filled() -> str:
    """A schema with some thousands of tasks in every state; the planner knows of them."""
    schema = postgres_server.fresh_schema()

    async def fill() -> None:
        async with opened(schema) as store:
            for name, effect in (("a", Effect.ROUTE), ("b", Effect.WAKE)):
                await store.declare_sink(NewSink(name=name, url="https://host", effect=effect))
            for queue in ("a", "b"):
                keyed = [new_task(queue=queue, idempotency_key=ids.nonce(), run_id=f"r{n}") for n in range(MANY // 4)]
                await store.submit([*keyed, *(new_task(queue=queue, priority=n % 5) for n in range(MANY // 4))])
            await store.claim(request(limit=50))
            for n in range(MANY // 100):
                members = [new_task(run_id=f"w{n}") for _ in range(100)]
                finalizer = new_task(run_id=f"w{n}", parents=tuple(member.id for member in members))
                await store.submit([*members, finalizer])

    async def end(conn: Any) -> None:
        await conn.execute(f"set search_path = {schema}")
        await conn.execute(
            "update tasks set status = 'completed', finished_at = run_at where status = 'queued' and id in"
            f" (select id from tasks where status = 'queued' order by id limit {MANY // 2})"
        )
        await conn.execute("insert into steps (task_id, at, name, result) select id, run_at, 'pay', '1' from tasks")
        await conn.execute(FILL_DATASETS)
        await conn.execute("vacuum (analyze)")

    postgres_server._in_a_thread(fill)
    postgres_server.run_apart(end)
    return schema


async def plan(name: str, only: dict[int, str] | None = None) -> dict[str, Any]:
    """How the store would run this statement. With `only`, all other parameters but the last, a limit, are empty."""
    base = Database(parsed(postgres_server.server().url, {"schema": filled()}))
    conn = await base.ready(READS if name in READ else HOT)
    try:
        await conn.execute(f"prepare probe as {statements.statement(base.schema, name)}")
        types = await conn.fetchval("select parameter_types::text[] from pg_prepared_statements where name = 'probe'")
        values = [sample(kind) for kind in types]
        if only is not None:
            values = [only.get(place, "null") for place in range(len(types) - 1)] + values[-1:]
        given = f"({', '.join(values)})" if values else ""
        explained = await conn.fetchval(f"explain (format json) execute probe{given}")
        found: dict[str, Any] = json.loads(explained)[0]["Plan"]
        return found
    finally:
        await conn.close()


def sample(kind: str) -> str:
    return f"array[{VALUES[kind[:-2]]}]::{kind}" if kind.endswith("[]") else VALUES[kind]


def scanned(node: dict[str, Any]) -> Iterator[str]:
    """The big tables that a plan reads from end to end."""
    if node["Node Type"] == "Seq Scan" and node["Relation Name"] in BIG:
        yield node["Relation Name"]
    for below in node.get("Plans", ()):
        yield from scanned(below)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in COUNTING | UNPLANNED])
def test_no_statement_scans_a_big_table(name: str) -> None:
    found = asyncio.run(plan(name))
    assert list(scanned(found)) == [], json.dumps(found, indent=1)


def test_a_scan_would_be_seen() -> None:
    assert list(scanned(asyncio.run(plan("miscounted")))) == ["tasks"]


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, "null"), (0, "'completed'"), (0, "'running'"), (1, "'a'"), (2, "'probe'"), (3, "'r7'"), (5, VALUES["uuid"])],
    ids=["nothing", "many of a status", "few of a status", "queue", "name", "run", "after"],
)
def test_a_page_is_listed_through_an_index_whatever_it_is_asked_for(place: int, value: str) -> None:
    found = asyncio.run(plan("page", {place: value}))
    assert list(scanned(found)) == [], json.dumps(found, indent=1)
