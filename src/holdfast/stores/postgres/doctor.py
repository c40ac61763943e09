"""What `holdfast doctor` asks of a PostgreSQL server: (question, is it well, in words); None is a warning.

Every answer that is not well says what to do next. A user without the right to see other users' sessions
(pg_read_all_stats) gets answers about what it may see.
"""

from __future__ import annotations

from typing import Any

from holdfast.policy.relaying import backlog
from holdfast.stores.postgres import outbox, reads, schema
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.pool import Session

Finding = tuple[str, bool | None, str]

LONG_SECONDS = 300
"""A snapshot that is open for longer keeps dead rows from being removed, and queues make many."""
FEW_CONNECTIONS = 10
MANY_DEAD_ROWS = 100_000

_SERVER = """
SELECT current_setting('server_version') AS version, current_setting('server_encoding') AS encoding,
    current_setting('autovacuum')::boolean AS autovacuum,
    current_setting('max_connections')::integer - current_setting('superuser_reserved_connections')::integer
        - (SELECT sum(numbackends) FROM pg_stat_database)::integer AS connections_left
"""
_HORIZON = """
SELECT holder, extract(epoch FROM clock_timestamp() - since)::bigint AS seconds
FROM (
    SELECT format('session %s of %s', pid, usename) AS holder, xact_start AS since
    FROM pg_stat_activity
    WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() AND datname = current_database()
    UNION ALL
    SELECT format('prepared transaction %L of %s', gid, owner), prepared
    FROM pg_prepared_xacts WHERE database = current_database()
) AS open
WHERE since IS NOT NULL
ORDER BY since LIMIT 1
"""
_BLOATED = """
SELECT relname AS name, n_dead_tup AS dead, n_live_tup AS live
FROM pg_stat_user_tables
WHERE schemaname = $1 AND n_dead_tup > greatest($2::bigint, 5 * n_live_tup)
ORDER BY n_dead_tup DESC LIMIT 1
"""
_RIGHTS = """
SELECT
    current_user::text AS name,
    has_any_column_privilege(c.oid, 'INSERT') AS submit,
    has_table_privilege(c.oid, 'UPDATE') AND has_table_privilege(c.oid, 'DELETE') AS work,
    pg_has_role(c.relowner, 'USAGE') AS migrate
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = $1 AND c.relname = 'tasks'
"""


async def findings(session: Session, options: Options) -> list[Finding]:
    server = await session.conn.fetchrow(_SERVER)
    return [
        ("PostgreSQL version", True, f"{server['version']}, {server['encoding']}"),
        await _durable(session),
        await _schema(session, options),
        await _rights(session, options),
        _pooler(options),
        _connections(server),
        _vacuumed(server),
        await _horizon(session),
        await _bloat(session, options),
        await _counted(session),
        await _outbox(session),
    ]


async def _durable(session: Session) -> Finding:
    names = ("fsync", "full_page_writes", "synchronous_commit")
    off = [name for name in names if await _setting(session, name) == "off"]
    if off:
        return "durable", False, f"{' and '.join(off)} off: an acknowledged task may be lost in a crash; turn it on"
    return "durable", True, "an acknowledged task survives a crash of the server"


async def _setting(session: Session, name: str) -> str:
    return str(await session.conn.fetchval("SELECT pg_catalog.current_setting($1)", name))


async def _schema(session: Session, options: Options) -> Finding:
    version, newest = await schema.version_of(session.conn, options.quoted_schema), schema.newest()
    if version == newest:
        return "schema", True, f"version {version}"
    return "schema", None, f"version {version}, this Holdfast knows {newest}; run `holdfast migrate` as its owner"


async def _rights(session: Session, options: Options) -> Finding:
    row = await session.conn.fetchrow(_RIGHTS, options.schema)
    may = ["look", *(verb for verb in ("submit", "work", "migrate") if row[verb])]
    return "rights", True, f"{row['name']} may {', '.join(may)}"


def _pooler(options: Options) -> Finding:
    match options.pooler:
        case "transaction":
            return "pooler", None, "in transaction mode: work of a killed worker waits until its lease is over"
        case "session":
            return "pooler", True, "in session mode"
        case _:
            return "pooler", True, "none"


def _connections(server: Any) -> Finding:
    left = server["connections_left"]
    if left < FEW_CONNECTIONS:
        return "connections", None, f"{left} left; raise max_connections, run fewer workers, or use a pooler"
    return "connections", True, f"{left} left"


def _vacuumed(server: Any) -> Finding:
    if server["autovacuum"]:
        return "autovacuum", True, "on"
    return "autovacuum", None, "off: every task leaves dead rows, and the tables only grow; turn it on"


async def _horizon(session: Session) -> Finding:
    oldest = await session.conn.fetchrow(_HORIZON)
    if oldest is None or oldest["seconds"] < LONG_SECONDS:
        return "open snapshots", True, "none that is old"
    words = f"{oldest['holder']} keeps one for {oldest['seconds']} s: dead rows stay until it ends; end it"
    return "open snapshots", None, words


async def _bloat(session: Session, options: Options) -> Finding:
    worst = await session.conn.fetchrow(_BLOATED, options.schema, MANY_DEAD_ROWS)
    if worst is None:
        return "dead rows", True, "few"
    words = f"{worst['dead']} beside {worst['live']} live ones in {worst['name']}; VACUUM it, and look at autovacuum"
    return "dead rows", None, words


async def _outbox(session: Session) -> Finding:
    """Viewers may not see what relays need; they may see this."""
    return "outbox", *backlog(await outbox.sinks(session), await reads.now(session))


async def _counted(session: Session) -> Finding:
    wrong = await session.row("miscounted")
    if wrong is None:
        return "counts", True, "equal to the real ones"
    queue, status = wrong
    return "counts", False, f"differ from the real ones, first at {queue!r}, {status}; this is a bug: please report it"
