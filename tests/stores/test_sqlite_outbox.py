"""The outbox on SQLite: what its triggers cost and when they stand, long lines, crashes, other processes, old files."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import StoreUnavailable
from holdfast.model.outbox import Delivery, Effect, NewSink, OutboxRow, OutboxState
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Settlement
from holdfast.model.query import Retention, WorkerInfo
from holdfast.stores.sqlite import outbox, outbox_verbs, schema, settle
from holdfast.stores.sqlite.store import SQLiteStore
from holdfast.stores.sqlite.tx import Tx
from tests.stores.sqlite_support import child, claim_one, new_task, opened, query, request, with_store
from tests.stores.test_sqlite_plans import counting

HOOK = NewSink(name="hook", url="https://example.org", effect=Effect.ROUTE)
WAKE = NewSink(name="wake", url="sqs://queue", effect=Effect.WAKE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


async def taken(store: SQLiteStore, *sinks: str, limit: int = 1000, hold: str = "relay") -> list[OutboxRow]:
    return await store.take_outbox(sinks or ("hook",), limit=limit, hold=hold, hold_seconds=30.0)


async def told(store: SQLiteStore, rows: Sequence[OutboxRow], **fate: Any) -> None:
    await store.record_deliveries([Delivery(row_id=row.id, hold="relay", **fate) for row in rows])


def triggers(store: SQLiteStore) -> list[str]:
    return [name for (name,) in query(store, "SELECT name FROM sqlite_master WHERE type = 'trigger' ORDER BY name")]


# Deleting a sink


@with_store
async def test_a_sink_with_many_rows_is_deleted_in_bounded_writes(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a call of the engine, between which others write."""
    monkeypatch.setattr(outbox_verbs, "FORGOTTEN", 10)
    await store.declare_sink(HOOK)
    await store.submit([new_task() for _ in range(35)])
    for row in await taken(store, limit=5):
        await told(store, [row], error="no", final=True)
    sizes: list[int] = []
    real = outbox.forget

    def forget(tx: Tx, row_ids: Sequence[int]) -> None:
        sizes.append(len(row_ids))
        real(tx, row_ids)

    monkeypatch.setattr(outbox, "forget", forget)
    assert await store.delete_sink("hook")
    assert sizes == [10, 10, 10, 5]
    assert await store.outbox(sink=None, state=None, limit=99, after=0) == []
    assert not await store.delete_sink("hook")


@with_store
async def test_what_a_deletion_that_was_cut_off_leaves_over_is_pruned(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox_verbs, "FORGOTTEN", 10)
    for sink in (HOOK, NewSink(name="other", url="https://example.org", effect=Effect.ROUTE)):
        await store.declare_sink(sink)
    await store.submit([new_task() for _ in range(25)])
    for row in await taken(store, limit=15):
        await told(store, [row], error="no", final=True)

    async def die(_row_ids: Sequence[int]) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as cut:
        cut.setattr(store, "_forget", die)
        with pytest.raises(asyncio.CancelledError):
            await store.delete_sink("hook")
    left = await store.outbox(sink="hook", state=None, limit=99, after=0)
    assert len(left) == 25
    assert await taken(store, "other", limit=1), "the others go on"
    while await store.outbox(sink="hook", state=None, limit=1, after=0):
        assert await store.prune(Retention(), limit=10) == 0, "which is not counted"
    assert len(await store.outbox(sink="other", state=None, limit=99, after=0)) == 25


# A full disk


