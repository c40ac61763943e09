"""From the URL of a dispatcher to handles. Nothing is opened before a handle is first used."""

from __future__ import annotations

from typing import Any

from holdfast.clock import Clock
from holdfast.errors import NotSupported
from holdfast.stores.protocol import StoreFactory
from holdfast.stores.remote.options import parsed


def factory(url: str, *, clock: Clock, **options: Any) -> StoreFactory:  # noqa: ARG001  the store behind has its own
    wanted = parsed(url, options)
    try:
        from holdfast.stores.remote.store import RemoteStore
    except ModuleNotFoundError as missing:
        if missing.name is None or missing.name.split(".")[0] != "aiohttp":
            raise
        raise NotSupported(
            'a dispatcher is reached by aiohttp, which is missing: pip install "holdfast[http]"'
        ) from None
    return lambda: RemoteStore(wanted)
