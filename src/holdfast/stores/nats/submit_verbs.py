"""Submits: without the replica, so that a program that only submits follows nothing.

It is taken for granted that nothing is known of what is submitted; the write is refused where that is wrong, and only
then somebody looks. Submits of one handle that come together are written in one atomic step.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import (
    HoldfastError,
    IdempotencyConflict,
    InvalidTask,
    NotSupported,
    PayloadTooLarge,
    StoreUnavailable,
)
from holdfast.model.task import NewTask, Submitted
from holdfast.policy.backoff import Rng
from holdfast.policy.repetition import admitted
from holdfast.stores.gathering import Gathering
from holdfast.stores.memory.admitting import ensure_text
from holdfast.stores.nats.changes import Rule
from holdfast.stores.nats.handle import Handle
from holdfast.stores.nats.images import Kept, encode
from holdfast.stores.nats.messages import Plan
from holdfast.stores.nats.options import Options
from holdfast.stores.nats.packs import births
from holdfast.stores.nats.planner import ensure_no_inputs
from holdfast.stores.nats.specs import Known
from holdfast.stores.nats.wire import BATCH_MOST, Conflict

TRIES = 50
GATHERED_MOST = 240
"""Tasks in one step for several calls: four messages each at most."""


class SubmitVerbs(Handle):
    def __init__(self, options: Options, clock: Clock = SYSTEM_CLOCK, *, rng: Rng = ids.JITTER) -> None:
        super().__init__(options, clock, rng=rng)
        self._gathering = Gathering(
            together=self._submit_new,
            alone=self._submit_any,
            refused=(Conflict, IdempotencyConflict, InvalidTask, NotSupported, PayloadTooLarge),
            most=GATHERED_MOST,
        )

    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        await self._ledger.ready()
        ensure_text(tasks)
        ensure_no_inputs(tasks)
        await self._ledger.stream.ensure_room(sum(len(new.payload) for new in tasks))
        if any(new.run_id is not None for new in tasks):
            return await self._submit_any(tasks)  # a workflow is stored whole, or is known
        return await self._gathering.submit(tasks)

    async def _submit_new(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        """Of several calls; Conflict where anything of it is known."""
        answers, fresh = admitted(tasks, by_id=lambda _: None, by_key=lambda _: None)
        plan = self._births(births(fresh, self._ledger.clock.micros()), Known(queues=self._queues))
        await self._ledger.write(plan.messages)
        self._queues |= {new.queue for new in fresh}
        return answers

    async def _submit_any(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        known = Known(queues=self._queues)
        for tried in range(TRIES):
            try:
                answers, fresh = admitted(tasks, by_id=known.by_id.get, by_key=known.by_key.get)
            except HoldfastError:
                if tried:
                    raise
                fresh = []
            if not fresh and tried:
                return answers
            if not fresh:  # what writes nothing is answered by what is there, not by what came with it
                known = await self._ledger.specs.known(tasks)
                continue
            try:
                await self._store(tasks[0].id, births(fresh, self._ledger.clock.micros()), known)
            except Conflict:
                await self._ledger.packs.finish(tasks[0].id)
                known = await self._ledger.specs.known(tasks)
                await asyncio.sleep(0.001 * tried)
                continue
            self._queues |= {new.queue for new in fresh}
            return answers
        raise StoreUnavailable(f"{self.label}: too many others submit the same tasks at the same time")

    async def _store(self, first_id: str, records: Sequence[Kept], known: Known) -> None:
        messages = self._births(records, known).messages
        if len(messages) <= BATCH_MOST:
            await self._ledger.write(messages)
        else:
            await self._ledger.packs.submit(first_id, records, known)

    def _births(self, records: Sequence[Kept], known: Known) -> Plan:
        plan = Plan(self._ledger.subjects, known)
        for queue in dict.fromkeys(record.new.queue for record in records):
            if queue not in known.queues:
                plan.rule(queue, encode(Rule()), 0)
        for record in records:
            plan.birth(record)
        return plan
