"""Processes that die in the middle: nothing acknowledged is lost, nothing is damaged, nobody waits for the dead."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from holdfast import ids
from holdfast.errors import LeaseLost
from holdfast.model.claim import Lease
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Outcome, Settlement
from holdfast.model.query import WorkerInfo
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Settled
from holdfast.stores.sqlite.presence import Presence
from tests.stores.sqlite_support import child, claim_one, new_task, opened

KILLS = 6


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def test_a_writer_killed_again_and_again_loses_nothing_that_it_acknowledged(path: Path) -> None:
    acknowledged: list[str] = []
    for kill in range(KILLS):
        with child("submit_for_ever", path) as writer:
            for _ in range(1 + kill):
                acknowledged += writer.said().split()
            writer.kill()
            acknowledged += [task_id for line in writer.said_all() for task_id in line.split()]

    async def look() -> list[tuple[str, bool | None, str]]:
        async with opened(path) as store:
            for task_id in acknowledged:
                assert await store.get(task_id) is not None
            await store.submit([new_task()])
            return await store.check()

    assert all(well for _, well, _ in asyncio.run(look()))
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        tasks, events = (
            conn.execute(f"SELECT count(*) FROM holdfast_{what}").fetchone()[0] for what in ("tasks", "events")
        )
    assert tasks == events >= len(acknowledged) > KILLS


# Workflows


@pytest.mark.parametrize(
    ("outcome", "kind", "ends"),
    [(Completed(), "task.ready", "queued"), (Failed(ErrorInfo("x"), unrecoverable=True), "task.canceled", "canceled")],
    ids=["completed", "failed"],
)
def test_many_dependents_are_told_once_each_although_who_tells_them_is_killed(
    path: Path, outcome: Outcome, kind: str, ends: str
) -> None:
    """1. a task ends; 2. who goes on with its 1,000 dependents is killed, again and again; 3. somebody ends it."""
    root = new_task(run_id="run")
    children = [new_task(run_id="run", parents=(root.id,)) for _ in range(1000)]

    async def end() -> None:
        async with opened(path) as store:
            await store.submit([root, *children])
            await store.settle([Settlement((await claim_one(store)).lease, outcome)])

    async def go_on() -> dict[str, int]:
        async with opened(path) as store:
            while await store.advance(limit=1000, actor="advancer"):
                pass
            assert all(well for _, well, _ in await store.check())
            run = await store.run("run")
            assert run is not None
            return run.counts

    asyncio.run(end())
    for steps in range(1, KILLS):
        with child("advance", path) as advancer:
            for _ in range(steps):
                assert advancer.said() == "20"
            advancer.kill()
    assert asyncio.run(go_on())[ends] == len(children)
    with closing(sqlite3.connect(path)) as conn:
        told = conn.execute("SELECT count(*), count(DISTINCT task) FROM holdfast_events WHERE kind = ?", (kind,))
        assert told.fetchone() == (len(children), len(children))
        assert conn.execute("SELECT count(*) FROM holdfast_tasks WHERE pending < 0").fetchone() == (0,)


# Workers


def submit_one(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            await store.submit([new_task()])

    asyncio.run(use())


async def evicted(path: Path) -> tuple[list[str], int]:
    """Who was evicted, and how many leases a reaper then found ended."""
    async with opened(path) as store:
        gone = await store.evict(actor="reaper")
        return gone, len(await store.reap(limit=10, actor="reaper"))


def test_the_work_of_a_killed_worker_is_free_at_once_although_its_lease_is_long(path: Path) -> None:
    submit_one(path)
    with child("work", path) as worker:
        assert worker.said()
        assert asyncio.run(evicted(path)) == ([], 0)
        worker.kill()
        assert asyncio.run(evicted(path)) == (["worker-child"], 1)
        assert asyncio.run(evicted(path)) == ([], 0)
    assert os.listdir(f"{path}-workers") == []


def test_a_stopped_worker_is_not_evicted(path: Path) -> None:
    submit_one(path)
    with child("work", path) as worker:
        assert worker.said()
        os.kill(worker.pid, signal.SIGSTOP)
        assert asyncio.run(evicted(path)) == ([], 0)
        os.kill(worker.pid, signal.SIGCONT)


def test_a_child_that_a_worker_forked_does_not_pass_for_the_worker(path: Path) -> None:
    submit_one(path)
    with child("work", path) as worker:
        assert worker.said()
        worker.go_on()
        forked = int(worker.said())
        try:
            worker.kill()
            assert asyncio.run(evicted(path)) == (["worker-child"], 1)
        finally:
            os.kill(forked, signal.SIGKILL)


def test_what_a_killed_worker_still_says_changes_nothing(path: Path) -> None:
    submit_one(path)

    async def use(task_id: str) -> None:
        async with opened(path) as store:
            await store.evict(actor="reaper")
            await store.reap(limit=10, actor="reaper")
            again = await claim_one(store)
            (stale,) = await store.settle([Settlement(Lease(task_id, 1, ids.token()), Completed())])
            assert isinstance(stale, LeaseLost)
            (answer,) = await store.settle([Settlement(again.lease, Completed())])
            assert answer == Settled(task_id, 2, TaskStatus.COMPLETED)

    with child("work", path) as worker:
        task_id = worker.said()
        worker.kill()
        asyncio.run(use(task_id))


def test_a_worker_that_comes_back_under_its_old_name_frees_what_it_left(path: Path) -> None:
    submit_one(path)

    async def come_back() -> int:
        async with opened(path) as store:
            worker = WorkerInfo(id="worker-child", host="here", pid=1, queues=None, concurrency=1, version="1")
            await store.enroll(worker)
            assert await store.evict(actor="reaper") == []
            return len(await store.reap(limit=10, actor="reaper"))

    with child("work", path) as worker:
        assert worker.said()
        worker.kill()
        assert asyncio.run(come_back()) == 1


def test_files_that_dead_workers_left_are_removed_by_the_next_to_enroll(tmp_path: Path) -> None:
    path = str(tmp_path / "tasks.db")
    dead, living, new = Presence(path), Presence(path), Presence(path)
    dead.hold("dead")
    kept = living.hold("living")
    dead.drop()
    nonce = new.hold("new")
    assert sorted(os.listdir(f"{path}-workers")) == sorted([f"{kept}.alive", f"{nonce}.alive"])
    assert not living.gone(nonce)
    assert not new.gone(kept)
    for presence in (living, new):
        presence.drop()


def test_a_row_with_a_hostile_nonce_reaches_no_other_file(tmp_path: Path) -> None:
    presence = Presence(str(tmp_path / "tasks.db"))
    victim = tmp_path / "victim.alive"
    victim.write_text("precious")
    presence.forget("../victim")
    assert victim.read_text() == "precious"
