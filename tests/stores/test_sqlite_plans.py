"""Every statement reaches its rows through an index, whatever the planner of this SQLite thinks of it."""

from __future__ import annotations

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.query import TaskFilter
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Settled
from holdfast.stores.sqlite import (
    amend,
    claim,
    datasets,
    limits,
    lines,
    outage,
    reads,
    runs,
    settle,
    statements,
    steps,
    superseded,
    workers,
)
from holdfast.stores.sqlite.tx import Tx
from tests.stores.sqlite_support import new_task, opened, request

FOLDER = Path(statements.__file__).parent / "sql"
FILES = sorted(file.stem for file in FOLDER.glob("*.sql"))
INLINE = [
    outage.REPAIR,
    runs.LIVE,
    runs._FIRST,
    amend.BURIED,
    amend.UNBURY,
    *amend.REMOVALS,
    amend.SETTLED_EDGES,
    workers._END_LEASES,
    limits._PLACE,
    steps._RECORDED,
    steps._ALL,
    datasets._SEQ,
    datasets._PLACE,
    datasets._INPUTS,
    superseded._DONE,
]

SMALL = {
    "holdfast_queues",
    "holdfast_counts",
    "holdfast_workers",
    "holdfast_pulse",
    "holdfast_advances",
    "holdfast_schedules",
    "holdfast_sinks",
    "holdfast_dropped",
    "holdfast_tokens",
}
"""Tables that hold a handful of rows and may be read whole."""


