"""From a NATS URL to handles. Nothing is opened before a handle is first used."""

from __future__ import annotations

from typing import Any

from holdfast.clock import Clock
from holdfast.stores.nats.options import parsed
from holdfast.stores.nats.shared import SharedStore
from holdfast.stores.protocol import StoreFactory


def factory(url: str, *, clock: Clock, **options: Any) -> StoreFactory:
    wanted = parsed(url, options)
    return lambda: SharedStore(wanted, clock)
