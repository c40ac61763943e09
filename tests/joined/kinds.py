"""Every kind of connection that a submit can join, each as a transaction that ends as told.

A kind opens a connection, begins, hands it to `work`, and commits or rolls back in the way of its library. Beside the
task, `work` writes a row of its own, through the same connection, so that a test sees both come or go together.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import asyncpg
import django
import psycopg
import sqlalchemy
from django.conf import settings
from django.db import connections, transaction
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from tests import postgres_server

Work = Callable[[Any, Callable[[str], Any]], Any]
"""Gets the connection, and a function that runs a statement of the test's own on it."""
AsyncWork = Callable[[Any, Callable[[str], Awaitable[Any]]], Awaitable[Any]]


class RolledBack(Exception):
    """What a test raises to make a transaction end badly."""


class Place(NamedTuple):
    """Where the store is."""

    url: str
    options: dict[str, Any]


def postgres_place() -> Place:
    return Place(postgres_server.server().url, {"schema": postgres_server.fresh_schema()})


def sqlite_place(folder: Path) -> Place:
    return Place(f"sqlite:///{folder}/tasks.db", {})


def sqlite_file(place: Place) -> str:
    return place.url.removeprefix("sqlite:///")


# PostgreSQL, awaited


async def with_asyncpg(place: Place, work: AsyncWork) -> Any:
    connection = await asyncpg.connect(place.url)
    try:
        async with connection.transaction():
            return await work(connection, connection.execute)
    finally:
        await connection.close()


async def with_asyncpg_pool(place: Place, work: AsyncWork) -> Any:
    async with (
        asyncpg.create_pool(place.url, min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        return await work(connection, connection.execute)


async def with_async_psycopg(place: Place, work: AsyncWork) -> Any:
    async with await psycopg.AsyncConnection.connect(place.url, row_factory=psycopg.rows.dict_row) as connection:
        return await work(connection, connection.execute)


def async_engine(place: Place, driver: str) -> Any:
    return create_async_engine(place.url.replace("postgresql:", f"postgresql+{driver}:"), poolclass=NullPool)


async def with_async_session(place: Place, work: AsyncWork, driver: str = "asyncpg") -> Any:
    async with AsyncSession(async_engine(place, driver)) as session, session.begin():
        return await work(session, lambda sql: session.execute(sqlalchemy.text(sql)))


async def with_async_session_psycopg(place: Place, work: AsyncWork) -> Any:
    return await with_async_session(place, work, "psycopg")


async def with_async_alchemy(place: Place, work: AsyncWork, driver: str = "asyncpg") -> Any:
    async with async_engine(place, driver).begin() as connection:
        return await work(connection, connection.exec_driver_sql)


async def with_async_alchemy_psycopg(place: Place, work: AsyncWork) -> Any:
    return await with_async_alchemy(place, work, "psycopg")


# PostgreSQL, plain


def with_psycopg(place: Place, work: Work) -> Any:
    with psycopg.connect(place.url, row_factory=psycopg.rows.dict_row) as connection:
        return work(connection, connection.execute)


def with_psycopg_autocommit(place: Place, work: Work) -> Any:
    """The transaction is one that its owner has begun."""
    with psycopg.connect(place.url, autocommit=True) as connection, connection.transaction():
        return work(connection, connection.execute)


def engine(place: Place) -> Any:
    url = place.url.replace("postgresql:", "postgresql+psycopg:")
    return sqlalchemy.create_engine(url, poolclass=NullPool)


def with_session(place: Place, work: Work) -> Any:
    with Session(engine(place)) as session, session.begin():
        return work(session, lambda sql: session.execute(sqlalchemy.text(sql)))


def with_alchemy(place: Place, work: Work) -> Any:
    with engine(place).begin() as connection:
        return work(connection, connection.exec_driver_sql)


def with_django(place: Place, work: Work) -> Any:
    return _django(_django_postgres(place), work)


# SQLite, plain


def with_sqlite3(place: Place, work: Work) -> Any:
    with closing(sqlite3.connect(sqlite_file(place))) as connection, connection:
        connection.row_factory = sqlite3.Row
        connection.text_factory = bytes
        return work(connection, connection.execute)


def with_sqlite3_begun(place: Place, work: Work) -> Any:
    """No help from the driver: its owner says BEGIN and COMMIT."""
    with closing(sqlite3.connect(sqlite_file(place), isolation_level=None)) as connection:
        connection.execute("BEGIN")
        try:
            answer = work(connection, connection.execute)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")
        return answer


def with_sqlite_session(place: Place, work: Work) -> Any:
    with Session(engine(place)) as session, session.begin():
        return work(session, lambda sql: session.execute(sqlalchemy.text(sql)))


def with_sqlite_alchemy(place: Place, work: Work) -> Any:
    with engine(place).begin() as connection:
        return work(connection, connection.exec_driver_sql)


def with_sqlite_django(place: Place, work: Work) -> Any:
    return _django({"ENGINE": "django.db.backends.sqlite3", "NAME": sqlite_file(place)}, work)


# Django has one set of settings per process; each test brings its own database into it.


def _django_postgres(place: Place) -> dict[str, Any]:
    parts = sqlalchemy.make_url(place.url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": parts.database,
        "USER": parts.username,
        "PASSWORD": parts.password or "",
        "HOST": parts.host,
        "PORT": parts.port,
    }


def django_connection(database: dict[str, Any]) -> Any:
    if not settings.configured:
        settings.configure(DATABASES={}, USE_TZ=True)
        django.setup()
    connections.settings = connections.configure_settings({"default": database})
    if hasattr(connections._connections, "default"):
        del connections["default"]
    return connections["default"]


def _django(database: dict[str, Any], work: Work) -> Any:
    connection = django_connection(database)

    def run(sql: str) -> None:
        with connection.cursor() as cursor:
            cursor.execute(sql)

    try:
        with transaction.atomic():
            return work(django.db.connection, run)
    finally:
        connection.close()


AWAITED: dict[str, Callable[[Place, AsyncWork], Awaitable[Any]]] = {
    "asyncpg": with_asyncpg,
    "asyncpg, pooled": with_asyncpg_pool,
    "psycopg AsyncConnection": with_async_psycopg,
    "SQLAlchemy AsyncSession, asyncpg": with_async_session,
    "SQLAlchemy AsyncSession, psycopg": with_async_session_psycopg,
    "SQLAlchemy AsyncConnection, asyncpg": with_async_alchemy,
    "SQLAlchemy AsyncConnection, psycopg": with_async_alchemy_psycopg,
}

PLAIN: dict[str, Callable[[Place, Work], Any]] = {
    "psycopg Connection": with_psycopg,
    "psycopg Connection, autocommit": with_psycopg_autocommit,
    "SQLAlchemy Session, psycopg": with_session,
    "SQLAlchemy Connection, psycopg": with_alchemy,
    "Django, postgresql": with_django,
    "sqlite3": with_sqlite3,
    "sqlite3, begun by hand": with_sqlite3_begun,
    "SQLAlchemy Session, sqlite3": with_sqlite_session,
    "SQLAlchemy Connection, sqlite3": with_sqlite_alchemy,
    "Django, sqlite3": with_sqlite_django,
}


def place_of(kind: str, folder: Path) -> Place:
    return sqlite_place(folder) if "sqlite" in kind else postgres_place()
