"""The verbs of a task's life: the memory store's acts, made true by the ledger.

An atomic step of the server has a thousand messages, so what names many tasks goes in several steps; what has to be
one step, and is larger, is refused before anything is written.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec

from holdfast.clock import span_micros
from holdfast.errors import HoldfastError, NotSupported, StoreUnavailable
from holdfast.model.claim import Claim, Claimed, ClaimRequest, Extended, Lease
from holdfast.model.limits import Limits
from holdfast.model.outcome import Settlement
from holdfast.model.query import Retention
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Amended, Change, Settled
from holdfast.stores.memory.admitting import ensure_text
from holdfast.stores.memory.record import Record
from holdfast.stores.nats.images import Kept, decode_fact, decode_image
from holdfast.stores.nats.ledger import DOUBT_TRIES
from holdfast.stores.nats.messages import Plan
from holdfast.stores.nats.rows import PACK
from holdfast.stores.nats.settle_parts import parts
from holdfast.stores.nats.specs import Ahead
from holdfast.stores.nats.submit_verbs import SubmitVerbs
from holdfast.stores.nats.tallies import merge_old
from holdfast.stores.nats.unreadable import understood
from holdfast.stores.nats.wire import Conflict, StepTooLarge
from holdfast.stores.portions import portions

CLAIM_MOST = 450
"""One message each, or two for those that were claimed often (sheets.py), and one for each queue with limits."""
CLAIM_TRIES = 200
CLAIM_TTL = "600s"
"""A claim whose answer was lost is made again within minutes."""
EXTEND_MOST = 450
"""Two messages each at most: the image, and the bulletin where it is large."""
REAP_MOST = 150
AMEND_MOST = 150
PACK_MICROS = 5_000_000
"""A submit that takes longer is helped by others."""


class Traces(NamedTuple):
    """Where a task is named besides its own places."""

    run_id: str | None
    sheets: tuple[int, ...]


def _traces(record: Record) -> Traces:
    assert isinstance(record, Kept)
    return Traces(record.new.run_id, record.sheets)


class TaskVerbs(SubmitVerbs):
    # Claim

    async def claim(self, request: ClaimRequest) -> Claimed:
        ensure_text(request.worker_id, request.claim_id, request.queues)
        tasks = () if request.task_id is None else (request.task_id,)
        ahead, most = Ahead(self._ledger.specs), min(request.limit, CLAIM_MOST)
        try:
            claimed = None
            while claimed is None:
                try:
                    claimed = await self._claim(msgspec.structs.replace(request, limit=most), tasks, ahead)
                except StepTooLarge:  # large errors in many images, or many queues with limits
                    most //= 2
            claims = await _with_payloads(claimed.claims, ahead)
        finally:
            ahead.end()
        return Claimed(claims, claimed.next_due_at, more=most < request.limit and len(claims) == most)

    async def _claim(self, asked: ClaimRequest, tasks: Sequence[str], ahead: Ahead) -> Claimed:
        """Guarded by a message of the claim's own, so that the same claim sent twice at once is one of them."""
        subject, used = self._ledger.subjects.claim(asked.claim_id), 0

        def guarded(plan: Plan) -> None:
            if self._ledger.replica.size:
                plan.keep(subject, b"", used, CLAIM_TTL)

        for tried in range(CLAIM_TRIES):
            try:
                return await self._ledger.change(
                    partial(self._claimed, asked, ahead),
                    tasks=tasks,
                    sure=lambda answer: bool(answer.claims),
                    extra=guarded,
                    once=True,
                    overlaps=True,
                )
            except Conflict:
                found = await self._ledger.reader.last([subject])
                used = found[subject].seq if found else 0
                if tried == DOUBT_TRIES:
                    await self._ledger.doubt()
                await self._ledger.fresh()
        raise StoreUnavailable(f"{self.label}: too many others claim the same tasks at the same time")

    def _claimed(self, request: ClaimRequest, ahead: Ahead, now: int) -> Claimed:
        claimed = self._ledger.acts.claim(request, now)
        ahead.begin(_without_payload(claimed.claims))
        return claimed

    # While it runs

    async def extend(self, leases: Sequence[Lease]) -> list[Extended | HoldfastError]:
        answers: list[Extended | HoldfastError] = []
        for part in portions(leases, EXTEND_MOST):
            answers += await self._ledger.change(
                partial(self._ledger.acts.extend, part), tasks=[lease.task_id for lease in part], overlaps=True
            )
        return answers

    async def report(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        ensure_text(kind, data)
        await self._ledger.change(lambda now: self._ledger.acts.report(lease, kind, data, now), tasks=[lease.task_id])

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | HoldfastError]:
        answers: list[Settled | HoldfastError] = []
        for part in parts(settlements, self._ledger.replica):
            follow_ups = [new for settlement in part for new in settlement.follow_ups]
            if any(settlement.outputs for settlement in part):
                raise NotSupported("the NATS store keeps no outputs")
            ensure_text(part)
            answers += await self._ledger.change(
                partial(self._ledger.acts.settle, part),
                tasks=[settlement.lease.task_id for settlement in part],
                follow_ups=follow_ups,
                overlaps=True,
            )
        return answers

    async def reap(self, *, limit: int, actor: str) -> list[Settled]:
        ensure_text(actor)
        await self._unpack_left()
        settled: list[Settled] = []
        while len(settled) < limit:
            most = min(REAP_MOST, limit - len(settled))
            part = await self._ledger.change(partial(self._ledger.acts.reap, most, actor), fresh=True)
            settled += part
            if len(part) < most:
                break
        return settled

    async def _unpack_left(self) -> None:
        """Large submits whose submitter is gone, or slow."""
        await self._ledger.fresh()
        rows, now = self._ledger.replica.tables.get(PACK, {}), self._ledger.clock.micros()
        for pack, (row, _) in list(rows.items()):
            if row is not None and row.created_at + PACK_MICROS <= now:
                await self._ledger.packs.finish(pack)

    # Acts of an operator

    async def amend(self, change: Change, task_ids: Sequence[str], *, actor: str) -> list[Amended | HoldfastError]:
        ensure_text(task_ids, actor)
        answers: list[Amended | HoldfastError] = []
        for part in portions(task_ids, AMEND_MOST):
            traces: dict[str, Traces] = {}
            upto = await self._ledger.stream.last() if change is Change.DELETE else 0
            done = await self._ledger.change(partial(self._amend, change, part, actor, traces), tasks=part, fresh=True)
            answers += done
            if change is Change.DELETE:
                gone = [one.task_id for one in done if isinstance(one, Amended) and one.changed]
                await self._sweep({task_id: traces[task_id] for task_id in gone}, upto)
        return answers

    def _amend(
        self, change: Change, task_ids: Sequence[str], actor: str, traces: dict[str, Traces], now: int
    ) -> list[Amended | HoldfastError]:
        """`traces`: where else they are is noted there, before they are gone."""
        records = self._ledger.replica.records
        traces |= {task_id: _traces(records[task_id]) for task_id in task_ids if task_id in records}
        return self._ledger.acts.amend(change, task_ids, actor, now)

    async def _sweep(self, gone: Mapping[str, Traces], upto: int) -> None:
        """What was written up to there of tasks that are gone, by id: somebody may have submitted one again.

        Where this is not reached, `doctor --repair` does it.
        """
        task_ids = list(gone)
        subjects, reader = self._ledger.subjects, self._ledger.reader
        for part in portions(task_ids, 50):
            await asyncio.gather(
                *(reader.purge(subjects.events(task_id), upto=upto) for task_id in part),
                *(reader.purge(subjects.steps(task_id), upto=upto) for task_id in part),
                *(reader.purge(subjects.end_anywhere(task_id), upto=upto) for task_id in part),
            )
        await self._ledger.sheets.sweep([sheet for traces in gone.values() for sheet in traces.sheets], gone)
        run_ids = dict.fromkeys(traces.run_id for traces in gone.values())
        await self._ledger.members.sweep([run_id for run_id in run_ids if run_id is not None])

    async def prune(self, retention: Retention, *, limit: int) -> int:
        await self._ledger.fresh()
        now = self._ledger.clock.micros()
        gone = 0
        for status in (TaskStatus.COMPLETED, TaskStatus.CANCELED, TaskStatus.FAILED):
            age = retention.age_of(status)
            if age is not None and gone < limit:
                before = now - span_micros(age.total_seconds())
                gone += await self._prune_ended(status, before, limit - gone)
        await merge_old(self._ledger)
        if retention.completed is not None:
            await self._forget_gone(now - span_micros(retention.completed.total_seconds()), limit)
        return gone

    async def _prune_ended(self, status: TaskStatus, before: int, limit: int) -> int:
        old: list[str] = []
        async for found in self._ledger.reader.every(self._ledger.subjects.ends_of(status.value)):
            if not found.body:
                continue
            image = understood(decode_image, found)
            if image.finished_at is None or image.finished_at > before or len(old) == limit:
                break
            run_id = image.head.run_id
            if run_id is None or not self._ledger.replica.lives[run_id]:
                old.append(self._ledger.subjects.task_of(found.subject))
        gone = 0
        for part in portions(old, AMEND_MOST):
            upto = await self._ledger.stream.last()
            removed = await self._ledger.change(partial(self._remove, part, status, before), tasks=part, fresh=True)
            await self._sweep(removed, upto)
            gone += len(removed)
        return gone

    def _remove(self, task_ids: Sequence[str], status: TaskStatus, before: int, _now: int) -> dict[str, Traces]:
        replica, removed = self._ledger.replica, dict[str, Traces]()
        for task_id in task_ids:
            record = replica.records.get(task_id)
            if record is None or record.status is not status or (record.finished_at or before + 1) > before:
                continue  # somebody else was first, or it has come back
            if not replica.live_run(record):
                replica.remove(record)
                removed[task_id] = _traces(record)
        return removed

    async def _forget_gone(self, before: int, limit: int) -> None:
        subjects, reader = self._ledger.subjects, self._ledger.reader
        for found in await reader.after(subjects.gone_all, 0, limit=limit):
            if understood(decode_fact, found).at > before:
                return
            await reader.purge(found.subject)

    async def pause(self, queue: str, *, paused: bool) -> None:
        await self._ledger.change(lambda _: self._ledger.acts.pause(queue, paused), fresh=True)

    async def limit(self, queue: str, changes: Mapping[str, Any]) -> Limits:
        return await self._ledger.change(lambda now: self._ledger.acts.limit(queue, changes, now), fresh=True)


async def _with_payloads(claims: Sequence[Claim], ahead: Ahead) -> list[Claim]:
    """Those that are not in the images are with what was submitted."""
    specs = await ahead.of(_without_payload(claims))
    return [
        msgspec.structs.replace(claim, payload=specs[task_id].new.payload, meta=specs[task_id].new.meta)
        if (task_id := claim.lease.task_id) in specs
        else claim
        for claim in claims
    ]


def _without_payload(claims: Sequence[Claim]) -> list[str]:
    return [claim.lease.task_id for claim in claims if not claim.payload]
