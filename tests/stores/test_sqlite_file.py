"""The file: which one a URL means, how it is made, what is refused, how its schema comes about."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from contextlib import ExitStack, closing
from pathlib import Path
from urllib.parse import quote

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError, InvalidTask, SchemaMismatch, StoreUnavailable
from holdfast.model.backoff import DEFAULT_BACKOFF
from holdfast.stores.open import store_factory
from holdfast.stores.sqlite import doctor, schema
from holdfast.stores.sqlite.options import parsed
from holdfast.stores.sqlite.rows import policy_text
from tests.stores.sqlite_support import child, claim_one, new_task, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


async def use(path: Path) -> None:
    async with opened(path) as store:
        await store.submit([new_task()])


def refusal(path: Path) -> HoldfastError:
    with pytest.raises(HoldfastError) as refused:
        asyncio.run(use(path))
    return refused.value


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# URLs


def test_a_relative_path_is_fixed_when_the_url_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parsed("sqlite:///tasks.db", {}).path == str(tmp_path / "tasks.db")
    assert parsed("sqlite:////var/lib/tasks.db", {}).path == "/var/lib/tasks.db"
    assert parsed(f"sqlite:///{quote('odd name?.db')}", {}).path == str(tmp_path / "odd name?.db")


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite:///folder/", "sqlite://host/tasks.db"])
def test_a_url_without_a_file_is_refused_with_an_example(url: str) -> None:
    with pytest.raises(InvalidTask, match="write sqlite:///tasks"):
        store_factory(url)


def test_a_database_in_memory_is_refused() -> None:
    with pytest.raises(InvalidTask, match="memory://name"):
        store_factory("sqlite:///:memory:")


def test_an_unknown_parameter_is_refused_naming_the_known_ones() -> None:
    with pytest.raises(InvalidTask, match=r"'sync'.*synchronous and busy_timeout"):
        store_factory("sqlite:///tasks.db?sync=normal")
    with pytest.raises(InvalidTask, match="'colour'"):
        store_factory("sqlite:///tasks.db", clock=SYSTEM_CLOCK, colour="red")


@pytest.mark.parametrize("query", ["synchronous=off", "busy_timeout=0", "busy_timeout=soon", "busy_timeout=nan"])
def test_a_parameter_out_of_range_is_refused(query: str) -> None:
    with pytest.raises(InvalidTask):
        store_factory(f"sqlite:///tasks.db?{query}")


def test_only_full_synchronisation_is_called_durable() -> None:
    assert store_factory("sqlite:///tasks.db")().capabilities.durable
    assert not store_factory("sqlite:///tasks.db?synchronous=NORMAL")().capabilities.durable


# The file


def test_every_file_is_for_its_owner_only(path: Path) -> None:
    async def look() -> dict[str, int]:
        async with opened(path) as store:
            await store.submit([new_task()])
            return {file: stat.S_IMODE(os.stat(path.parent / file).st_mode) for file in os.listdir(path.parent)}

    before = os.umask(0)
    try:
        found = asyncio.run(look())
    finally:
        os.umask(before)
    assert {"tasks.db", "tasks.db-wal", "tasks.db-lock"} <= set(found)
    assert set(found.values()) == {0o600}


def test_a_missing_folder_is_named_with_the_command_that_makes_it(path: Path) -> None:
    refused = refusal(path.parent / "missing" / "tasks.db")
    assert isinstance(refused, StoreUnavailable)
    assert f"mkdir -p {path.parent / 'missing'}" in str(refused)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write in any folder")
def test_a_folder_that_may_not_be_written_is_named(path: Path) -> None:
    path.parent.chmod(0o500)
    try:
        assert isinstance(refusal(path), StoreUnavailable)
    finally:
        path.parent.chmod(0o700)


def test_a_folder_in_the_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir()
    assert isinstance(refusal(path), StoreUnavailable)


def test_a_link_leads_to_the_file_that_it_names(path: Path) -> None:
    path.symlink_to("real.db")
    asyncio.run(use(path))
    assert mode_of(path.parent / "real.db") == 0o600
    assert path.is_symlink()


def test_a_file_that_is_no_database_is_refused_and_left_alone(path: Path) -> None:
    text = b"not a database, and longer than the header of one would be\n" * 20
    path.write_bytes(text)
    assert isinstance(refusal(path), SchemaMismatch)
    assert path.read_bytes() == text
    assert list(path.parent.iterdir()) == [path]


def test_our_tables_can_live_beside_others(path: Path) -> None:
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("CREATE TABLE orders (id INTEGER)")
        conn.execute("INSERT INTO orders VALUES (7)")
        conn.commit()
    asyncio.run(use(path))
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT id FROM orders").fetchall() == [(7,)]
        assert conn.execute("SELECT count(*) FROM holdfast_tasks").fetchone() == (1,)


def test_a_file_that_is_taken_away_is_missed_not_made_anew(path: Path) -> None:
    away = path.with_suffix(".away")

    async def lose_it() -> None:
        async with opened(path) as store:
            await store.submit([new_task()])
            os.rename(path, away)
            for call in (lambda: store.submit([new_task()]), store.queues, store.now):
                with pytest.raises(StoreUnavailable, match="put it back"):
                    await call()
            assert not os.access(path, os.F_OK)
            os.rename(away, path)
            await store.submit([new_task()])
            assert (await store.queues())[0].counts == {"queued": 2}

    asyncio.run(lose_it())


def test_the_last_to_close_leaves_no_journal_behind(path: Path) -> None:
    asyncio.run(use(path))
    assert sorted(file.name for file in path.parent.iterdir()) == ["tasks.db", "tasks.db-lock", "tasks.db-turn"]


# The schema


def test_a_newer_schema_is_refused_and_nothing_is_written(path: Path) -> None:
    asyncio.run(use(path))
    with closing(sqlite3.connect(path)) as conn:
        conn.execute("INSERT INTO holdfast_schema VALUES (99, '0099_later', 0)")
        conn.commit()
    before = path.read_bytes()
    refused = refusal(path)
    assert isinstance(refused, SchemaMismatch)
    assert "99" in str(refused)
    assert path.read_bytes() == before


def test_a_schema_that_moves_on_under_an_open_store_stops_its_writes(path: Path) -> None:
    async def move_on() -> None:
        async with opened(path) as store:
            await store.submit([new_task()])
            with closing(sqlite3.connect(path)) as conn:
                conn.execute("INSERT INTO holdfast_schema VALUES (99, '0099_later', 0)")
                conn.commit()
            with pytest.raises(SchemaMismatch):
                await store.submit([new_task()])
            with pytest.raises(SchemaMismatch):
                await store.leave("worker-1")

    asyncio.run(move_on())
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT count(*) FROM holdfast_tasks").fetchone() == (1,)


def test_many_processes_open_a_new_file_at_once(path: Path) -> None:
    with ExitStack() as stack:
        children = [stack.enter_context(child("first_use", path)) for _ in range(4)]
        for one in children:
            assert one.said() == "here"
        for one in children:
            one.go_on()
        assert [one.said() for one in children] == ["done"] * 4
    with closing(sqlite3.connect(path)) as conn:
        assert conn.execute("SELECT version FROM holdfast_schema").fetchall() == [(s.version,) for s in schema.steps()]
        assert conn.execute("SELECT count(*) FROM holdfast_tasks").fetchone() == (4,)


OLD_TASK = """
INSERT INTO holdfast_tasks (id, name, queue, priority, status, run_at, attempt, max_attempts, policy, created_at,
    concurrency_key, payload)
