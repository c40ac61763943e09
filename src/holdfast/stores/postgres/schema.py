"""Which tables the schema has, and how it gets the ones that this version knows.

Steps are the numbered files in migrations/, all open ones applied in one transaction with their rows in `migrations`.
Two that migrate at once take turns by an advisory lock, so each step is done once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from holdfast.errors import SchemaMismatch

if TYPE_CHECKING:
    from holdfast.stores.postgres.database import Connection

_EXISTS = "SELECT pg_catalog.to_regclass($1) IS NOT NULL"
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


def script(step: Step, schema: str) -> str:
    """The step's statements for this schema, a quoted name."""
    return step.sql.replace("{schema}", schema)


def whole_script(todo: list[Step], schema: str) -> str:
    """What migrate() would do, for people who run their SQL themselves."""
    parts = [f"CREATE SCHEMA IF NOT EXISTS {schema};\n"] if todo else []
    for step in todo:
        # The step's name is that of our own file.
        record = f"INSERT INTO {schema}.migrations (version, name) VALUES ({step.version}, '{step.name}');"  # noqa: S608
        parts.append(f"-- {step.name}\n{script(step, schema)}\n{record}\n")
    return "\n".join(parts)


def record_sql(schema: str) -> str:
    return f"INSERT INTO {schema}.migrations (version, name) VALUES ($1, $2)"  # noqa: S608  a checked, quoted name


async def version_of(conn: Connection, schema: str) -> int:
    """0 where the database has none of our tables."""
    if not await conn.fetchval(_EXISTS, f"{schema}.migrations"):
        return 0
    asked = f"SELECT pg_catalog.max(version) FROM {schema}.migrations"  # noqa: S608  a checked, quoted name
    return int(await conn.fetchval(asked) or 0)


async def pending(conn: Connection, schema: str, label: str) -> list[Step]:
    """The steps that are open. An unknown newer schema is refused."""
    version = await version_of(conn, schema)
    if version > newest():
        raise SchemaMismatch(
            f"{label} has schema version {version} and this Holdfast knows {newest()} at most; "
            "nothing was written: install the newer Holdfast that made it"
        )
    return [step for step in steps() if step.version > version]


async def migrate(conn: Connection, schema: str, label: str) -> list[str]:
    """Do what is open, all or nothing; the names of the steps done here."""
    async with conn.transaction():
        await conn.execute(_LOCK, schema)
        todo = await pending(conn, schema, label)
        if todo and todo[0].version == steps()[0].version:
            create = f"CREATE SCHEMA IF NOT EXISTS {schema}"
            await conn.execute(create)
        for step in todo:
            await conn.execute(script(step, schema))
            await conn.execute(record_sql(schema), step.version, step.name)
    return [step.name for step in todo]
