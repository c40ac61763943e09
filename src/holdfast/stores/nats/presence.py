"""The evidence that workers live (contract C6.7): the server knows who listens.

Every worker's handle listens on a subject of its own. Asked there, a worker that lives need not even answer: if nobody
listens, the servers say so themselves, at once. They take a listener away when its connection ends, which the kernel
of a killed process does. One whose connection is being mended gets a grace time; one that is merely slow still listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

from holdfast.clock import boot_seconds
from holdfast.stores.nats.subjects import Subjects
from holdfast.stores.nats.wire import Wire

if TYPE_CHECKING:
    from nats.aio.msg import Msg


class Presence:
    def __init__(self, wire: Wire, subjects: Subjects, grace_seconds: float) -> None:
        self._wire = wire
        self._subjects = subjects
        self._grace_seconds = grace_seconds
        self._missed: dict[str, float] = {}
        """Since when nobody has listened there."""

    async def hold(self, worker_id: str) -> None:
        await self._wire.listen(self._subjects.alive(worker_id), _here)

    async def drop(self, worker_id: str) -> None:
        await self._wire.deafen(self._subjects.alive(worker_id))

    async def gone(self, worker_ids: Iterable[str]) -> list[str]:
        """Of these, those that nobody has listened for since the grace time."""
        asked = list(worker_ids)
        heard = await asyncio.gather(*(self._wire.listens(self._subjects.alive(one)) for one in asked))
        now = boot_seconds()
        self._missed = {
            one: self._missed.get(one, now) for one, listens in zip(asked, heard, strict=True) if not listens
        }
        return [one for one, since in self._missed.items() if now - since >= self._grace_seconds]


async def _here(message: Msg) -> None:
    if message.reply:
        await message.respond(b"")
