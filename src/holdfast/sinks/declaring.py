"""Makes known to a store whom a program's code wants to be told. Called by every worker at its start, and by every
other program with its first submit: so also what a program submits that runs no worker is told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast.errors import HoldfastError, NotSupported, StoreUnavailable
from holdfast.model.outbox import Effect, NewSink
from holdfast.policy.sinks import SUBSCRIBER
from holdfast.stores.protocol import Store

Failed = Callable[[str, HoldfastError], None]


async def declare(store: Store, sinks: Sequence[NewSink], failed: Failed) -> list[NewSink]:
    """Those that could not be declared; why, `failed` is told. StoreUnavailable is raised; it can be called again."""
    left = []
    for sink in sinks:
        try:
            await _declare(store, sink)
        except StoreUnavailable:
            raise
        except HoldfastError as error:
            failed(sink.name, error)
            left.append(sink)
    return left


async def _declare(store: Store, sink: NewSink) -> None:
    if store.capabilities.maintained:
        if sink.effect is Effect.WAKE:
            return  # who relays declares it: `holdfast serve --wakeup …`
        if sink.url.startswith(f"{SUBSCRIBER}:"):
            raise NotSupported("subscribers run beside the store; through a dispatcher nobody would call this one")
    if not store.capabilities.outbox:
        raise NotSupported(f"{store.label} has no outbox, and tells nobody of its events")
    await store.declare_sink(sink)