VALUES (?, 'probe', 'default', 0, 'queued', ?, ?, 5, ?, 0, ?, 'null')
"""


def test_a_file_of_the_first_version_goes_on_with_its_tasks(path: Path) -> None:
    """One that had begun and backs off still goes first in its key."""
    policy = policy_text(DEFAULT_BACKOFF, None, None)
    with closing(sqlite3.connect(path)) as conn:
        schema._do(conn, schema.steps()[0], 0)
        for task in (("begun", 2**60, 1, policy, "k"), ("later", 0, 0, policy, "k"), ("other", 0, 0, policy, None)):
            conn.execute(OLD_TASK, task)
        conn.execute("INSERT INTO holdfast_queues (name) VALUES ('default')")
        conn.execute("INSERT INTO holdfast_counts VALUES ('default', 'queued', 3)")
        conn.commit()

    async def go_on() -> tuple[str, str]:
        async with opened(path) as store:
            await store.limit("default", {"max_running_per_key": 1})
            first = await claim_one(store)
            await store.limit("default", {"max_running_per_key": None})
            return first.task_id, (await claim_one(store)).task_id

    assert asyncio.run(go_on()) == ("other", "later")


def test_a_migration_that_fails_half_way_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = schema.Step(1, "0001_broken", "CREATE TABLE holdfast_schema (version INTEGER); CREATE TABEL oops;")
    monkeypatch.setattr(schema, "steps", lambda: (broken,))
    assert isinstance(refusal(path), StoreUnavailable)
    monkeypatch.undo()
    asyncio.run(use(path))


def test_a_dry_run_says_what_is_to_be_done_and_does_nothing(path: Path) -> None:
    async def migrate() -> None:
        names = [step.name for step in schema.steps()]
        async with opened(path) as store:
            assert await store.migrate(dry_run=True) == names
            assert list(path.parent.iterdir()) == []
            assert await store.migrate() == names
            assert await store.migrate() == []
            assert await store.migrate(dry_run=True) == []

    asyncio.run(migrate())


# Doctor


def test_the_doctor_finds_a_new_file_well(path: Path) -> None:
    async def check() -> list[tuple[str, bool | None, str]]:
        async with opened(path) as store:
            await store.submit([new_task(queue=queue) for queue in "aab"])
            return await store.check()

    findings = asyncio.run(check())
    assert {question for question, _, _ in findings} >= {"SQLite version", "journal mode", "durable", "counts"}
    assert all(well for _, well, _ in findings), findings


def test_the_doctor_notices_open_modes_and_wrong_counts(path: Path) -> None:
    async def check() -> dict[str, bool | None]:
        async with opened(path, synchronous="normal") as store:
            parent = new_task(run_id="r")
            await store.submit([parent, new_task(run_id="r", parents=(parent.id,))])
            os.chmod(path, 0o644)
            with closing(sqlite3.connect(path)) as conn:
                conn.execute("UPDATE holdfast_counts SET n = n + 1")
                conn.execute("UPDATE holdfast_tasks SET pending = pending + 1 WHERE status = 'waiting'")
                conn.commit()
            return {question: well for question, well, _ in await store.check()}

    assert {question for question, well in asyncio.run(check()).items() if not well} == {
        "durable",
        "file mode",
        "counts",
        "parents",
    }


@pytest.mark.parametrize(
    ("version", "has_it"),
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 45, 0), True),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
    ],
)
def test_the_doctor_knows_which_versions_have_the_reset_bug(version: tuple[int, ...], has_it: bool) -> None:
    assert doctor.has_reset_bug(version) is has_it
