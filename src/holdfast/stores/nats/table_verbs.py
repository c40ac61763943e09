"""Workers, schedules, steps and tokens: rows of small tables, each a message of its own."""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec

from holdfast.clock import EPOCH, from_micros, span_micros
from holdfast.errors import NotSupported
from holdfast.model.claim import Lease
from holdfast.model.query import WorkerInfo
from holdfast.model.schedule import NewSchedule, Schedule
from holdfast.model.task import NewTask
from holdfast.model.token import NewToken, Token
from holdfast.model.workflow import Step
from holdfast.policy.enrolment import REMOTE_KEPT_SECONDS
from holdfast.stores.memory.admitting import ensure_text
from holdfast.stores.memory.schedules import Schedules
from holdfast.stores.nats.images import encode
from holdfast.stores.nats.messages import Plan
from holdfast.stores.nats.rows import SCHEDULE, TOKEN, WORKER, WorkerRow
from holdfast.stores.nats.task_verbs import TaskVerbs
from holdfast.stores.nats.unreadable import understood
from holdfast.stores.nats.wire import Conflict
from holdfast.stores.portions import portions

T = TypeVar("T")

FIRE_MOST = 250
END_MOST = 450
"""Leases that end in one step."""

_step = msgspec.msgpack.Decoder(Step)


