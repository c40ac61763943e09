"""Bulletins: what a change has done to live tasks, in one message for all who follow.

Each process follows all that the others do, and a message costs whoever sends and receives it the same whatever is in
it. So nobody follows the places of the tasks themselves, but for a first look at all of them (feed.py): whoever writes
there adds, in the same step, what those who follow have to know. It decides nothing, and is gone after a minute.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from holdfast.stores.nats.images import encode

BYTES_MOST = 200_000
"""In one of them; a task's image that is larger has one of its own."""


class Entry(msgspec.Struct, array_like=True, gc=False, frozen=True):
    task_id: str
    distance: int
    """From the bulletin back to the message that says so."""
    image: bytes
    """Empty: it lives no more."""


_decode = msgspec.msgpack.Decoder(list[Entry]).decode


def bulletins(entries: Iterable[tuple[str, int, bytes]], first: int) -> Iterator[bytes]:
    """`entries`: task, place of the message, image; `first`: the place of the first bulletin."""
    part: list[Entry] = []
    size = 0
    for task_id, place, image in entries:
        if part and size + len(image) > BYTES_MOST:
            yield encode(part)
            part, size, first = [], 0, first + 1
        part.append(Entry(task_id, first - place, image))
        size += len(task_id) + len(image) + 10
    if part:
        yield encode(part)


def told(body: bytes, seq: int) -> Iterator[tuple[str, int, bytes]]:
    """Task, where it is said, image."""
    return ((entry.task_id, seq - entry.distance, entry.image) for entry in _decode(body))
