"""Which tables the schema has, and how it gets the ones that this version knows.

Steps are the numbered files in migrations/, all open ones applied in one transaction with their rows in `migrations`:
whoever is killed on the way leaves the old schema. Two that migrate at once take turns by an advisory lock, so each
step is done once. Workers may be at work meanwhile: a step waits only a moment for its locks, because everybody else
would queue up behind it, and is tried again from the start.

This version works on its own schema and on those before it down to OLDEST (a new worker beside old ones, before the
migration), and refuses any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

import asyncpg

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import SchemaMismatch
from holdfast.stores.postgres.statements import filled

if TYPE_CHECKING:
    from holdfast.stores.postgres.database import Connection

OLDEST = 8
"""Inputs are in every submit, outputs in every prune. Schemas without them were never part of a release."""
LOCK_SECONDS = 0.2
"""How long a step waits for a lock, and so how long it can hold up a claim that comes after it."""
PATIENCE_SECONDS = 60.0
"""How long it is tried again where others hold locks for longer."""

# Catalogs are read as tables here: to_regclass() and its kin answer from a cache that may be older than the lock. The
# schema's name comes quoted.
_HAS_SCHEMA = "SELECT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = (pg_catalog.parse_ident($1))[1])"
_HAS_TABLES = """
SELECT EXISTS (
    SELECT FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE n.nspname = (pg_catalog.parse_ident($1))[1] AND c.relname = 'migrations'
)
"""
_MAY_CREATE = """
SELECT coalesce(
    (SELECT pg_catalog.has_schema_privilege(oid, 'CREATE') FROM pg_catalog.pg_namespace
     WHERE nspname = (pg_catalog.parse_ident($1))[1]),
    pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CREATE')
)
"""
_HURRY = "SELECT pg_catalog.set_config('lock_timeout', $1, true), pg_catalog.set_config('statement_timeout', '0', true)"
_LOCK = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended('holdfast migrates ' || $1, 0))"


@dataclass(frozen=True, slots=True)
class Step:
    version: int
    name: str
    sql: str


@cache
def steps() -> tuple[Step, ...]:
    found = []
    for entry in files(__package__).joinpath("migrations").iterdir():
        if entry.name.endswith(".sql"):
            name = entry.name.removesuffix(".sql")
            found.append(Step(int(name.split("_")[0]), name, entry.read_text(encoding="utf-8")))
    return tuple(sorted(found, key=lambda step: step.version))


def newest() -> int:
    return steps()[-1].version


def oldest() -> int:
    """The oldest version that this Holdfast works on."""
    return OLDEST


def steps_after(version: int) -> list[Step]:
    return [step for step in steps() if step.version > version]


# The version that is there


async def version_of(conn: Connection, schema: str) -> int:
    """0 where the database has none of our tables. `schema` is quoted, here as everywhere below."""
    if not await conn.fetchval(_HAS_TABLES, schema):
        return 0
    asked = f"SELECT pg_catalog.max(version) FROM {schema}.migrations"  # noqa: S608  a checked, quoted name
    return int(await conn.fetchval(asked) or 0)


def refuse_newer(version: int, label: str) -> None:
    if version > newest():
        raise SchemaMismatch(
            f"{label} has schema version {version} and this Holdfast knows {newest()} at most; "
            "nothing was written: install the newer Holdfast that made it"
        )


def refuse_older(version: int, label: str) -> None:
    if version < oldest():
        has = f"has schema version {version}, which is too old" if version else "has no tables of Holdfast"
        raise SchemaMismatch(f"{label} {has}; run `holdfast migrate` as the owner of the schema")


async def may_create(conn: Connection, schema: str) -> bool:
    return bool(await conn.fetchval(_MAY_CREATE, schema))


# Doing the steps


async def migrate(conn: Connection, schema: str, label: str, *, upto: int | None = None) -> list[str]:
    """Do what is open, all or nothing; the names of the steps done here."""
    gives_up_at = SYSTEM_CLOCK.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return await _try(conn, schema, label, newest() if upto is None else upto)
        except asyncpg.LockNotAvailableError:
            if SYSTEM_CLOCK.monotonic() > gives_up_at:
                raise
        # Those who queued up behind us go first.
        await asyncio.sleep(LOCK_SECONDS * (0.5 + ids.JITTER.random()))


async def _try(conn: Connection, schema: str, label: str, upto: int) -> list[str]:
    async with conn.transaction():
        await conn.execute(_HURRY, f"{LOCK_SECONDS * 1000:.0f}")
        await conn.execute(_LOCK, schema)
        version = await version_of(conn, schema)
        refuse_newer(version, label)
        todo = [step for step in steps_after(version) if step.version <= upto]
        if todo and not await conn.fetchval(_HAS_SCHEMA, schema):
            create = f"CREATE SCHEMA {schema}"
            await conn.execute(create)
        for step in todo:
            await conn.execute(script(step, schema))
            await conn.execute(_record(schema), step.version, step.name)
    return [step.name for step in todo]


def _record(schema: str) -> str:
    return f"INSERT INTO {schema}.migrations (version, name) VALUES ($1, $2)"  # noqa: S608  a checked, quoted name


# The steps as text


def script(step: Step, schema: str) -> str:
    return filled(step.sql, schema)


_HEAD = """\
-- Holdfast: {names}
-- For one transaction: psql -X -1 -v ON_ERROR_STOP=1 -f this.sql, or a step of your own migration tool.
-- Names in it are looked up in pg_catalog, whatever the session's search_path; at the end that is as it was.
SELECT pg_catalog.set_config('holdfast.search_path', pg_catalog.current_setting('search_path'), true);
SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
"""
_CREATE = """\
DO $create$ BEGIN
    IF pg_catalog.to_regnamespace('{schema}') IS NULL THEN CREATE SCHEMA {schema}; END IF;
END $create$;
"""
_FOOT = "SELECT pg_catalog.set_config('search_path', pg_catalog.current_setting('holdfast.search_path'), true);\n"


def whole_script(todo: Sequence[Step], schema: str) -> str:
    """What migrate() would do, for people who run their SQL themselves."""
    if not todo:
        return ""
    parts = [_HEAD.replace("{names}", ", ".join(step.name for step in todo))]
    if todo[0] is steps()[0]:
        parts.append(filled(_CREATE, schema))
    for step in todo:
        # The step's name is that of our own file.
        record = f"INSERT INTO {schema}.migrations (version, name) VALUES ({step.version}, '{step.name}');"  # noqa: S608
        parts.append(f"-- {step.name}\n{script(step, schema)}\n{record}\n")
    return "\n".join([*parts, _FOOT])
