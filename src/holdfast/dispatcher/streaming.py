"""Events as they happen, as server-sent events. `id:` is the event's, so that a reader who comes back with
`Last-Event-ID` goes on where it stopped. That none which was committed late is missed is the store's promise.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator

import msgspec

from holdfast.clock import SYSTEM_CLOCK
from holdfast.dispatcher.hall import Asked, Hall
from holdfast.errors import InvalidTask, StoreUnavailable
from holdfast.model.event import Event

BATCH = 200
POLL_SECONDS = 0.5
KEEP_ALIVE_SECONDS = 15.0
STREAMS_MOST = 200
"""At once, by one dispatcher: each looks at the store twice a second."""

_encode = msgspec.json.Encoder().encode


async def begin_after(hall: Hall, asked: Asked) -> int:
    """Who comes back goes on where it stopped, also where it had begun with `now`."""
    said = asked.headers.get(b"last-event-id")
    if said is None:
        return await hall.store.last_event() if asked.query.after == "now" else int(asked.query.after)
    if not said.isdigit() or len(said) > 18:
        raise InvalidTask("Last-Event-ID is no id of an event; leave it out, or give a number")
    return int(said)


def wants_stream(asked: Asked) -> bool:
    return bool(asked.query.follow) or b"text/event-stream" in asked.headers.get(b"accept", b"")


def check_room(hall: Hall) -> None:
    if hall.streams >= STREAMS_MOST:
        raise StoreUnavailable(f"this dispatcher serves {STREAMS_MOST} streams already; ask another one, or for pages")


async def events(hall: Hall, asked: Asked, task_id: str | None, after: int) -> AsyncGenerator[bytes, None]:
    """Until the caller hangs up, the service stops, or the store is away: then the reader comes back."""
    silent_since = SYSTEM_CLOCK.monotonic()
    with hall.streaming(), hall.work.listened_to(), hall.ends.listened_to():
        # Who began with `now` and breaks off before the first event comes back to this place.
        yield b": here\nid: %d\n\n" % after if asked.query.after == "now" else b": here\n\n"
        while not hall.draining and not asked.gone.done():
            number = hall.work.number
            try:
                found = await hall.store.events(task_id, after=after, limit=BATCH)
            except StoreUnavailable:
                return
            if found:
                after, silent_since = found[-1].id, SYSTEM_CLOCK.monotonic()
                yield b"".join(_sent(event) for event in found)
            elif SYSTEM_CLOCK.monotonic() - silent_since >= KEEP_ALIVE_SECONDS:
                silent_since = SYSTEM_CLOCK.monotonic()
                yield b": still here\n\n"
            if len(found) < BATCH:
                await hall.work.after(number, POLL_SECONDS, or_when=(hall.ends.next, asked.gone, hall.closing))


def _sent(event: Event) -> bytes:
    return b"id: %d\ndata: %s\n\n" % (event.id, _encode(event))
