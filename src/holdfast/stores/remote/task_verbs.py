"""A task's life through a dispatcher: what is said here happens there, by the clock of the store behind it.

Rescuing and forgetting are the dispatcher's own: asked of a client's handle, there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holdfast.dispatcher import both_ways, wire, wire_work
from holdfast.errors import Forbidden, HoldfastError, InvalidTask
from holdfast.model.claim import Claimed, ClaimRequest, Extended, Lease
from holdfast.model.outcome import Settlement
from holdfast.model.query import Retention
from holdfast.model.task import NewTask, Submitted
from holdfast.model.transition import Amended, Change, Settled
from holdfast.stores.portions import portions
from holdfast.stores.remote import forms
from holdfast.stores.remote.caller import Caller, loads, refusal


class TaskVerbs(Caller):
    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        call = wire.SubmitCall(tasks=[forms.task_in(new) for new in tasks])
        answer = await self._ask("submit", wire.SubmitAnswer, call)
        return [Submitted(one.id, one.created) for one in answer.tasks]

    async def claim(self, request: ClaimRequest) -> Claimed:
        limit = min(request.limit, wire.CLAIMS_MOST)
        call = wire_work.ClaimCall(
            worker_id=request.worker_id,
            claim_id=request.claim_id,
            queues=None if request.queues is None else list(request.queues),
            limit=limit,
            lease_seconds=request.lease_seconds,
            task_id=request.task_id,
        )
        answer = await self._ask("claim", wire_work.ClaimAnswer, call)
        cut = limit < request.limit and len(answer.claims) == limit
        return Claimed([both_ways.claim(one) for one in answer.claims], answer.next_due_at, more=answer.more or cut)

    async def extend(self, leases: Sequence[Lease]) -> list[Extended | HoldfastError]:
        told: list[Extended | HoldfastError] = []
        for some in portions(leases, wire.BATCH_MOST):
            call = wire_work.ExtendCall(leases=[forms.lease_in(lease) for lease in some])
            told += [_extended(item) for item in (await self._ask("extend", wire_work.ExtendAnswer, call)).leases]
        return told

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | HoldfastError]:
        told: list[Settled | HoldfastError] = []
        for load in loads(map(forms.settlement_in, settlements), wire.BATCH_MOST):
            told += await self._settle(load)
        return told

    async def _settle(self, load: Sequence[bytes]) -> list[Settled | HoldfastError]:
        try:
            answer = await self._send("settle", wire_work.SettleAnswer, b"settlements", load)
        except (InvalidTask, Forbidden) as refused:
            # A dispatcher judges bodies as a whole, and what a token may do with one; to us, one that is refused must
            # not take the others with it.
            if len(load) == 1:
                return [refused]
            return [told for one in load for told in await self._settle([one])]
        return [_settled(item) for item in answer.settlements]

    async def amend(self, change: Change, task_ids: Sequence[str], *, actor: str) -> list[Amended | HoldfastError]:
        told: list[Amended | HoldfastError] = []
        for some in portions(task_ids, wire.BATCH_MOST):
            call = wire.AmendCall(change=change, ids=list(some), actor=actor)
            told += [_amended(item) for item in (await self._ask("amend", wire.AmendAnswer, call)).tasks]
        return told

    async def report(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        call = wire_work.ReportCall(
            task_id=lease.task_id,
            attempt=lease.attempt,
            lease_token=lease.token,
            kind=kind,
            data=forms.any_raw(data),
        )
        await self._ask("report", wire.Done, call)

    # The dispatcher's own

    async def reap(self, *, limit: int, actor: str) -> list[Settled]:  # noqa: ARG002
        self._line.ensure_open()
        return []

    async def prune(self, retention: Retention, *, limit: int) -> int:  # noqa: ARG002
        self._line.ensure_open()
        return 0


def _extended(item: wire_work.ExtendedItem) -> Extended | HoldfastError:
    if item.error is not None:
        return refusal(item.error)
    assert item.lease_expires_at is not None
    return Extended(item.lease_expires_at, item.cancel_requested)


def _settled(item: wire_work.SettledItem) -> Settled | HoldfastError:
    if item.error is not None:
        return refusal(item.error)
    assert item.task_id is not None
    assert item.attempt is not None
    assert item.status is not None
    return Settled(item.task_id, item.attempt, item.status)


def _amended(item: wire.AmendedItem) -> Amended | HoldfastError:
    if item.error is not None:
        return refusal(item.error)
    assert item.task_id is not None
    return Amended(item.task_id, item.status, item.changed)
