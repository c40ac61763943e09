"""Calls about the store and the service itself."""

from __future__ import annotations

import asyncio

from holdfast.dispatcher import metrics, wire
from holdfast.dispatcher.hall import Asked, Hall, Text
from holdfast.errors import StoreUnavailable
from holdfast.version import __version__

READY_SECONDS = 2.0


async def store(hall: Hall, asked: Asked) -> wire.StoreAnswer:  # noqa: ARG001
    behind = hall.store
    return wire.StoreAnswer(
        label=behind.label, version=__version__, capabilities=behind.capabilities, now=await behind.now()
    )


async def now(hall: Hall, asked: Asked) -> wire.NowAnswer:  # noqa: ARG001
    return wire.NowAnswer(now=await hall.store.now())


async def check(hall: Hall, asked: Asked) -> wire.CheckAnswer:  # noqa: ARG001
    found = await hall.store.check()
    return wire.CheckAnswer(checks=[wire.CheckOut(question=one[0], well=one[1], words=one[2]) for one in found])


async def livez(hall: Hall, asked: Asked) -> wire.Done:  # noqa: ARG001
    return wire.Done()


async def readyz(hall: Hall, asked: Asked) -> wire.Done:  # noqa: ARG001
    if hall.draining:
        raise StoreUnavailable("this dispatcher is about to stop")
    try:
        async with asyncio.timeout(READY_SECONDS):
            await hall.reachable()
    except TimeoutError:
        raise StoreUnavailable(f"the store did not answer within {READY_SECONDS:g} s") from None
    return wire.Done()


async def measures(hall: Hall, asked: Asked) -> Text:  # noqa: ARG001
    behind = hall.store
    said = metrics.text(
        hall.counters,
        queues=await behind.queues(),
        oldest_due=await behind.oldest_due(),
        workers=await behind.workers(),
        sinks=await behind.sinks(),
        now=await behind.now(),
    )
    return Text(said.encode(), metrics.MEDIA_TYPE)


async def openapi(hall: Hall, asked: Asked) -> Text:  # noqa: ARG001
    return Text(hall.document, "application/json")
