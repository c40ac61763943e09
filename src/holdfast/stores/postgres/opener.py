"""From a PostgreSQL URL to handles. Nothing is opened before a handle is first used."""

from __future__ import annotations

from typing import Any

from holdfast.clock import Clock
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.protocol import StoreFactory


def factory(url: str, *, clock: Clock, **options: Any) -> StoreFactory:
    wanted = parsed(url, options)
    return lambda: PostgresStore(wanted, clock)
