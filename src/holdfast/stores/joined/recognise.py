"""Which library a connection comes from, told by the modules of its types: none of them is imported for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.errors import InvalidTask
from holdfast.stores.joined import drivers
from holdfast.stores.joined.callers import Caller

KNOWN: dict[str, Callable[[Any], Caller]] = {
    "asyncpg": drivers.asyncpg,
    "psycopg": drivers.psycopg,
    "psycopg2": drivers.psycopg2,
    "sqlalchemy": drivers.sqlalchemy,
    "django": drivers.django,
    "sqlite3": drivers.sqlite,
    "holdfast": drivers.own,
}


def caller_of(connection: object) -> Caller:
    for kind in type(connection).__mro__:
        made = KNOWN.get(kind.__module__.partition(".")[0])
        if made is not None:
            return made(connection)
    raise InvalidTask(
        f"connection is a {type(connection).__module__}.{type(connection).__qualname__}; give an open connection (or "
        "session) of asyncpg, psycopg, SQLAlchemy, Django or sqlite3"
    )
