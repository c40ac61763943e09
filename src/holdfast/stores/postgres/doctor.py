"""What `holdfast doctor` asks of a PostgreSQL server: (question, is it well, in words)."""

from __future__ import annotations

from holdfast.stores.postgres import schema
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.pool import Session

Finding = tuple[str, bool, str]


async def findings(session: Session, options: Options) -> list[Finding]:
    return [
        ("PostgreSQL version", True, await _setting(session, "server_version")),
        await _durable(session),
        await _schema(session, options),
        await _counted(session),
    ]


async def _setting(session: Session, name: str) -> str:
    return str(await session.conn.fetchval("SELECT pg_catalog.current_setting($1)", name))


async def _durable(session: Session) -> Finding:
    off = [
        name for name in ("fsync", "full_page_writes", "synchronous_commit") if await _setting(session, name) == "off"
    ]
    if off:
        return "durable", False, f"{' and '.join(off)} off: an acknowledged task may be lost in a crash; turn it on"
    return "durable", True, "an acknowledged task survives a crash of the server"


async def _schema(session: Session, options: Options) -> Finding:
    version = await schema.version_of(session.conn, options.quoted_schema)
    return "schema", version == schema.newest(), f"version {version}, this Holdfast knows {schema.newest()}"


async def _counted(session: Session) -> Finding:
    wrong = await session.row("miscounted")
    if wrong is None:
        return "counts", True, "equal to the real ones"
    queue, status = wrong
    return "counts", False, f"differ from the real ones, first at {queue!r}, {status}; this is a bug: please report it"
