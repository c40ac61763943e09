"""The members of a run: which there are, and all of them in the replica where an act needs that.

Live members are in the replica anyway, and mostly that is enough: a task that completes tells those that wait for it.
That nobody is missed is known by their number, which is in the task's image. Where some are missing because they have
ended, or where an act asks for what was canceled, the run is loaded: from then on, until no member lives, those that
have ended are kept and followed too.

A submit is one atomic step or one pack (packs.py), and the feed hands over a step at once: a task is never here without
its dependents, unless they have ended. So of what the leader lists after a task was seen, nothing of that task is new.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from holdfast.stores.nats.images import Kept, decode_image, image_of, made
from holdfast.stores.nats.reader import Found, Reader
from holdfast.stores.nats.replica import Replica
from holdfast.stores.nats.specs import Specs
from holdfast.stores.nats.subjects import Subjects
from holdfast.stores.nats.unreadable import understood
from holdfast.stores.portions import portions

ASKED = 50
HOME_TRIES = 3
"""A task that moves while it is looked for may not be found."""

listed_ids = msgspec.msgpack.Decoder(list[str]).decode


async def homes(reader: Reader, subjects: Subjects, task_ids: Sequence[str]) -> dict[str, Found]:
    """Of those that exist: the message with the image, by the leader's word. Of two, the one that replicas have."""
    found = await places(reader, subjects, task_ids)
    return {task_id: max(ones, key=lambda one: subjects.is_live(one.subject)) for task_id, ones in found.items()}


async def places(reader: Reader, subjects: Subjects, task_ids: Sequence[str]) -> dict[str, list[Found]]:
    """Every place with an image; more than one only where a step was torn (torn.py)."""
    found = await reader.last(_patterns(subjects, task_ids))
    taken = _taken(subjects, found.values())
    for part in portions([task_id for task_id in task_ids if task_id not in taken], ASKED):
        names = await asyncio.gather(*map(reader.subjects, _patterns(subjects, part)))
        missed = await reader.missed([name for some in names for name in some if name not in found])
        taken |= _taken(subjects, missed)
    return taken


def _taken(subjects: Subjects, found: Iterable[Found]) -> dict[str, list[Found]]:
    taken: dict[str, list[Found]] = {}
    for one in found:
        if one.body:
            taken.setdefault(subjects.task_of(one.subject), []).append(one)
    return taken


def _patterns(subjects: Subjects, task_ids: Sequence[str]) -> list[str]:
    return [name(task_id) for task_id in task_ids for name in (subjects.live_anywhere, subjects.end_anywhere)]


class Members:
    def __init__(self, reader: Reader, subjects: Subjects, specs: Specs, replica: Replica) -> None:
        self._reader = reader
        self._subjects = subjects
        self._specs = specs
        self._replica = replica

    async def ids(self, run_id: str) -> list[str]:
        """Some of them may be gone."""
        listed = [understood(listed_ids, found) async for found in self._reader.every(self._subjects.members(run_id))]
        return [task_id for together in listed for task_id in together]

    async def homes(self, task_ids: Sequence[str]) -> dict[str, Found]:
        found: dict[str, Found] = {}
        missing = list(task_ids)
        for _ in range(HOME_TRIES):
            found |= await homes(self._reader, self._subjects, missing)
            missing = [task_id for task_id in missing if task_id not in found]
            if not missing:
                break
        return found

    def here(self, run_id: str) -> dict[str, Kept]:
        """Those that the replica has, as they are now."""
        members = self._replica.runs.get(run_id, {}).items()
        return {task_id: made(task_id, image_of(one), one.rev) for task_id, one in members if isinstance(one, Kept)}

    async def with_others(self, run_id: str, here: dict[str, Kept]) -> list[Kept]:
        others = [task_id for task_id in await self.ids(run_id) if task_id not in here]
        found = await self.homes(others)
        return [
            *here.values(),
            *(made(task_id, understood(decode_image, one), one.seq) for task_id, one in found.items()),
        ]

    async def load(self, run_id: str, fresh: Callable[[], Awaitable[None]]) -> None:
        """Afterwards the replica has all of it, and is fresh."""
        replica = self._replica
        replica.whole.add(run_id)  # from here on the feed leaves those that end
        try:
            missing = [task_id for task_id in await self.ids(run_id) if task_id not in replica.records]
            for task_id, found in (await self.homes(missing)).items():
                replica.place(task_id, understood(decode_image, found), found.seq)
            await fresh()
            while unnamed := self._unnamed(run_id):
                for task_id, spec in (await self._specs.of(unnamed)).items():
                    replica.name_parents(task_id, spec.new.parents)
                await fresh()
        except BaseException:
            replica.retire(run_id)
            raise
        if run_id in replica.whole:  # else everything was read anew meanwhile
            replica.note_lost(run_id)

    def _unnamed(self, run_id: str) -> list[str]:
        members = self._replica.runs.get(run_id, {}).values()
        return [one.new.id for one in members if isinstance(one, Kept) and one.many and not one.new.parents]

    async def sweep(self, run_ids: Sequence[str]) -> None:
        """Forget the lists of runs that have no member any more. The last ones are deleted last, mostly."""
        for run_id in run_ids:
            listed = [found async for found in self._reader.every(self._subjects.members(run_id))]
            for found in reversed(listed):
                if await self.homes(understood(listed_ids, found)):
                    break
                await self._reader.purge(found.subject)
