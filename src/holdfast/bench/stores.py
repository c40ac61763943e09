"""The store that is measured: empty at the start, filled in bulk, watched by its own counts.

Every figure counts what the store shows, not what a worker believes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from holdfast.app import Holdfast
from holdfast.clock import SYSTEM_CLOCK
from holdfast.declared import DeclaredTask
from holdfast.errors import HoldfastError, NotSupported

SUBMIT_BATCH = 20_000
LOOK_SECONDS = 0.01
PATIENCE_SECONDS = 600.0
_DRIVERS = ("host", "port", "user", "password", "dbname", "service", "passfile", "target_session_attrs")


def kind(url: str) -> str:
    """memory, sqlite, postgresql or nats."""
    scheme = urlsplit(url).scheme.partition("+")[0]
    return {"postgres": "postgresql", "tls": "nats"}.get(scheme, scheme)


def require_shared(url: str, what: str) -> None:
    if kind(url) == "memory":
        raise NotSupported(f"{what} needs a store that several processes can open; give a sqlite or postgresql URL")


def require_postgres(url: str, what: str) -> None:
    if kind(url) != "postgresql":
        raise NotSupported(f"{what} is a question for PostgreSQL; give --url postgresql://…")


def driver_dsn(url: str) -> str:
    """The same database for the bare driver, without what only Holdfast understands."""
    parts = urlsplit(url)
    known = [(name, value) for name, value in parse_qsl(parts.query) if name in _DRIVERS or name.startswith("ssl")]
    return urlunsplit(("postgresql", parts.netloc, parts.path, urlencode(known), ""))


def require_empty(app: Holdfast) -> None:
    if any(app.tasks.count().values()):
        raise HoldfastError("the store holds tasks already; measure on one of its own")


def fill(app: Holdfast, noop: DeclaredTask[[int], None, object], tasks: int) -> None:
    for first in range(0, tasks, SUBMIT_BATCH):
        app.enqueue_many([noop.s(number) for number in range(first, min(first + SUBMIT_BATCH, tasks))])


def tidy(url: str) -> None:
    """Leave a PostgreSQL database as it is after a quiet hour: vacuumed, with statistics, its writes on disk."""
    if kind(url) == "postgresql":
        asyncio.run(_tidy(driver_dsn(url)))


async def _tidy(dsn: str) -> None:
    conn = await asyncpg.connect(dsn)
    try:
        await conn.execute("VACUUM ANALYZE")
        await conn.execute("CHECKPOINT")
    except asyncpg.InsufficientPrivilegeError:
        return  # only an owner may; then it is measured as it is
    finally:
        await conn.close()


def wait_until(reached: Callable[[], bool], what: str, *, still_well: Callable[[], None] = lambda: None) -> float:
    """The moment at which `reached` was first seen true."""
    given_up_at = SYSTEM_CLOCK.monotonic() + PATIENCE_SECONDS
    while not reached():
        still_well()
        if SYSTEM_CLOCK.monotonic() > given_up_at:
            raise HoldfastError(f"waited {PATIENCE_SECONDS:g} s for {what}, in vain")
        threading.Event().wait(LOOK_SECONDS)
    return SYSTEM_CLOCK.monotonic()
