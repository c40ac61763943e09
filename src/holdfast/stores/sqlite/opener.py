"""From a SQLite URL to handles. Nothing is opened before a handle is first used."""

from __future__ import annotations

from typing import Any

from holdfast.clock import Clock
from holdfast.stores.protocol import StoreFactory
from holdfast.stores.sqlite.options import parsed
from holdfast.stores.sqlite.store import SQLiteStore


def factory(url: str, *, clock: Clock, **options: Any) -> StoreFactory:
    wanted = parsed(url, options)
    return lambda: SQLiteStore(wanted, clock)
