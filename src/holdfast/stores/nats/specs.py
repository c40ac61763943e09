"""What was submitted: under which ids and keys, and with which payloads."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from holdfast.errors import StoreUnavailable
from holdfast.model.task import NewTask
from holdfast.stores.nats.images import Spec, decode_spec
from holdfast.stores.nats.reader import LAG_SECONDS, LAG_TRIES, Reader
from holdfast.stores.nats.subjects import Subjects
from holdfast.stores.nats.unreadable import understood

DOUBT_TRIES = 20
"""Longer than replicas lag: this one may be damaged."""


@dataclass(slots=True)
class Known:
    """What the stream has of tasks that are about to be submitted. At first it is taken to have nothing."""

    by_id: dict[str, NewTask] = field(default_factory=dict)
    by_key: dict[str, NewTask] = field(default_factory=dict)
    left_ids: dict[str, int] = field(default_factory=dict)
    """Of tasks that are gone: the sequence of what is left of them, by id."""
    left_keys: dict[str, int] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)


class Specs:
    def __init__(self, reader: Reader, subjects: Subjects) -> None:
        self._reader = reader
        self._subjects = subjects

    async def of(self, task_ids: Sequence[str]) -> dict[str, Spec]:
        """Of tasks that exist: a replica that has not got one yet is asked again."""
        missing, specs = list(dict.fromkeys(task_ids)), dict[str, Spec]()
        for tried in range(LAG_TRIES):
            names = {self._subjects.spec(task_id): task_id for task_id in missing}
            found = await self._reader.last(list(names), upto=0)
            if tried == DOUBT_TRIES:
                found |= {one.subject: one for one in await self._reader.missed(sorted(names.keys() - found.keys()))}
            specs |= {names[subject]: understood(decode_spec, one) for subject, one in found.items()}
            missing = [task_id for task_id in missing if task_id not in specs]
            if not missing:
                return specs
            await asyncio.sleep(LAG_SECONDS)
        raise StoreUnavailable(f"what was submitted as task {missing[0]} cannot be read")

    async def known(self, tasks: Sequence[NewTask]) -> Known:
        subjects = self._subjects
        keys = {new.idempotency_key for new in tasks if new.idempotency_key is not None}
        queues = {new.queue for new in tasks}
        found = await self._reader.last(
            [
                *(subjects.spec(new.id) for new in tasks),
                *(subjects.live_anywhere(new.id) for new in tasks),
                *(subjects.end_anywhere(new.id) for new in tasks),
                *(subjects.idem(key) for key in keys),
                *(subjects.queue(queue) for queue in queues),
            ]
        )
        known = Known(queues={queue for queue in queues if subjects.queue(queue) in found})
        alive = {subjects.task_of(one.subject) for one in found.values() if one.body and subjects.is_home(one.subject)}
        for new in tasks:
            spec = found.get(subjects.spec(new.id))
            if spec is None:
                continue
            if new.id in alive:
                known.by_id[new.id] = understood(decode_spec, spec).new
            else:
                known.left_ids[new.id] = spec.seq
        holders: dict[str, str] = {}
        for key in keys:
            idem = found.get(subjects.idem(key))
            if idem is not None and idem.body:
                holders[key] = idem.body.decode()
            elif idem is not None:
                known.left_keys[key] = idem.seq
        specs = await self.of(list(holders.values())) if holders else {}
        known.by_key |= {key: specs[holder].new for key, holder in holders.items()}
        return known


class Ahead:
    """What is claimed is read while the claim is being written: a spec does not change while its task lives."""

    def __init__(self, specs: Specs) -> None:
        self._specs = specs
        self._ids: list[str] = []
        self._reading: asyncio.Task[dict[str, Spec]] | None = None

    def begin(self, task_ids: list[str]) -> None:
        """Of what is planned now; a plan before this one was refused."""
        if task_ids != self._ids:
            self.end()
            self._ids = task_ids
            self._reading = asyncio.create_task(self._specs.of(task_ids)) if task_ids else None

    async def of(self, task_ids: list[str]) -> dict[str, Spec]:
        self.begin(task_ids)
        return {} if self._reading is None else await self._reading

    def end(self) -> None:
        """Nobody wants to know any more."""
        reading, self._reading, self._ids = self._reading, None, []
        if reading is not None and not reading.cancel() and not reading.cancelled():
            reading.exception()  # it is known, and told to nobody
