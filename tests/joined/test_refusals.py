"""Connections that cannot be joined: refused at once, in words, with nothing written and the transaction usable."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import psycopg
import pytest
import sqlalchemy
from sqlalchemy.orm import Session

from holdfast import Holdfast
from holdfast.errors import InvalidTask, NotSupported, SchemaMismatch, StoreUnavailable
from holdfast.stores.joined.script import message, sqlstate
from tests import postgres_server
from tests.joined import kinds


@pytest.fixture
def postgres() -> Iterator[Holdfast]:
    place = kinds.postgres_place()
    with Holdfast(place.url, **place.options) as app:
        yield app


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[Holdfast]:
    with Holdfast(f"sqlite:///{tmp_path}/tasks.db") as app:
        yield app


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """The URL of another database on the same server."""
    postgres_server.run_apart(lambda conn: conn.execute("create database elsewhere"))
    yield postgres_server.server().url.rpartition("/")[0] + "/elsewhere"
    postgres_server.run_apart(lambda conn: conn.execute("drop database elsewhere with (force)"))


def count(app: Holdfast) -> int:
    return sum(app.tasks.count().values())


def test_a_database_without_our_schema_is_refused_and_its_transaction_goes_on(
    postgres: Holdfast, elsewhere: str
) -> None:
    with psycopg.connect(elsewhere) as connection:
        with pytest.raises(SchemaMismatch, match="no Holdfast in schema"):
            postgres.using(connection=connection).enqueue("probe")
        assert connection.execute("select 1").fetchone() == (1,)


def test_the_same_schema_in_another_database_is_refused_and_its_transaction_goes_on(
    postgres: Holdfast, elsewhere: str
) -> None:
    schema = postgres.connections.factory()._options.schema  # type: ignore[attr-defined]
    with Holdfast(elsewhere, schema=schema) as other:
        other.queues.list()
        with psycopg.connect(elsewhere) as connection:
            with pytest.raises(InvalidTask, match="another database"):
                postgres.using(connection=connection).enqueue("probe")
            other.using(connection=connection).enqueue("probe")
        assert (count(postgres), count(other)) == (0, 1)


def test_a_connection_outside_of_a_transaction_is_refused(postgres: Holdfast) -> None:
    url = postgres_server.server().url

    async def use() -> None:
        connection = await asyncpg.connect(url)
        try:
            with pytest.raises(InvalidTask, match="no transaction open"):
                await postgres.using(connection=connection).aenqueue("probe")
        finally:
            await connection.close()

    asyncio.run(use())
    with psycopg.connect(url, autocommit=True) as connection, pytest.raises(InvalidTask, match="no transaction open"):
        postgres.using(connection=connection).enqueue("probe")
    autocommit = kinds.engine(kinds.Place(url, {})).execution_options(isolation_level="AUTOCOMMIT")
    with Session(autocommit) as session, pytest.raises(InvalidTask, match="no transaction open"):
        postgres.using(connection=session).enqueue("probe")
    connection = kinds.django_connection(kinds._django_postgres(kinds.Place(url, {})))
    with closing(connection), pytest.raises(InvalidTask, match="no transaction open"):
        postgres.using(connection=connection).enqueue("probe")
    assert count(postgres) == 0


def test_a_sqlite_connection_outside_of_a_transaction_is_refused(sqlite: Holdfast, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "tasks.db", isolation_level=None)) as connection:
        with pytest.raises(InvalidTask, match="no transaction open"):
            sqlite.using(connection=connection).enqueue("probe")
        assert not connection.in_transaction


def test_another_file_is_refused(sqlite: Holdfast, tmp_path: Path) -> None:
    sqlite.queues.list()
    for name in (":memory:", str(tmp_path / "other.db")):
        with closing(sqlite3.connect(name)) as connection:
            with pytest.raises(InvalidTask, match="the tasks are in"):
                sqlite.using(connection=connection).enqueue("probe")
            assert not connection.in_transaction
            assert connection.execute("select count(*) from sqlite_master").fetchone() == (0,)


def test_a_file_by_another_name_is_the_same_file(sqlite: Holdfast, tmp_path: Path) -> None:
    sqlite.queues.list()
    (tmp_path / "link.db").symlink_to(tmp_path / "tasks.db")
    with closing(sqlite3.connect(tmp_path / "link.db")) as connection, connection:
        sqlite.using(connection=connection).enqueue("probe")
    assert count(sqlite) == 1


def test_a_file_of_another_version_is_refused(sqlite: Holdfast, tmp_path: Path) -> None:
    sqlite.queues.list()
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection, connection:
        newest = "where version = (select max(version) from holdfast_schema)"
        connection.execute(f"update holdfast_schema set version = version + 1 {newest}")
        with pytest.raises(SchemaMismatch):
            sqlite.using(connection=connection).enqueue("probe")
        connection.execute(f"update holdfast_schema set version = version - 1 {newest}")
        sqlite.using(connection=connection).enqueue("probe")
    assert count(sqlite) == 1


def test_a_fresh_file_gets_its_tables_with_the_transaction(sqlite: Holdfast, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
        connection.execute("create table orders (n integer)")
        connection.execute("insert into orders values (1)")
        sqlite.using(connection=connection).enqueue("probe")
        connection.rollback()
        assert connection.execute("select name from sqlite_master").fetchall() == [("orders",)]
        connection.execute("insert into orders values (1)")
        sqlite.using(connection=connection).enqueue("probe")
        connection.commit()
    assert count(sqlite) == 1
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection:
        assert connection.execute("pragma journal_mode").fetchone() == ("wal",)


def test_a_file_that_somebody_else_writes_is_refused_when_the_caller_has_waited(
    sqlite: Holdfast, tmp_path: Path
) -> None:
    sqlite.queues.list()
    file = tmp_path / "tasks.db"
    with closing(sqlite3.connect(file)) as writer, closing(sqlite3.connect(file, timeout=0.05)) as connection:
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="somebody else"):
            sqlite.using(connection=connection).enqueue("probe")
        writer.rollback()
        with connection:
            sqlite.using(connection=connection).enqueue("probe")
    assert count(sqlite) == 1


def test_automatic_checkpoints_are_off_on_a_connection_that_was_joined(sqlite: Holdfast, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "tasks.db")) as connection, connection:
        sqlite.using(connection=connection).enqueue("probe")
        assert connection.execute("pragma wal_autocheckpoint").fetchone() == (0,)


def test_a_connection_of_the_other_store_is_refused(postgres: Holdfast, sqlite: Holdfast) -> None:
    with closing(sqlite3.connect(":memory:")) as connection, pytest.raises(InvalidTask, match="leads to sqlite"):
        postgres.using(connection=connection).enqueue("probe")
    with psycopg.connect(postgres_server.server().url) as connection, pytest.raises(InvalidTask, match="postgresql"):
        sqlite.using(connection=connection).enqueue("probe")


def test_what_is_no_connection_is_refused_by_name(postgres: Holdfast) -> None:
    with psycopg.connect(postgres_server.server().url) as connection:
        engine = sqlalchemy.create_engine("sqlite://")
        for thing in (object(), "postgresql://", connection.cursor(), engine, sqlite3.connect(":memory:").cursor()):
            with pytest.raises(InvalidTask, match=r"connection is a .*; give"):
                postgres.using(connection=thing).enqueue("probe")


def test_memory_has_no_transaction_to_join() -> None:
    refused = pytest.raises(NotSupported, match="SQLite or PostgreSQL")
    with Holdfast("memory://") as app, closing(sqlite3.connect(":memory:")) as connection, refused:
        app.using(connection=connection).enqueue("probe")


def test_a_call_carries_no_connection_and_many_calls_no_other_option(sqlite: Holdfast) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(InvalidTask, match="enqueue_many"):
            sqlite.using(connection=connection).s("probe")
        with pytest.raises(TypeError, match="priority"):
            sqlite.using(connection=connection, priority=3).enqueue_many([])
        with pytest.raises(InvalidTask):
            sqlite.using(connection=connection).enqueue_many([sqlite.s("probe")])


def test_codes_and_words_are_found_under_what_libraries_wrap_around_them() -> None:
    class Inner(Exception):
        sqlstate = "HF409"

    class Wrapped(Exception):
        orig: Any = None

    wrapped = Wrapped("outside")
    wrapped.orig = Inner("running 3\nCONTEXT: a function")
    assert (sqlstate(wrapped), message(wrapped)) == ("HF409", "running 3")
    assert sqlstate(ValueError()) == ""