class TableVerbs(TaskVerbs):
    # Rows

    def _rows(self, table: str) -> dict[str, Any]:
        rows = self._ledger.replica.tables.get(table, {})
        return {key: row for key, (row, _) in rows.items() if row is not None}

    def _put(self, plan: Plan, table: str, key: str, row: Any, *, guarded: bool = True) -> None:
        """Guarded: only if nobody has written it since it was seen."""
        known = self._ledger.replica.tables.get(table, {}).get(key)
        plan.row(table, key, row, None if not guarded else 0 if known is None else known[1])

    # Workers

    async def enroll(self, worker: WorkerInfo) -> None:
        ensure_text(worker)

        def enrolled(plan: Plan) -> None:
            now = self._ledger.clock.micros()
            known: WorkerRow | None = self._rows(WORKER).get(worker.id)
            if known is not None and worker.remote and not known.info.remote:
                return  # whose name is all that it shows replaces nobody
            row = WorkerRow(worker, now if known is None else known.started_at, now)
            self._put(plan, WORKER, worker.id, row, guarded=False)

        await self._ledger.change(_nothing, extra=enrolled)
        if not worker.remote:
            await self._ledger.presence.hold(worker.id)

    async def leave(self, worker_id: str, leases: Sequence[Lease] | None = None) -> None:
        def forgotten(plan: Plan) -> None:
            known: WorkerRow | None = self._rows(WORKER).get(worker_id)
            if known is not None and (leases is None or known.info.remote):
                self._put(plan, WORKER, worker_id, None, guarded=False)

        if leases is None:
            await self._end_leases({worker_id})
        for part in portions(leases or (), END_MOST):
            await self._ledger.change(partial(self._ledger.acts.end_held, part), fresh=True)
        await self._ledger.change(_nothing, extra=forgotten, fresh=True)
        if leases is None:
            await self._ledger.presence.drop(worker_id)

    async def _end_leases(self, worker_ids: Container[str | None]) -> None:
        """In as many steps as it takes; who is stopped on the way leaves the rest to the next."""
        end = self._ledger.acts.end_leases
        while await self._ledger.change(lambda now: end(worker_ids, now, limit=END_MOST), fresh=True) == END_MOST:
            pass

    async def workers(self) -> list[WorkerInfo]:
        await self._ledger.fresh()
        running: dict[str | None, int] = {}
        for record in self._ledger.replica.running.values():
            running[record.claimed_by] = running.get(record.claimed_by, 0) + 1
        return [
            msgspec.structs.replace(
                row.info,
                started_at=from_micros(row.started_at),
                seen_at=from_micros(row.seen_at),
                running=running.get(row.info.id, 0),
            )
            for row in self._rows(WORKER).values()
        ]

    async def evict(self, *, actor: str) -> list[str]:  # noqa: ARG002
        """Remote workers show nothing; those that were silent for long are forgotten, and their leases stay."""
        await self._ledger.fresh()
        before = self._ledger.clock.micros() - span_micros(REMOTE_KEPT_SECONDS)
        rows = self._rows(WORKER)
        silent = [key for key, row in rows.items() if row.info.remote and row.seen_at <= before]
        gone = await self._ledger.presence.gone(key for key, row in rows.items() if not row.info.remote)

        def forgotten(plan: Plan) -> None:
            for worker_id in (*silent, *gone):
                if worker_id in self._rows(WORKER):
                    self._put(plan, WORKER, worker_id, None)

        if silent or gone:
            await self._end_leases(set(gone))
            await self._ledger.change(_nothing, extra=forgotten, fresh=True)
        return gone

    # Steps

    async def record_step(self, lease: Lease, name: str, result: str) -> Step:
        ensure_text(name, result)
        while True:
            known = await self._step(lease.task_id, name)
            try:
                return await self._keep_step(lease, known or Step(name, result, EPOCH), new=known is None)
            except Conflict:
                await self._ledger.fresh()

    async def _step(self, task_id: str, name: str) -> Step | None:
        await self._ledger.ready()
        subject = self._ledger.subjects.step(task_id, name)
        found = (await self._ledger.reader.last([subject])).get(subject)
        return None if found is None else understood(_step.decode, found)

    async def _keep_step(self, lease: Lease, step: Step, *, new: bool) -> Step:
        """Written with the lease's own task, so that a lease that is lost writes nothing."""
        kept = [step]

        def held(now: int) -> Step:
            self._ledger.acts.hold(lease, now)
            if new:
                kept[0] = Step(step.name, step.result, from_micros(now))
            return kept[0]

        def put(plan: Plan) -> None:
            if new:
                plan.keep(self._ledger.subjects.step(lease.task_id, step.name), encode(kept[0]))

        return await self._ledger.change(held, tasks=[lease.task_id], extra=put, once=True)

    async def steps(self, task_id: str) -> list[Step]:
        await self._ledger.ready()
        found = await self._ledger.reader.after(self._ledger.subjects.steps(task_id), 0, limit=100_000)
        return [understood(_step.decode, one) for one in found]

    # Schedules

    async def declare_schedule(self, new: NewSchedule) -> Schedule:
        ensure_text(new)
        return await self._on_schedules(lambda schedules, now: schedules.declare(new, from_micros(now)), new.name)

    async def schedules(self) -> list[Schedule]:
        await self._ledger.fresh()
        return self._all_schedules().all()

    def _all_schedules(self) -> Schedules:
        return Schedules(self._rows(SCHEDULE))

    async def fire(self, name: str, *, last_fired_at: datetime, upto: datetime, tasks: Sequence[NewTask]) -> bool:
        """Of many, those that do not fit into one step are submitted before; by their keys they are so once only."""
        early, last = tasks[:-FIRE_MOST], tasks[-FIRE_MOST:]
        if early and any(new.idempotency_key is None for new in early):
            raise NotSupported(f"a schedule fires {FIRE_MOST} tasks without keys at once on NATS")
        if early:
            await self._ledger.fresh()
            if not self._all_schedules().stands_at(name, last_fired_at):
                return False
            for part in portions(early, FIRE_MOST):
                await self.submit(part)
        moved: list[Schedule] = []

        def fired(now: int) -> bool:
            schedules = self._all_schedules()
            moved.clear()
            if not schedules.stands_at(name, last_fired_at):
                return False
            schedules.move(name, upto)
            moved.append(schedules.known(name))
            self._ledger.acts.submit(last, now)
            return True

        def put(plan: Plan) -> None:
            for schedule in moved:
                self._put(plan, SCHEDULE, name, schedule)

        return await self._ledger.change(fired, follow_ups=last, extra=put, fresh=True)

    async def pause_schedule(self, name: str, *, paused: bool) -> None:
        await self._on_schedules(lambda schedules, now: schedules.pause(name, from_micros(now), paused=paused), name)

    async def delete_schedule(self, name: str) -> None:
        await self._on_schedules(lambda schedules, _: schedules.delete(name), name)

    async def _on_schedules(self, act: Callable[[Schedules, int], T], name: str) -> T:
        after: list[Schedule | None] = []

        def acted(now: int) -> T:
            schedules = self._all_schedules()
            answer = act(schedules, now)
            after[:] = [schedules.find(name)]
            return answer

        return await self._ledger.change(
            acted, extra=lambda plan: self._put(plan, SCHEDULE, name, after[0]), fresh=True
        )

    # Tokens

    async def add_token(self, new: NewToken) -> Token:
        ensure_text(new)

        def added(now: int) -> Token:
            lifetime = new.lifetime_seconds
            made: Token = self._rows(TOKEN).get(new.id) or Token(
                id=new.id,
                name=new.name,
                scopes=new.scopes,
                digest=new.digest,
                created_at=from_micros(now),
                expires_at=None if lifetime is None else from_micros(now + span_micros(lifetime)),
                revoked_at=None,
            )
            return made

        return await self._with_token(new.id, added)

    async def token(self, token_id: str) -> Token | None:
        await self._ledger.fresh()
        found: Token | None = self._rows(TOKEN).get(token_id)
        return found

    async def tokens(self) -> list[Token]:
        await self._ledger.fresh()
        return sorted(self._rows(TOKEN).values(), key=lambda token: (token.created_at, token.id))

    async def revoke_token(self, token_id: str) -> bool:
        def revoked(now: int) -> Token | None:
            known: Token | None = self._rows(TOKEN).get(token_id)
            if known is None or known.revoked_at is not None:
                return known
            return msgspec.structs.replace(known, revoked_at=from_micros(now))

        return await self._with_token(token_id, revoked) is not None

    async def _with_token(self, token_id: str, act: Callable[[int], T]) -> T:
        made: list[T] = []

        def acted(now: int) -> T:
            made[:] = [act(now)]
            return made[0]

        def put(plan: Plan) -> None:
            if made[0] is not None and made[0] != self._rows(TOKEN).get(token_id):
                self._put(plan, TOKEN, token_id, made[0])

        return await self._ledger.change(acted, extra=put, fresh=True)


def _nothing(_now: int) -> None:
    """Rows only."""
