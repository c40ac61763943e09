"""The engine: verbs that share a commit, several loops, locks held by others, a full disk, forks, closing."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.errors import InvalidTask, StoreClosed, StoreUnavailable
from holdfast.model.query import WorkerInfo
from holdfast.model.task import TaskStatus
from holdfast.stores.sqlite import patience
from holdfast.stores.sqlite.patience import Patience
from holdfast.stores.sqlite.store import SQLiteStore
from holdfast.stores.sqlite.tx import Tx
from tests.stores.sqlite_support import child, claim_one, new_task, opened, request


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


class Blocked:
    """Tells when a call has met a lock that somebody else holds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.event = threading.Event()
        wait = Patience.wait

        def telling(waiting: Patience) -> None:
            self.event.set()
            wait(waiting)

        monkeypatch.setattr(Patience, "wait", telling)

    async def met(self) -> None:
        assert await asyncio.to_thread(self.event.wait, 20)


@pytest.fixture
def blocked(monkeypatch: pytest.MonkeyPatch) -> Blocked:
    return Blocked(monkeypatch)


async def counts(store: SQLiteStore) -> dict[str, int]:
    return {status: n for info in await store.queues() for status, n in info.counts.items()}


# Group commit


def test_verbs_that_wait_together_share_a_commit_and_a_refused_one_is_undone_alone(path: Path) -> None:
    """1. A verb occupies the writer.  2. Three more queue up behind it.  3. They run in one transaction.

    The second of them writes and is then refused.
    """
    occupied, go_on = threading.Event(), threading.Event()
    transactions: list[Tx] = []

    def occupy(_: Tx) -> None:
        occupied.set()
        assert go_on.wait(20)

    def refused(tx: Tx) -> None:
        transactions.append(tx)
        tx.conn.execute("INSERT INTO holdfast_queues (name) VALUES ('refused')")
        tx.counts["refused", TaskStatus.QUEUED] += 1
        raise InvalidTask("no")

    def kept(tx: Tx) -> int:
        transactions.append(tx)
        tx.conn.execute("INSERT INTO holdfast_queues (name) VALUES (?)", (f"kept-{len(transactions)}",))
        return tx.conn.total_changes

    async def race() -> list[Any]:
        async with opened(path) as store:
            shared = store._engine
            first = asyncio.create_task(shared.write(occupy))
            assert await asyncio.to_thread(occupied.wait, 20)
            others = [asyncio.create_task(shared.write(work)) for work in (kept, refused, kept)]
            await asyncio.sleep(0)
            go_on.set()
            answers = await asyncio.gather(first, *others, return_exceptions=True)
            assert [info.name for info in await store.queues()] == ["kept-1", "kept-3"]
            return answers

    _, before, refusal, after = asyncio.run(race())
    assert isinstance(refusal, InvalidTask)
    assert before < after


def test_a_verb_that_is_refused_alone_leaves_nothing(path: Path) -> None:
    def refused(tx: Tx) -> None:
        tx.conn.execute("INSERT INTO holdfast_queues (name) VALUES ('refused')")
        raise InvalidTask("no")

    async def use() -> None:
        async with opened(path) as store:
            with pytest.raises(InvalidTask):
                await store._engine.write(refused)
            assert await store.queues() == []

    asyncio.run(use())


def test_one_handle_serves_many_event_loops_at_once(path: Path) -> None:
    tasks = [new_task() for _ in range(40)]

    async def use() -> None:
        async with opened(path) as store:
            with ThreadPoolExecutor(8) as threads:
                answers = list(threads.map(lambda task: asyncio.run(store.submit([task])), tasks))
            assert [submitted.id for (submitted,) in answers] == [task.id for task in tasks]
            assert await counts(store) == {"queued": 40}

    asyncio.run(use())


