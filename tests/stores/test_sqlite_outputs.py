"""Datasets on SQLite: large outputs, crashes, several processes, the caller's transaction, and how they end."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterable
from contextlib import ExitStack, closing
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import DatasetNotFound
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.output import Mode, Output, OutputRow, Pin
from holdfast.model.query import Retention
from holdfast.model.transition import Change, Settled
from holdfast.policy.outputs import BYTES_MOST, ROWS_MOST
from holdfast.stores.sqlite import settle, superseded
from holdfast.stores.sqlite.store import SQLiteStore
from holdfast.stores.sqlite.tx import Tx
from tests.stores.sqlite_support import child, claim_one, new_task, opened, query, request, with_store
from tests.stores.test_sqlite_plans import counting

KILLS = 5
OLD = Retention(completed=None, canceled=None, failed=None, outputs=timedelta(0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def output(rows: Iterable[tuple[str, str]], mode: Mode = Mode.APPEND, dataset: str = "orders") -> Output:
    return Output(dataset, mode, tuple(OutputRow(key, value) for key, value in rows))


async def write(store: SQLiteStore, *outputs: Output) -> str:
    new = new_task()
    await store.submit([new])
    claim = await claim_one(store, task_id=new.id)
    (answer,) = await store.settle([Settlement(claim.lease, Completed(), outputs=outputs)])
    assert isinstance(answer, Settled)
    return new.id


async def keys(store: SQLiteStore, version: int) -> list[str]:
    return [row.key for row in await store.dataset_rows("orders", version, after=None, limit=ROWS_MOST + 1)]


@with_store
async def test_the_largest_output_there_may_be_is_kept(store: SQLiteStore) -> None:
    value = f'"{"x" * (BYTES_MOST // ROWS_MOST - 20)}"'
    rows = [(f"key-{n:06}", value) for n in range(ROWS_MOST)]
    await write(store, output(rows))
    await write(store, output([*rows, ("last", "1")]))
    found = await store.dataset_versions("orders", limit=10, before=None)
    assert [(one.version, one.rows, one.added) for one in found] == [(2, ROWS_MOST + 1, 1), (1, ROWS_MOST, ROWS_MOST)]
    assert await store.dataset_rows("orders", 1, after="key-099998", limit=10) == [OutputRow("key-099999", value)]


# Crashes, and several at once


def test_an_output_is_there_exactly_where_its_completion_is(path: Path) -> None:
    acknowledged: list[str] = []
    for kill in range(KILLS):
        with child("write_for_ever", path) as writer:
            acknowledged += [writer.said() for _ in range(1 + kill)]
            writer.kill()
            acknowledged += writer.said_all()

    async def look() -> tuple[list[str], int]:
        async with opened(path) as store:
            latest = await store.dataset_version("orders", None)
            assert latest is not None
            return await keys(store, latest.version), latest.version

    found, versions = asyncio.run(look())
    with closing(sqlite3.connect(path)) as conn:
        completed = [row[0] for row in conn.execute("SELECT id FROM holdfast_tasks WHERE status = 'completed'")]
    assert found == sorted([*completed, "same"])
    assert versions == len(completed)
    assert set(acknowledged) <= set(completed)


def test_writers_of_two_processes_take_turns(path: Path) -> None:
    tasks = [new_task() for _ in range(40)]

    async def submit() -> None:
        async with opened(path, synchronous="normal") as store:
            await store.submit(tasks)

    async def look() -> None:
        async with opened(path) as store:
            found = await store.dataset_versions("orders", limit=100, before=None)
            assert [(one.version, one.rows) for one in reversed(found)] == [(n, n) for n in range(1, 41)]
            assert await keys(store, 40) == sorted(task.id for task in tasks)

    asyncio.run(submit())
    with ExitStack() as stack:
        writers = [stack.enter_context(child("write", path)) for _ in range(2)]
        for one in writers:
            assert one.said() == "here"
        for one in writers:
            one.go_on()
        assert [one.said() for one in writers] == ["done", "done"]
    asyncio.run(look())


# The caller's transaction


@pytest.mark.parametrize("commits", [True, False])
def test_outputs_belong_to_the_callers_transaction(path: Path, commits: bool) -> None:
    async def use() -> list[int]:
        async with opened(path) as store:
            await store.submit([new_task()])
            claim = await claim_one(store)
            joining = await store.joining()
            with closing(sqlite3.connect(path, isolation_level=None)) as conn:
                conn.execute("BEGIN IMMEDIATE")
                settlement = Settlement(claim.lease, Completed(), outputs=(output([("k", "1")]),))
                joining.into(conn).complete(settlement)
                conn.execute("COMMIT" if commits else "ROLLBACK")
            return [one.version for one in await store.dataset_versions("orders", limit=10, before=None)]

    assert asyncio.run(use()) == ([1] if commits else [])


def test_a_joined_submit_with_a_pin_to_nothing_is_refused_and_the_transaction_goes_on(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            await store.submit([new_task()])
            joining = await store.joining()
            kept = new_task()
            with closing(sqlite3.connect(path, isolation_level=None)) as conn:
                conn.execute("BEGIN IMMEDIATE")
                with pytest.raises(DatasetNotFound):
                    joining.into(conn).submit([new_task(), new_task(inputs=(Pin("orders", 1),))])
                joining.into(conn).submit([kept])
                conn.execute("COMMIT")
            assert query(store, "SELECT count(*) FROM holdfast_tasks") == [(2,)]
            assert await store.get(kept.id) is not None

    asyncio.run(use())


# The end of versions


@with_store
async def test_the_rows_of_a_base_without_versions_go_in_bounded_batches(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(superseded, "ROWS_AT_ONCE", 40)
    await write(store, output([(f"k{n:03}", "1") for n in range(100)]))
    await write(store, output([("a", "1"), ("k001", "1")], Mode.REPLACE))
    await write(store, output([("b", "1")]))
    left = []
    for _ in range(4):
        gone = await store.prune(OLD, limit=10)
        left.append((gone, *query(store, "SELECT count(*) FROM holdfast_rows")[0]))
    assert left == [(2, 63), (0, 23), (0, 3), (0, 3)]
    assert query(store, "SELECT count(*) FROM holdfast_dropped") == [(0,)]
    assert await keys(store, 3) == ["a", "b", "k001"]


@with_store
async def test_a_pin_goes_with_its_task(store: SQLiteStore) -> None:
    await write(store, output([("a", "1")]))
    await write(store, output([("b", "1")]))
    reader = new_task(inputs=(Pin("orders", 1),))
    await store.submit([reader])
    assert await store.prune(OLD, limit=10) == 0
    await store.amend(Change.CANCEL, [reader.id], actor="operator")
    await store.amend(Change.DELETE, [reader.id], actor="operator")
    assert query(store, "SELECT count(*) FROM holdfast_pins") == [(0,)]
    assert await store.prune(OLD, limit=10) == 1


@with_store
async def test_a_requeued_task_keeps_what_a_parent_wrote_that_is_gone_itself(store: SQLiteStore) -> None:
    """1. the parent writes; 2. the child is canceled; 3. the parent is deleted; 4. the child is requeued; 5. prune."""
    parent = new_task(run_id="r")
    reader = new_task(run_id="r", parents=(parent.id,), inputs=(Pin("orders", None),))
    await store.submit([parent, reader])
    claim = await claim_one(store, task_id=parent.id)
    await store.settle([Settlement(claim.lease, Completed(), outputs=(output([("a", "1")]),))])
    await write(store, output([("b", "1")], Mode.REPLACE))
    await store.amend(Change.CANCEL, [reader.id], actor="operator")
    await store.amend(Change.DELETE, [parent.id], actor="operator")
    await store.amend(Change.REQUEUE, [reader.id], actor="operator")
    assert await store.prune(OLD, limit=10) == 0
    assert await store.pinned(reader.id) == {"orders": 1}
    await store.amend(Change.CANCEL, [reader.id], actor="operator")
    assert await store.prune(OLD, limit=10) == 1


# What it costs


def steps_of_an_append(path: Path, rows: int) -> int:
    async def fill() -> Settlement:
        async with opened(path, synchronous="normal") as store:
            await write(store, output([(f"k{n:06}", "1") for n in range(rows)]))
            await store.submit([new_task()])
            claim = await claim_one(store, lease_seconds=3600.0)
            return Settlement(claim.lease, Completed(), outputs=(output([("z", "1")]),))

    settlement = asyncio.run(fill())
    with closing(sqlite3.connect(path, isolation_level=None)) as conn, counting(conn) as steps:
        settle.settle(Tx(conn, SYSTEM_CLOCK.micros(), set()), [settlement], ids.JITTER)
    return steps[0]


def test_an_append_costs_what_it_adds(tmp_path: Path) -> None:
    few, many = (steps_of_an_append(tmp_path / f"{rows}.db", rows) for rows in (10, 20_000))
    assert many < few * 1.1


@with_store
async def test_plain_completions_beside_one_with_outputs_stay_plain(store: SQLiteStore) -> None:
    await store.submit([new_task() for _ in range(3)])
    claims = (await store.claim(request(limit=3))).claims
    outputs = [(), (output([("a", "1")]),), ()]
    answers = await store.settle(
        [Settlement(claim.lease, Completed(), outputs=given) for claim, given in zip(claims, outputs, strict=True)]
    )
    assert all(isinstance(answer, Settled) for answer in answers)
    assert query(store, "SELECT task_id FROM holdfast_versions") == [(claims[1].task_id,)]
