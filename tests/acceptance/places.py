"""The stores that worker processes share with a test: a file, a database, a dispatcher in front of either."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tests import postgres_server
from tests.acceptance.cli_driver import Cli
from tests.acceptance.processes import can_write

KINDS = ("sqlite", "postgres", "http-sqlite", "http-postgres")

HELD = """
select exists (
    select from pg_locks join pg_class on pg_class.oid = pg_locks.relation
    where relnamespace = to_regnamespace($1) and pg_locks.pid <> pg_backend_pid()
)
"""


class Place(NamedTuple):
    url: str
    untouched: Callable[[], bool]
    """Nobody is amid a write to it: who is stopped there holds up all others, which is not what is tested."""


def place(kind: str, cli: Cli) -> Place:
    behind = _file(cli) if kind.endswith("sqlite") else _database()
    return _dispatcher(cli, behind) if kind.startswith("http") else behind


def _file(cli: Cli) -> Place:
    file = cli.folder / "tasks.db"
    return Place(f"sqlite:///{file}", partial(can_write, file))


def _database() -> Place:
    server, schema = postgres_server.server(), postgres_server.fresh_schema()

    async def held(conn: Any) -> bool:
        return bool(await conn.fetchval(HELD, schema))

    url = f"{server.url}{'&' if '?' in server.url else '?'}schema={schema}"
    return Place(url, lambda: not postgres_server.run_apart(held))


def _dispatcher(cli: Cli, behind: Place) -> Place:
    """`holdfast serve`, which alone writes: its workers can be stopped at any moment."""
    service = cli.start("--url", behind.url, "serve", "--port", "0")
    url = service.wait_for("dispatcher at")[0].split(" at ")[1].split(" ")[0]
    return Place(url, lambda: True)