@with_store
async def test_what_finds_no_space_in_the_outbox_is_not_acknowledged(store: SQLiteStore) -> None:
    def limit_pages(pages: int) -> Any:
        return lambda tx: tx.conn.execute(f"PRAGMA max_page_count = {pages}").fetchone()[0]

    async def told_of() -> list[str]:
        return [row.task_id for row in await store.outbox(sink="hook", state=None, limit=9999, after=0)]

    await store.declare_sink(HOOK)
    used = await store._engine.write(lambda tx: tx.conn.execute("PRAGMA page_count").fetchone()[0])
    await store._engine.write(limit_pages(used + 20))
    acknowledged: list[str] = []
    while True:
        new = new_task()
        try:
            await store.submit([new])
        except StoreUnavailable:
            break
        acknowledged.append(new.id)
    assert acknowledged
    assert await told_of() == acknowledged
    assert await store.get(new.id) is None
    with pytest.raises(StoreUnavailable, match="free some space"):
        await store.submit([new])
    await store._engine.write(limit_pages(1 << 30))
    await store.submit([new])
    assert await told_of() == [*acknowledged, new.id]
    assert list(query(store, "PRAGMA integrity_check")) == [("ok",)]


# What stands in the schema


@with_store
async def test_a_trigger_stands_only_while_a_sink_wants_its_effect(store: SQLiteStore) -> None:
    await store.submit([new_task()])
    seen = [triggers(store)]
    for sink in (WAKE, HOOK, HOOK):
        await store.declare_sink(sink)
        seen.append(triggers(store))
    for name in ("wake", "hook"):
        await store.delete_sink(name)
        seen.append(triggers(store))
    both = ["holdfast_route", "holdfast_wake"]
    assert seen == [[], ["holdfast_wake"], both, both, ["holdfast_route"], []]


@with_store
async def test_a_sink_that_turns_to_another_effect_takes_its_trigger_along(store: SQLiteStore) -> None:
    await store.declare_sink(HOOK)
    await store.declare_sink(NewSink(name="hook", url="sqs://queue", effect=Effect.WAKE))
    assert triggers(store) == ["holdfast_wake"]


