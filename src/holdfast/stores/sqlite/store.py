"""The verbs of a SQLite handle: each is one call on the engine; what it does stands in the module of its name.

Those for sinks, datasets and tokens stand beside it, in files of their own.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from holdfast import ids
from holdfast.clock import Clock, from_micros
from holdfast.errors import HoldfastError
from holdfast.model.claim import Claimed, ClaimRequest, Extended, Lease
from holdfast.model.event import Event
from holdfast.model.limits import Limits
from holdfast.model.outcome import Settlement
from holdfast.model.query import QueueInfo, Retention, TaskFilter, WorkerInfo
from holdfast.model.repair import Repair
from holdfast.model.schedule import NewSchedule, Schedule
from holdfast.model.task import NewTask, Submitted, Task
from holdfast.model.transition import Amended, Change, Settled
from holdfast.model.workflow import ParentEnd, RunInfo, Step
from holdfast.policy.backoff import Rng
from holdfast.stores.protocol import Capabilities
from holdfast.stores.sqlite import (
    advance,
    amend,
    claim,
    doctor,
    engine,
    leases,
    limits,
    reads,
    runs,
    schedules,
    schema,
    settle,
    steps,
    submit,
    workers,
)
from holdfast.stores.sqlite.dataset_verbs import DatasetVerbs
from holdfast.stores.sqlite.joined import Joining
from holdfast.stores.sqlite.options import Options
from holdfast.stores.sqlite.outbox_verbs import OutboxVerbs
from holdfast.stores.sqlite.own_transaction import OwnTransaction
from holdfast.stores.sqlite.token_verbs import TokenVerbs
from holdfast.stores.sqlite.tx import Tx
from holdfast.wakeups.protocol import Wakeup


class SQLiteStore(OutboxVerbs, DatasetVerbs, TokenVerbs):
    def __init__(self, options: Options, clock: Clock, *, rng: Rng = ids.JITTER) -> None:
        super().__init__(options, clock, rng=rng)
        self.capabilities = Capabilities(
            durable=options.synchronous == "full",
            shared=True,
            joined_transactions=True,
            early_reaping=True,
            limits=True,
            workflows=True,
            schedules=True,
            outbox=True,
            outputs=True,
            tokens=True,
        )

    @property
    def wakeups(self) -> Sequence[Wakeup]:
        return (self._engine.watch,)

    @property
    def endings(self) -> Sequence[Wakeup]:
        return (self._engine.watch, self._engine.ends)

    # A task's way

    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        if not tasks:
            return []
        return await self._engine.write(lambda tx: submit.submit(tx, tasks))

    async def claim(self, request: ClaimRequest) -> Claimed:
        shared = self._engine
        if request.task_id is not None:
            return await self._claim_one(shared, request, request.task_id)

        def peek(conn: sqlite3.Connection, now: int) -> Claimed | None:
            return None if shared.claims_find_work else claim.peek(conn, request, now, shared.rounds)

        claimed = await shared.write(lambda tx: claim.claim(tx, request, shared.rounds), peek=peek)
        shared.claims_find_work = len(claimed.claims) == request.limit
        return claimed

    async def _claim_one(self, shared: engine.Engine, request: ClaimRequest, task_id: str) -> Claimed:
        answer = await shared.write(lambda tx: claim.claim_one(tx, request, task_id, self._rng))
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def extend(self, held: Sequence[Lease]) -> list[Extended | HoldfastError]:
        if not held:
            return []
        return await self._engine.write(lambda tx: leases.extend(tx, held))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | HoldfastError]:
        if not settlements:
            return []
        return await self._engine.write(lambda tx: settle.settle(tx, settlements, self._rng))

    async def reap(self, *, limit: int, actor: str) -> list[Settled]:
        return await self._engine.write(
            lambda tx: settle.reap(tx, limit, actor, self._rng), peek=settle.nothing_expired
        )

    async def amend(self, change: Change, task_ids: Sequence[str], *, actor: str) -> list[Amended | HoldfastError]:
        if not task_ids:
            return []
        return await self._engine.write(lambda tx: amend.amend(tx, change, task_ids, actor, self._rng))

    async def prune(self, retention: Retention, *, limit: int) -> int:
        def peek(conn: sqlite3.Connection, now: int) -> int | None:
            return amend.nothing_outlived(conn, retention, now)

        return await self._engine.write(lambda tx: amend.prune(tx, retention, limit), peek=peek)

    async def report(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        await self._engine.write(lambda tx: leases.report(tx, lease, kind, data))

    # Workflows and steps

    async def advance(self, *, limit: int, actor: str) -> int:  # noqa: ARG002  who began it is the actor
        return await self._engine.write(lambda tx: advance.advance(tx, limit), peek=advance.nothing_left)

    async def parents(self, task_id: str, *, after: int, limit: int) -> list[ParentEnd]:
        return await self._engine.read(lambda conn: runs.parents(conn, task_id, after, limit))

    async def run(self, run_id: str) -> RunInfo | None:
        return await self._engine.read(lambda conn: runs.run(conn, run_id))

    async def run_lives(self, run_id: str) -> bool:
        return await self._engine.read(lambda conn: runs.lives(conn, run_id))

    async def runs(self, *, limit: int, after: str | None) -> list[RunInfo]:
        return await self._engine.read(lambda conn: runs.runs(conn, limit, after))

    async def record_step(self, lease: Lease, name: str, result: str) -> Step:
        return await self._engine.write(lambda tx: steps.record(tx, lease, name, result))

    async def steps(self, task_id: str) -> list[Step]:
        return await self._engine.read(lambda conn: steps.steps(conn, task_id))

    # Reads

    async def get(self, task_id: str) -> Task | None:
        return await self._engine.read(lambda conn: reads.get(conn, task_id))

    async def find(self, idempotency_key: str) -> Task | None:
        return await self._engine.read(lambda conn: reads.find(conn, idempotency_key))

    async def ended(self, task_ids: Sequence[str], *, limit: int) -> dict[str, Task | None]:
        return await self._engine.read(lambda conn: reads.ended(conn, task_ids, limit))

    async def page(self, wanted: TaskFilter) -> list[Task]:
        return await self._engine.read(lambda conn: reads.page(conn, wanted))

    async def events(self, task_id: str | None, *, after: int, limit: int) -> list[Event]:
        return await self._engine.read(lambda conn: reads.events(conn, task_id, after, limit))

    async def last_event(self) -> int:
        return await self._engine.read(reads.last_event)

    async def oldest_due(self) -> dict[str, datetime]:
        return await self._engine.read(lambda conn: reads.oldest_due(conn, self._clock.micros()))

    async def queues(self) -> list[QueueInfo]:
        return await self._engine.read(lambda conn: reads.queues(conn, self._clock.micros()))

    async def now(self) -> datetime:
        return from_micros(await self._engine.read(lambda _: self._clock.micros()))

    # Queues and workers

    async def pause(self, queue: str, *, paused: bool) -> None:
        def work(tx: Tx) -> None:
            sql = (
                "INSERT INTO holdfast_queues (name, paused) VALUES (?, ?) "
                "ON CONFLICT (name) DO UPDATE SET paused = excluded.paused"
            )
            tx.conn.execute(sql, (queue, int(paused)))
            tx.wakes = True

        await self._engine.write(work)

    async def limit(self, queue: str, changes: Mapping[str, Any]) -> Limits:
        return await self._engine.write(lambda tx: limits.limit(tx, queue, changes))

    async def enroll(self, worker: WorkerInfo) -> None:
        shared = self._engine
        await shared.write(lambda tx: workers.enroll(tx, worker, shared.presence))

    async def leave(self, worker_id: str, leases: Sequence[Lease] | None = None) -> None:
        shared = self._engine
        await shared.write(lambda tx: workers.leave(tx, worker_id, leases))
        if leases is None:
            shared.presence.let_go(worker_id)

    async def workers(self) -> list[WorkerInfo]:
        return await self._engine.read(workers.listed)

    async def evict(self, *, actor: str) -> list[str]:  # noqa: ARG002  the reaper that follows is the actor
        shared = self._engine
        found = await shared.read(lambda conn: workers.gone(conn, shared.presence))
        if found:
            return await shared.write(lambda tx: workers.evict(tx, found, shared.presence))
        await shared.write(workers.forget_silent, peek=workers.none_silent)
        return []

    # Schedules

    async def declare_schedule(self, new: NewSchedule) -> Schedule:
        return await self._engine.write(lambda tx: schedules.declare(tx, new))

    async def schedules(self) -> list[Schedule]:
        return await self._engine.read(schedules.listed)

    async def fire(self, name: str, *, last_fired_at: datetime, upto: datetime, tasks: Sequence[NewTask]) -> bool:
        return await self._engine.write(lambda tx: schedules.fire(tx, name, last_fired_at, upto, tasks))

    async def pause_schedule(self, name: str, *, paused: bool) -> None:
        await self._engine.write(lambda tx: schedules.pause(tx, name, paused=paused))

    async def delete_schedule(self, name: str) -> None:
        await self._engine.write(lambda tx: schedules.delete(tx, name))

    # Transactions of others

    async def joining(self) -> Joining:
        return Joining(self._options.path, self._clock, self._rng)

    def own_transaction(self) -> OwnTransaction:
        return self._engine.own_transaction()

    # The store itself

    async def check(self) -> list[tuple[str, bool | None, str]]:
        shared = self._engine
        return await shared.read(lambda conn: doctor.findings(conn, shared.options, self._clock.micros()))

    async def migrate(self, *, dry_run: bool = False) -> list[str]:
        """Opening does it; a dry run opens nothing for good."""
        pending = await asyncio.to_thread(self._engine.pending)
        if pending and not dry_run:
            await self._engine.read(schema.version_of)
        return pending

    async def repair(
        self,
        *,
        dry_run: bool = False,  # noqa: ARG002
        told: Callable[[str], None] = lambda _: None,  # noqa: ARG002
    ) -> list[Repair]:
        """Its indexes change in the tasks' own transactions."""
        return []

    async def migration_sql(self, since: int | None = None) -> str:
        """For `holdfast migrate --sql`: the steps after version `since`; without it those that it finds open."""
        pending = await self.migrate(dry_run=True) if since is None else [step.name for step in schema.steps()]
        todo = [step for step in schema.steps() if step.name in pending and step.version > (since or 0)]
        return schema.whole_script(todo)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._acquired is not None:
            await engine.release(self._acquired, self)
