"""The journal is folded back in time, and never beside a commit (docs/adr/0002-sqlite-journal.md)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.stores.sqlite import journal, writer
from holdfast.stores.sqlite.database import Database
from holdfast.stores.sqlite.journal import Journal
from holdfast.stores.sqlite.writer import Writer
from tests.stores.sqlite_support import new_task, opened

PAGE = 4096


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def held_by_somebody(path: Path) -> bool:
    fd = os.open(f"{path}-lock", os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def test_the_journal_does_not_grow_without_bound(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "CHECKPOINT_PAGES", 200)

    async def fill() -> int:
        async with opened(path, synchronous="normal") as store:
            for _ in range(100):
                await store.submit([new_task(payload='"' + "x" * 500 + '"') for _ in range(50)])
            return os.stat(f"{path}-wal").st_size

    assert asyncio.run(fill()) < 2000 * PAGE < path.stat().st_size * 4


def test_commits_and_checkpoints_happen_under_the_write_lock(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "CHECKPOINT_PAGES", 1)
    seen: list[tuple[str, bool]] = []

    def spied(owner: type, name: str) -> None:
        plain = getattr(owner, name)

        def spy(*args: Any) -> Any:
            seen.append((name, held_by_somebody(path)))
            return plain(*args)

        monkeypatch.setattr(owner, name, spy)

    spied(Writer, "_commit")
    spied(Journal, "fold_back")

    async def use() -> None:
        async with opened(path) as store:
            await store.submit([new_task()])
            await store.submit([new_task()])

    asyncio.run(use())
    assert {name for name, _ in seen} == {"_commit", "fold_back"}
    assert all(held for _, held in seen)
    assert not held_by_somebody(path)


def test_nobody_can_commit_beside_a_checkpoint_although_they_do_not_know_our_lock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "CHECKPOINT_PAGES", 1)
    fold_back, kept_out = Journal.fold_back, list[bool]()

    def spy(self: Journal, conn: sqlite3.Connection) -> None:
        with closing(sqlite3.connect(path, timeout=0)) as caller:
            try:
                caller.execute("BEGIN IMMEDIATE")
                kept_out.append(False)
            except sqlite3.OperationalError:
                kept_out.append(True)
        fold_back(self, conn)

    monkeypatch.setattr(Journal, "fold_back", spy)

    async def use() -> None:
        async with opened(path) as store:
            await store.submit([new_task()])
            await store.submit([new_task()])

    asyncio.run(use())
    assert kept_out
    assert all(kept_out)


def test_a_checkpoint_waits_for_the_end_of_a_callers_transaction(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. A caller begins just before the writer looks. 2. The writer looks again and again. 3. The caller ends."""
    monkeypatch.setattr(writer, "IDLE_SECONDS", 0.02)
    looks, folded = threading.Semaphore(0), threading.Event()
    fold_back, kept_out = Journal.fold_back, Database.writers_kept_out
    callers: list[sqlite3.Connection] = []

    def spy(self: Journal, conn: sqlite3.Connection) -> None:
        folded.set()
        fold_back(self, conn)

    def looking(self: Database) -> Any:
        if not callers:
            callers.append(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
            callers[0].execute("BEGIN IMMEDIATE")
        looks.release()
        return kept_out(self)

    monkeypatch.setattr(Journal, "fold_back", spy)
    monkeypatch.setattr(Database, "writers_kept_out", looking)

    async def use() -> None:
        async with opened(path) as store:
            await store.submit([new_task()])
            for _ in range(3):
                assert await asyncio.to_thread(looks.acquire, timeout=20)
            assert not folded.is_set()
            callers[0].execute("ROLLBACK")
            assert await asyncio.to_thread(folded.wait, 20)
            callers[0].close()

    asyncio.run(use())


def test_a_long_reader_keeps_its_snapshot_and_the_journal_waits_for_it(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            await store.submit([new_task()])
            with closing(sqlite3.connect(path, isolation_level=None)) as reader:
                reader.execute("BEGIN")
                assert reader.execute("SELECT count(*) FROM holdfast_tasks").fetchone() == (1,)
                await store.submit([new_task() for _ in range(500)])
                kept = Journal(str(path))
                await store._engine.write(lambda tx: kept.committed(tx.conn))
                with closing(sqlite3.connect(path, isolation_level=None)) as other:
                    kept.fold_back(other)
                assert kept.pages > 0
                assert reader.execute("SELECT count(*) FROM holdfast_tasks").fetchone() == (1,)

    asyncio.run(use())


def test_no_connection_of_ours_checkpoints_by_itself(path: Path) -> None:
    async def use() -> tuple[int, int]:
        async with opened(path) as store:
            read = await store._engine.read(lambda conn: conn.execute("PRAGMA wal_autocheckpoint").fetchone()[0])
            written = await store._engine.write(lambda tx: tx.conn.execute("PRAGMA wal_autocheckpoint").fetchone()[0])
            return read, written

    assert asyncio.run(use()) == (0, 0)