def test_handles_on_one_file_share_an_engine_until_the_last_is_closed(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as first:
            async with opened(path) as second:
                assert first._engine is second._engine
            await first.submit([new_task()])
        with pytest.raises(StoreClosed):
            await first.submit([new_task()])

    asyncio.run(use())


def test_a_close_lets_what_was_asked_before_finish(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as keeper:
            async with opened(path) as store:
                asked = [asyncio.create_task(store.submit([new_task()])) for _ in range(100)]
                await asyncio.sleep(0)
            assert len(await asyncio.gather(*asked)) == 100
            assert await counts(keeper) == {"queued": 100}

    asyncio.run(use())


# Locks of others


def test_a_write_waits_for_a_lock_that_another_process_holds_and_reads_go_on(path: Path, blocked: Blocked) -> None:
    async def use() -> None:
        async with opened(path) as store:
            await store.submit([new_task()])
            with child("hold", path) as holder:
                assert holder.said() == "held"
                waiting = asyncio.create_task(store.submit([new_task()]))
                await blocked.met()
                assert await counts(store) == {"queued": 1}
                assert not waiting.done()
                holder.go_on()
                await waiting
            assert await counts(store) == {"queued": 2}

    asyncio.run(use())


def test_the_deadline_passed_the_wait_ends_with_words_for_people(path: Path) -> None:
    async def use() -> None:
        async with opened(path, busy_timeout=0.05) as store:
            await store.submit([new_task()])
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreUnavailable, match="keeps a write transaction open"):
                    await store.submit([new_task()])
                other.execute("COMMIT")
            await store.submit([new_task()])
            assert await counts(store) == {"queued": 2}

    asyncio.run(use())


def test_a_long_wait_is_warned_of_once(
    path: Path, blocked: Blocked, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(patience, "WARN_SECONDS", 0.0)

    async def use() -> None:
        async with opened(path, busy_timeout=0.1) as store:
            await store.submit([new_task()])
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(StoreUnavailable):
                    await store.submit([new_task()])

    with caplog.at_level(logging.WARNING):
        asyncio.run(use())
    assert [record.getMessage().split()[0] for record in caplog.records] == ["store.locked"]


def test_an_idle_claim_and_an_idle_reap_need_no_write_lock(path: Path) -> None:
    async def use() -> None:
        async with opened(path, busy_timeout=0.05) as store:
            await store.submit([new_task(delay_seconds=60)])
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                assert (await store.claim(request())).claims == []
                assert await store.reap(limit=10, actor="reaper") == []
                assert await store.evict(actor="reaper") == []

    asyncio.run(use())


# A full disk


def test_a_full_disk_is_told_nothing_is_damaged_and_work_goes_on_when_there_is_room(path: Path) -> None:
    def limit_pages(pages: int) -> Any:
        return lambda tx: tx.conn.execute(f"PRAGMA max_page_count = {pages}").fetchone()[0]

    async def use() -> None:
        async with opened(path) as store:
            task_id = (await store.submit([new_task()]))[0].id
            claim = await claim_one(store)
            used = await store._engine.write(lambda tx: tx.conn.execute("PRAGMA page_count").fetchone()[0])
            await store._engine.write(limit_pages(used + 2))
            with pytest.raises(StoreUnavailable, match="free some space"):
                await store.submit([new_task(payload='"' + "x" * 100_000 + '"')])
            assert await counts(store) == {"running": 1}
            await store._engine.write(limit_pages(1 << 30))
            await store.submit([new_task(payload='"' + "x" * 100_000 + '"')])
            assert claim.task_id == task_id
            assert await counts(store) == {"running": 1, "queued": 1}
            assert all(well for _, well, _ in await store.check())

    asyncio.run(use())


# Forks


def test_a_forked_child_opens_its_own_engine_and_its_end_does_not_harm_the_parent(path: Path) -> None:
    with child("fork", path) as forked:
        said = forked.said_all()
        assert forked.process.wait() == 0
    assert said == ["found found found", "child ended with 0"]
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_what_a_forked_child_submits_is_kept_when_its_parent_closes_the_file(path: Path) -> None:
    """SQLite's own list of locks, inherited with open connections, would let the parent remove the child's journal."""
    with child("fork_and_close", path) as forked:
        assert forked.said_all() == ["child ended with 0"]
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT count(*) FROM holdfast_tasks").fetchone() == (12,)
        assert conn.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_file_that_could_not_be_closed_for_a_fork_is_refused_in_the_child(path: Path) -> None:
    with child("fork_while_reading", path) as forked:
        assert forked.said_all() == ["refused", "the parent goes on"]
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT count(*) FROM holdfast_tasks").fetchone() == (2,)


# Workers of this process


def test_enrolling_in_a_folder_that_cannot_be_written_says_so(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            await store.queues()
            os.symlink("nowhere", f"{path}-workers")
            worker = WorkerInfo(id="w", host="here", pid=1, queues=None, concurrency=1, version="1")
            with pytest.raises(StoreUnavailable, match=r"tasks\.db-workers"):
                await store.enroll(worker)
            assert await store.workers() == []

    asyncio.run(use())
