"""Workflows in the file: large ones in bounded steps, what stands in which table, and what goes when."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from holdfast.model.claim import Claim
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Outcome, Settlement
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Change
from holdfast.policy.workflow import INLINE_EACH
from holdfast.stores.sqlite.rows import APART_CHARS
from holdfast.stores.sqlite.store import SQLiteStore
from tests.stores.sqlite_support import claim_one, new_task, query, request, with_store

DONE = Completed()
DEAD = Failed(ErrorInfo("it broke"), unrecoverable=True)


def chord(members: int) -> list[NewTask]:
    group = [new_task(run_id="run") for _ in range(members)]
    return [*group, new_task(run_id="run", name="finalizer", parents=tuple(member.id for member in group))]


def fan(children: int) -> list[NewTask]:
    root = new_task(run_id="run", name="root")
    return [root, *(new_task(run_id="run", parents=(root.id,)) for _ in range(children))]


async def settled(store: SQLiteStore, claims: list[Claim], outcome: Outcome = DONE) -> None:
    answers = await store.settle([Settlement(claim.lease, outcome) for claim in claims])
    assert len(answers) == len(claims)


async def drained(store: SQLiteStore, batch: int) -> list[str]:
    """Names of all that ran, until nothing is claimable."""
    names = []
    while claims := (await store.claim(request(limit=batch))).claims:
        await settled(store, claims)
        names += [claim.name for claim in claims]
    return names


async def advanced(store: SQLiteStore, limit: int) -> list[int]:
    steps = []
    while done := await store.advance(limit=limit, actor="advancer"):
        steps.append(done)
    return steps


def rows_of(store: SQLiteStore, table: str) -> int:
    return int(query(store, f"SELECT count(*) FROM holdfast_{table}")[0][0])


async def a_chord_runs(store: SQLiteStore, members: int, batch: int) -> None:
    tasks = chord(members)
    await store.submit(tasks)
    names = await drained(store, batch)
    assert names == ["probe"] * members + ["finalizer"]
    page = await store.parents(tasks[-1].id, after=members - 10, limit=100)
    assert [end.task_id for end in page] == [member.id for member in tasks[-11:-1]]
    found = await store.get(tasks[-1].id)
    assert found is not None
    assert found.parents == [member.id for member in tasks[:-1]]


@with_store
async def test_a_large_chord_ends_with_its_finalizer_once(store: SQLiteStore) -> None:
    await a_chord_runs(store, 2500, 700)


@pytest.mark.soak
@with_store
async def test_a_chord_of_100_000_members_ends_with_its_finalizer_once(store: SQLiteStore) -> None:
    await a_chord_runs(store, 100_000, 1000)


@with_store
async def test_the_parents_of_a_finalizer_do_not_stand_in_its_row(store: SQLiteStore) -> None:
    tasks = chord(APART_CHARS // 30)
    await store.submit([*tasks, *chord(2)])
    rows = query(store, "SELECT length(parents) FROM holdfast_tasks WHERE name = 'finalizer' ORDER BY seq")
    assert rows[0] == (0,)
    assert rows[1] > (0,)
    assert rows_of(store, "parents") == 1
    again = await store.submit(tasks)
    assert {answer.created for answer in again} == {True}


# Many dependents


@pytest.mark.parametrize("limit", [1, 7, 1000])
@with_store
async def test_what_is_too_much_for_a_settle_is_done_in_steps(store: SQLiteStore, limit: int) -> None:
    tasks = fan(INLINE_EACH + 50)
    await store.submit(tasks)
    await settled(store, [await claim_one(store)])
    assert rows_of(store, "advances") == 1
    steps = await advanced(store, limit)
    assert sum(steps) == 50
    assert max(steps) <= limit
    assert rows_of(store, "advances") == 0
    assert len(await drained(store, 1000)) == INLINE_EACH + 50


@with_store
async def test_a_requeue_overtakes_the_failure_that_is_still_being_told(store: SQLiteStore) -> None:
    """1. the root fails; 2. some of its dependents hear of it; 3. it is requeued; 4. it completes; 5. all go on."""
    tasks = fan(3 * INLINE_EACH)
    await store.submit(tasks)
    await settled(store, [await claim_one(store)], DEAD)
    await store.advance(limit=INLINE_EACH // 2, actor="advancer")
    await store.amend(Change.REQUEUE, [tasks[0].id], actor="operator")
    await settled(store, [await claim_one(store)])
    await advanced(store, 40)
    run = await store.run("run")
    assert run is not None
    assert run.counts == {"completed": 1, "queued": 3 * INLINE_EACH}


@with_store
async def test_a_failure_overtakes_the_requeue_that_is_still_being_told(store: SQLiteStore) -> None:
    """1. the root fails, all hear of it; 2. it is requeued, some are re-armed; 3. it fails again; 4. none is left."""
    tasks = fan(3 * INLINE_EACH)
    await store.submit(tasks)
    await settled(store, [await claim_one(store)], DEAD)
    await advanced(store, 1000)
    await store.amend(Change.REQUEUE, [tasks[0].id], actor="operator")
    await store.advance(limit=INLINE_EACH // 2, actor="advancer")
    await settled(store, [await claim_one(store)], DEAD)
    await advanced(store, 40)
    run = await store.run("run")
    assert run is not None
    assert run.counts == {"failed": 1, "canceled": 3 * INLINE_EACH}
    await store.amend(Change.REQUEUE, [tasks[0].id], actor="operator")
    await settled(store, [await claim_one(store)])
    await advanced(store, 1000)
    assert len(await drained(store, 1000)) == 3 * INLINE_EACH


@with_store
async def test_a_cascade_that_is_too_wide_goes_on_in_steps(store: SQLiteStore) -> None:
    """Twenty branches of sixty each hang on one root: more than a settle does by itself."""
    root = new_task(run_id="run", name="root")
    branches = [new_task(run_id="run", parents=(root.id,)) for _ in range(20)]
    leaves = [new_task(run_id="run", parents=(branch.id,)) for branch in branches for _ in range(60)]
    await store.submit([root, *branches, *leaves])
    await settled(store, [await claim_one(store)], DEAD)
    await advanced(store, 100)
    run = await store.run("run")
    assert run is not None
    assert run.counts == {"failed": 1, "canceled": 1220}
    assert {task.canceled_because for task in [await store.get(leaf.id) for leaf in leaves] if task} == {root.id}


@pytest.mark.soak
@with_store
async def test_a_task_with_100_000_dependents_fails_is_requeued_and_completes(store: SQLiteStore) -> None:
    tasks = fan(100_000)
    await store.submit(tasks)
    await settled(store, [await claim_one(store)], DEAD)
    await advanced(store, 1000)
    await store.amend(Change.REQUEUE, [tasks[0].id], actor="operator")
    await advanced(store, 1000)
    await settled(store, [await claim_one(store)])
    await advanced(store, 1000)
    run = await store.run("run")
    assert run is not None
    assert run.counts == {"completed": 1, "queued": 100_000}


# What goes with a record


@with_store
async def test_edges_steps_and_parents_go_with_their_tasks(store: SQLiteStore) -> None:
    tasks = chord(APART_CHARS // 30)
    await store.submit(tasks)
    claims = (await store.claim(request(limit=1000))).claims
    await store.record_step(claims[0].lease, "charge", "42")
    await settled(store, claims)
    await drained(store, 1000)
    await store.amend(Change.DELETE, [task.id for task in tasks], actor="operator")
    assert [rows_of(store, table) for table in ("tasks", "edges", "steps", "parents", "advances")] == [0] * 5


@pytest.mark.parametrize("members", [3, 80])
@with_store
async def test_a_deleted_parent_that_failed_still_keeps_its_child_from_running(
    store: SQLiteStore, members: int
) -> None:
    tasks = chord(members)
    await store.submit(tasks)
    claims = (await store.claim(request(limit=1000))).claims
    await settled(store, claims[:1], DEAD)
    await settled(store, claims[1:])
    await store.amend(Change.DELETE, [claims[0].task_id], actor="operator")
    (refused,) = await store.amend(Change.REQUEUE, [tasks[-1].id], actor="operator")
    assert claims[0].task_id in str(refused)


@pytest.mark.parametrize("members", [3, 80])
@with_store
async def test_a_finalizer_follows_the_last_of_its_failed_members(store: SQLiteStore, members: int) -> None:
    tasks = chord(members)
    await store.submit(tasks)
    claims = (await store.claim(request(limit=1000))).claims
    await settled(store, [claims[0], claims[-1]], DEAD)
    await settled(store, claims[1:-1])
    for claim in (claims[0], claims[-1]):
        before = await store.get(tasks[-1].id)
        assert before is not None
        assert (before.status, before.canceled_because) == (TaskStatus.CANCELED, claim.task_id)
        await store.amend(Change.REQUEUE, [claim.task_id], actor="operator")
    assert await drained(store, 1) == ["probe", "probe", "finalizer"]


# In the transactions of others


@with_store
async def test_a_workflow_that_is_submitted_and_advanced_in_a_transaction_stands_or_falls_with_it(
    store: SQLiteStore,
) -> None:
    await store.migrate()
    joining = await store.joining()
    tasks = chord(1)
    with closing(sqlite3.connect(joining.path, isolation_level=None)) as conn:
        for end in ("ROLLBACK", "COMMIT"):
            conn.execute("BEGIN IMMEDIATE")
            joining.into(conn).submit(tasks)
            conn.execute(end)
            assert rows_of(store, "edges") == (end == "COMMIT")
        claim = await claim_one(store, lease_seconds=3600.0)
        for end, status in (("ROLLBACK", TaskStatus.WAITING), ("COMMIT", TaskStatus.QUEUED)):
            conn.execute("BEGIN IMMEDIATE")
            joining.into(conn).complete(Settlement(claim.lease, Completed()))
            conn.execute(end)
            finalizer = await store.get(tasks[-1].id)
            assert finalizer is not None
            assert finalizer.status is status