def test_who_has_the_file_open_tells_a_sink_that_another_process_has_declared(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            await store.submit([new_task()])
            with child("declare", path) as other:
                assert other.said() == "declared"
            new = new_task()
            await store.submit([new])
            assert [row.task_id for row in await taken(store)] == [new.id]

    asyncio.run(use())


def test_a_file_of_the_version_before_tells_and_writes(path: Path) -> None:
    with closing(sqlite3.connect(path)) as conn:
        for step in schema.steps()[:4]:
            schema._do(conn, step, 0)
        conn.execute(
            "INSERT INTO holdfast_workers (id, nonce, host, pid, concurrency, version, names, started_at, seen_at) "
            "VALUES ('old', 'nonce', 'here', 1, 1, '1', '[]', 0, 0)"
        )
        conn.commit()

    async def go_on() -> None:
        async with opened(path) as store:
            assert await store.migrate(dry_run=True) == ["0005_outbox", "0006_datasets"]
            assert [(worker.id, worker.remote) for worker in await store.workers()] == [("old", False)]
            await store.declare_sink(HOOK)
            await store.submit([new_task()])
            assert len(await taken(store)) == 1

    asyncio.run(go_on())


# The caller's transaction


@pytest.mark.parametrize("commits", [True, False])
def test_rows_belong_to_the_callers_transaction(path: Path, commits: bool) -> None:
    async def use() -> list[tuple[str, str]]:
        async with opened(path) as store:
            await store.declare_sink(HOOK)
            await store.declare_sink(WAKE)
            joining = await store.joining()
            with closing(sqlite3.connect(path, isolation_level=None)) as conn:
                conn.execute("BEGIN IMMEDIATE")
                joining.into(conn).submit([new_task()])
                conn.execute("COMMIT" if commits else "ROLLBACK")
            return [(row.sink, row.effect) for row in await taken(store, "hook", "wake")]

    expected = [("hook", "route_event"), ("wake", "enqueue_task")] if commits else []
    assert sorted(asyncio.run(use())) == expected


# Crashes, and several at once


def test_a_relay_killed_between_telling_and_recording_costs_a_repetition(path: Path) -> None:
    async def submit() -> None:
        async with opened(path) as store:
            await store.declare_sink(HOOK)
            await store.submit([new_task(), new_task()])

    asyncio.run(submit())
    with child("take", path) as relay:
        first = relay.said()
        relay.kill()

    class Later:
        """The system's clock, a minute on."""

        def micros(self) -> int:
            return SYSTEM_CLOCK.micros() + 60_000_000

        def __getattr__(self, name: str) -> Any:
            return getattr(SYSTEM_CLOCK, name)

    async def again() -> tuple[list[str], list[str]]:
        async with opened(path) as store:
            held = [str(row.id) for row in await taken(store)]
        async with opened(path, clock=Later()) as store:
            return held, [str(row.id) for row in await taken(store)]

    assert asyncio.run(again()) == ([], first.split())


def test_two_relays_tell_everything_once_and_in_order(path: Path) -> None:
    async def submit() -> int:
        async with opened(path, synchronous="normal") as store:
            await store.declare_sink(HOOK)
            await store.submit([new_task() for _ in range(60)])
            for claim in (await store.claim(request(limit=60))).claims:
                await store.settle([Settlement(claim.lease, Completed())])
            return len(await store.events(None, after=0, limit=1000))

    events = asyncio.run(submit())
    with ExitStack() as stack:
        relays = [stack.enter_context(child("relay", path)) for _ in range(2)]
        for one in relays:
            assert one.said() == "here"
        for one in relays:
            one.go_on()
        lines = [line.split() for one in relays for line in one.said_all()]
    assert len(lines) == len({row_id for row_id, *_ in lines}) == events
    by_task: dict[str, list[tuple[int, int]]] = {}
    for row_id, task_id, at in lines:
        by_task.setdefault(task_id, []).append((int(at), int(row_id)))
    assert all(
        [row_id for _, row_id in sorted(rows)] == sorted(row_id for _, row_id in rows) for rows in by_task.values()
    )


# What it costs


def steps_of_a_take(path: Path, line: int, others: int) -> int:
    """Of one row, beside a line whose head has failed and beside others that are due."""

    async def fill() -> None:
        async with opened(path, synchronous="normal") as store:
            poison = new_task()
            await store.declare_sink(HOOK)
            await store.submit([poison])
            claim = await claim_one(store, lease_seconds=3600.0)
            await asyncio.gather(*[store.report(claim.lease, "task.progress", {"n": n}) for n in range(line)])
            await told(store, await taken(store), error="no")
            await store.submit([new_task() for _ in range(others)])

    asyncio.run(fill())
    with closing(sqlite3.connect(path, isolation_level=None)) as conn, counting(conn) as steps:
        rows = outbox.take(Tx(conn, SYSTEM_CLOCK.micros(), set()), ["hook"], 1, "relay", 30.0)
        outbox.record(Tx(conn, SYSTEM_CLOCK.micros(), set()), [Delivery(row_id=rows[0].id, hold="relay")])
    return steps[0]


def test_a_take_costs_the_same_beside_a_long_line_that_does_not_get_on(tmp_path: Path) -> None:
    few, many = (steps_of_a_take(tmp_path / f"{line}.db", line, 600) for line in (10, 2000))
    assert many < few * 1.1


def test_a_take_costs_the_same_beside_many_that_are_due(tmp_path: Path) -> None:
    few, many = (steps_of_a_take(tmp_path / f"{others}.db", 1, others) for others in (600, 5000))
    assert many < few * 1.1


def steps_of_a_failure(path: Path, line: int) -> int:
    """Of a settle that tells two sinks, beside a long line of the same task."""

    async def fill() -> Settlement:
        async with opened(path, synchronous="normal") as store:
            await store.declare_sink(HOOK)
            await store.declare_sink(WAKE)
            await store.submit([new_task()])
            claim = await claim_one(store, lease_seconds=3600.0)
            await asyncio.gather(*[store.report(claim.lease, "task.progress", {"n": n}) for n in range(line)])
            return Settlement(claim.lease, Failed(ErrorInfo("x")))

    settlement = asyncio.run(fill())
    with closing(sqlite3.connect(path, isolation_level=None)) as conn, counting(conn) as steps:
        tx = Tx(conn, SYSTEM_CLOCK.micros(), set())
        settle.settle(tx, [settlement], ids.JITTER)
        tx.flush()
    return steps[0]


def test_a_change_costs_the_same_beside_a_long_line(tmp_path: Path) -> None:
    few, many = (steps_of_a_failure(tmp_path / f"{line}.db", line) for line in (10, 2000))
    assert many < few * 1.1


@with_store
async def test_wake_ups_that_would_wake_nobody_go_in_one_take(store: SQLiteStore) -> None:
    await store.declare_sink(WAKE)
    await store.submit([new_task() for _ in range(1200)])
    claims = (await store.claim(request(limit=1200))).claims
    await store.settle([Settlement(claim.lease, Completed()) for claim in claims])
    new = new_task()
    await store.submit([new])
    assert [row.task_id for row in await taken(store, "wake", limit=5)] == [new.id]
    assert query(store, "SELECT count(*) FROM holdfast_outbox") == [(1,)]


@with_store
async def test_a_relay_that_finds_nothing_writes_nothing(store: SQLiteStore) -> None:
    await store.declare_sink(HOOK)
    with closing(sqlite3.connect(store.label.removeprefix("sqlite:///"))) as conn:
        before = conn.execute("PRAGMA data_version").fetchone()
        assert await taken(store) == []
        assert conn.execute("PRAGMA data_version").fetchone() == before


# Lines


@with_store
async def test_a_requeued_row_stands_before_those_that_came_later(store: SQLiteStore) -> None:
    """1. the first dies; 2. the second is being told; 3. the first is requeued and goes first; 4. all arrive."""
    await store.declare_sink(HOOK)
    await store.submit([new_task()])
    await store.settle([Settlement((await claim_one(store)).lease, Completed())])
    (first,) = await taken(store)
    await told(store, [first], error="no", final=True)
    (second,) = await taken(store)
    assert await store.requeue_outbox([first.id]) == 1
    (again,) = await taken(store)
    assert again.id == first.id
    await told(store, [second])
    assert await taken(store) == []
    await told(store, [again])
    (third,) = await taken(store)
    assert third.event is not None
    assert third.event.kind == "task.completed"
    await told(store, [third])
    assert query(store, "SELECT count(*) FROM holdfast_outbox") == [(0,)]


# Workers and the doctor


@with_store
async def test_a_remote_worker_holds_no_file(store: SQLiteStore) -> None:
    far = WorkerInfo(id="far", host="there", pid=1, queues=None, concurrency=1, version="1", remote=True)
    await store.enroll(far)
    assert query(store, "SELECT nonce, remote FROM holdfast_workers") == [("", 1)]
    assert await store.evict(actor="reaper") == []
    await store.enroll(WorkerInfo(id="far", host="here", pid=1, queues=None, concurrency=1, version="1"))
    assert [worker.remote for worker in await store.workers()] == [False]


@with_store
async def test_the_doctor_tells_of_the_outbox(store: SQLiteStore) -> None:
    async def said() -> tuple[bool | None, str]:
        return next((well, words) for question, well, words in await store.check() if question == "outbox")

    assert await said() == (True, "nobody is told of changes")
    await store.declare_sink(HOOK)
    await store.submit([new_task(), new_task()])
    assert (await said())[0] is True
    await told(store, await taken(store, limit=1), error="no", final=True)
    well, words = await said()
    assert well is None
    assert "1 are dead" in words
    (dead,) = await store.outbox(sink="hook", state=OutboxState.DEAD, limit=10, after=0)
    await store.purge_outbox([dead.id])
    with closing(sqlite3.connect(store.label.removeprefix("sqlite:///"))) as conn:
        conn.execute("DROP TRIGGER holdfast_route")
        conn.commit()
    assert (await said())[0] is False