@pytest.fixture
def conn(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "tasks.db"

    async def make() -> None:
        async with opened(path) as store:
            await store.submit([new_task(), new_task(idempotency_key="k"), new_task(run_id="r")])
            await store.claim(request())

    asyncio.run(make())
    with closing(sqlite3.connect(path)) as opened_conn:
        yield opened_conn


def scanned(conn: sqlite3.Connection, sql: str, parameters: Any = None) -> list[str]:
    """The tables of ours that a statement reads from end to end."""
    if parameters is None:
        parameters = dict.fromkeys(re.findall(r":(\w+)", sql)) if ":" in sql else [None] * sql.count("?")
    details = [row[3] for row in conn.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
    assert details or "VALUES" in sql
    aliases = dict(re.findall(r"(holdfast_\w+) AS (\w+)", sql))
    tables = {alias: table for table, alias in aliases.items()}
    # The indexes of running tasks and of dead rows hold nothing else: reading them whole is reading what is wanted.
    wanted = r"(?! USING INDEX holdfast_(?:leased|outbox_dead))"
    found = [name for detail in details for name in re.findall(rf"^SCAN (\w+){wanted}\b", detail)]
    names = {tables.get(name, name) for name in found}
    return sorted(name for name in names if name.startswith("holdfast_") and name not in SMALL)


@pytest.mark.parametrize("name", FILES)
def test_no_statement_scans_a_table(conn: sqlite3.Connection, name: str) -> None:
    assert scanned(conn, statements.statement(name)) == []


@pytest.mark.parametrize("sql", INLINE)
def test_no_short_statement_scans_a_table(conn: sqlite3.Connection, sql: str) -> None:
    assert scanned(conn, sql) == []


@pytest.mark.parametrize("status", [TaskStatus.RUNNING, TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELED])
@pytest.mark.parametrize("run_id", [None, "r"])
def test_few_tasks_are_listed_through_an_index(
    conn: sqlite3.Connection, status: TaskStatus, run_id: str | None
) -> None:
    source, values = reads._source(TaskFilter(status=status, run_id=run_id, queue="q"), few=True)
    assert scanned(conn, f"SELECT seq FROM {source} ORDER BY seq DESC", values) == []


def test_many_tasks_are_listed_by_walking_back_without_sorting(conn: sqlite3.Connection) -> None:
    source, values = reads._source(TaskFilter(status=TaskStatus.COMPLETED, queue="q"), few=False)
    plan = conn.execute(f"EXPLAIN QUERY PLAN SELECT seq FROM {source} ORDER BY seq DESC", values).fetchall()
    assert [row[3] for row in plan] == ["SCAN holdfast_tasks"]


# Steps of SQLite's machine: what a claim costs beside many tasks that it does not want


def steps_of_a_claim(tmp_path: Path, others: list[NewTask]) -> int:
    path = tmp_path / f"{ids.nonce()}.db"

    async def fill() -> None:
        async with opened(path, synchronous="normal") as store:
            await store.submit([new_task(id="p", queue="parents", run_id="w"), *others, new_task()])

    asyncio.run(fill())
    with closing(sqlite3.connect(path)) as conn, counting(conn) as steps:
        look = lines.look(conn, request(queues=("default",)), SYSTEM_CLOCK.micros())
    assert ("default", 0, 0) in look.levels
    return steps[0]


@contextmanager
def counting(conn: sqlite3.Connection) -> Iterator[list[int]]:
    """How many steps SQLite's machine makes on this connection meanwhile."""
    counted = [0]

    def count() -> int:
        counted[0] += 1
        return 0

    conn.set_progress_handler(count, 1)
    try:
        yield counted
    finally:
        conn.set_progress_handler(None, 0)


@pytest.mark.parametrize(
    "field",
    [
        {"delay_seconds": 3600.0, "priority": 7},
        {"delay_seconds": 3600.0},
        {"delay_seconds": 3600.0, "concurrency_key": "k"},
        {"queue": "other"},
        {"parents": ("p",), "run_id": "w"},
    ],
    ids=["scheduled above", "scheduled beside", "scheduled with a key", "in another queue", "waiting"],
)
def test_a_claim_costs_the_same_beside_many_tasks_that_are_not_due(tmp_path: Path, field: dict[str, Any]) -> None:
    few, many = (steps_of_a_claim(tmp_path, [new_task(**field) for _ in range(n)]) for n in (1, 3000))
    assert many < few + 100


def steps_of_a_limited_claim(path: Path, held: int) -> int:
    """Of one that finds nothing before it has looked past `held` tasks of a full key: then it finds ten."""

    async def fill() -> None:
        async with opened(path, synchronous="normal") as store:
            await store.limit("default", {"max_running_per_key": 1, "max_running": 100})
            await store.submit([new_task(concurrency_key="full") for _ in range(held)])
            await store.submit([new_task(concurrency_key=f"k{n % 5}") for n in range(50)])
            await store.submit([new_task() for _ in range(5)])
            await store.claim(request(lease_seconds=3600.0))

    asyncio.run(fill())
    with closing(sqlite3.connect(path, isolation_level=None)) as conn, counting(conn) as counted:
        claimed = claim.claim(Tx(conn, SYSTEM_CLOCK.micros(), set()), request(limit=10), claim.Rounds())
    assert len(claimed.claims) == 10
    return counted[0]


def test_a_full_key_with_many_tasks_costs_a_claim_nothing(tmp_path: Path) -> None:
    few, many = (steps_of_a_limited_claim(tmp_path / f"{held}.db", held) for held in (200, 5000))
    assert many < few * 1.1


def steps_of_a_settle(path: Path, members: int) -> int:
    """Of one member of a chord."""

    async def fill() -> Settlement:
        async with opened(path, synchronous="normal") as store:
            group = [new_task(run_id="r") for _ in range(members)]
            finalizer = new_task(run_id="r", parents=tuple(member.id for member in group))
            await store.submit([*group, finalizer])
            (granted,) = (await store.claim(request(lease_seconds=3600.0))).claims
            return Settlement(granted.lease, Completed())

    settlement = asyncio.run(fill())
    with closing(sqlite3.connect(path, isolation_level=None)) as conn, counting(conn) as counted:
        (answer,) = settle.settle(Tx(conn, SYSTEM_CLOCK.micros(), set()), [settlement], ids.JITTER)
    assert isinstance(answer, Settled)
    return counted[0]


def test_a_settle_costs_the_same_in_a_large_chord(tmp_path: Path) -> None:
    few, many = (steps_of_a_settle(tmp_path / f"{members}.db", members) for members in (100, 5000))
    assert many < few * 1.1
