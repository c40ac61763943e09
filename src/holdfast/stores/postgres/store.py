"""The verbs of a PostgreSQL handle: each is one call on a connection; what it does stands in the module of its name.

A handle belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, TypeVar

import asyncpg

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK, Clock, from_micros
from holdfast.errors import DatasetNotFound, Forbidden, HoldfastError, InvalidTask, SchemaMismatch
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
from holdfast.stores.gathering import Gathering
from holdfast.stores.postgres import (
    advance,
    amend,
    claim,
    completion,
    datasets,
    doctor,
    leases,
    limits,
    reads,
    roles,
    runs,
    schedules,
    schema,
    settle,
    steps,
    submit,
    workers,
)
from holdfast.stores.postgres.database import Connection
from holdfast.stores.postgres.dataset_verbs import DatasetVerbs
from holdfast.stores.postgres.fronts import Fronts
from holdfast.stores.postgres.horizon import Horizon, reached
from holdfast.stores.postgres.joined import Joining
from holdfast.stores.postgres.options import Options
from holdfast.stores.postgres.outbox_verbs import OutboxVerbs
from holdfast.stores.postgres.own_transaction import HandlerPool, OwnTransaction
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.presence import Presence
from holdfast.stores.postgres.statements import is_text
from holdfast.stores.postgres.survey import survey
from holdfast.stores.postgres.token_verbs import TokenVerbs
from holdfast.stores.postgres.tx import Tx
from holdfast.stores.postgres.wakeups import Wakeups
from holdfast.stores.postgres.workers import Enrolled
from holdfast.stores.protocol import Capabilities
from holdfast.wakeups.protocol import Wakeup

T = TypeVar("T")

GATHERED_MOST = 1000
FOLD_ROWS = 2000
"""So many rows of counts are put into one when somebody meets them."""

_gate = threading.Lock()
_fronts: dict[tuple[str, str], Fronts] = {}


def _fronts_of(options: Options) -> Fronts:
    """What the handles of one process on one store know about its queues."""
    with _gate:
        return _fronts.setdefault((options.dsn, options.schema), Fronts())


class PostgresStore(OutboxVerbs, DatasetVerbs, TokenVerbs):
    def __init__(self, options: Options, clock: Clock, *, rng: Rng = ids.JITTER) -> None:
        super().__init__(options, clock)
        self._rng = rng
        self._gathering = Gathering(
            together=self._submit_new,
            alone=self._submit_any,
            refused=(submit.Taken, DatasetNotFound, InvalidTask),
            most=GATHERED_MOST,
        )
        self._evidence = Presence(self._opened.keeper)
        self._horizon = Horizon()
        self._claims_on: Connection | None = None
        self._surveying: asyncio.Task[None] | None = None
        self._enrolled: set[str] = set()
        self._missed: dict[Enrolled, float] = {}
        self._links = False
        """The last completions were of tasks for which others wait: the next ones probably are."""
        self._tidings = Wakeups(options, self._opened.database, clock)
        self._fronts = _fronts_of(options)
        self._handlers = HandlerPool(options)
        self._joining: Joining | None = None
        self.capabilities = Capabilities(
            durable=True,
            shared=True,
            joined_transactions=True,
            early_reaping=not options.pooled,
            limits=True,
            workflows=True,
            schedules=True,
            outbox=True,
            outputs=True,
            tokens=True,
        )
        self.wakeups: Sequence[Wakeup] = self._tidings.work.wakeups
        self.endings: Sequence[Wakeup] = self._tidings.ends.wakeups

    @property
    def _presence(self) -> Presence:
        self._ensure_open()
        return self._evidence

    async def _transact(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        """Run `work` in a transaction; durable when this returns."""

        async def whole(session: Session) -> tuple[T, Tx]:
            async with session.conn.transaction():
                tx = Tx(session)
                answer = await work(tx)
                await advance.follow(tx)
                await tx.flush()
            return answer, tx

        answer, tx = await self._pool.writer.run(whole)
        if tx.queued:
            self._fronts.queued(tx.queued)
        self._announce(wakes=bool(tx.queued) or tx.ends, ends=tx.ends)  # an end may free a place that limits count
        return answer

    def _announce(self, *, wakes: bool = False, ends: bool = False) -> None:
        """After the commit, never within it."""
        if wakes:
            self._tidings.work.announce()
        if ends:
            self._tidings.ends.announce()

    # A task's way

    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        if not tasks:
            return []
        submit.check(tasks)
        return await self._gathering.submit(tasks)

    async def _submit_new(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        news = self._tidings.work.for_the_commit()
        seat = self._pool.carrier if len(tasks) > GATHERED_MOST else self._pool.writer
        heard = await seat.run(lambda session: submit.submit(session, tasks, news))
        self._fronts.submitted(tasks)
        if heard is None:
            self._announce(wakes=True)
        else:
            self._tidings.work.told(heard=heard)
        return [Submitted(new.id, created=True) for new in tasks]

    async def _submit_any(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        try:
            return await self._submit_new(tasks)
        except submit.Taken:
            answers = await self._transact(lambda tx: submit.submit_known(tx.session, tasks))
        self._fronts.submitted(tasks)
        self._announce(wakes=True)
        return answers

    async def claim(self, request: ClaimRequest) -> Claimed:
        if request.task_id is None:
            claimed = await self._pool.claimer.run(lambda session: self._claim(session, request))
            if claimed.claims:
                self._survey_if_due(claim.asked(request))
            return claimed
        task_id = request.task_id
        answer = await self._transact(lambda tx: claim.claim_one(tx, request, task_id, self._rng))
        if isinstance(answer, HoldfastError):
            raise answer
        return answer

    async def _claim(self, session: Session, request: ClaimRequest) -> Claimed:
        before, self._claims_on = self._claims_on, session.conn
        if before is not None and before is not session.conn:
            self._fronts.start_anew()  # it may be another server, with another clock
        return await claim.claim(session, request, self._fronts)

    def _survey_if_due(self, queues: Sequence[str] | None) -> None:
        """Beside the work that was just claimed, which need not wait for it."""
        if self._fronts.survey_due() and (self._surveying is None or self._surveying.done()):
            self._surveying = asyncio.create_task(self._survey(queues), name="holdfast-survey")

    async def _survey(self, queues: Sequence[str] | None) -> None:
        with suppress(HoldfastError):  # the next claim meets it too
            await self._pool.claimer.run(lambda session: survey(session, self._fronts, queues))

    async def _end_survey(self) -> None:
        task, self._surveying = self._surveying, None
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            task.cancel()
            await asyncio.wait({task})

    async def extend(self, held: Sequence[Lease]) -> list[Extended | HoldfastError]:
        if not held:
            return []
        return await self._transact(lambda tx: leases.extend(tx, held))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | HoldfastError]:
        """First the plain completions, each kind in one statement, then the rest in one transaction."""
        plain = completion.plain_ones(settlements)
        # Where something else ends with them, tasks for which others wait go the long way, all in their order.
        only = len(plain) == len(settlements)
        done: dict[str, Settled] = {}
        if plain and not (only and self._links):
            done = await self._complete(completion.completed, plain)
        left = [settlement for settlement in plain if settlement.lease.task_id not in done]
        if left and only:
            done |= await self._complete(completion.completed_linked, left)
        rest = [settlement for settlement in settlements if settlement.lease.task_id not in done]
        answers: list[Settled | HoldfastError] = []
        if rest:
            answers = await self._transact(lambda tx: settle.settle(tx, rest, self._rng))
        others = iter(answers)
        return [done.get(settlement.lease.task_id) or next(others) for settlement in settlements]

    async def _complete(
        self, way: Callable[[Session, Sequence[Settlement]], Awaitable[completion.Recorded]], plain: list[Settlement]
    ) -> dict[str, Settled]:
        recorded = await self._pool.writer.run(lambda session: way(session, plain))
        if way is completion.completed_linked:
            self._links = recorded.linked
        if recorded.queued:
            self._fronts.queued(recorded.queued)
        self._announce(wakes=bool(recorded.queued) or recorded.freed, ends=bool(recorded.ends))
        return recorded.ends

    async def reap(self, *, limit: int, actor: str) -> list[Settled]:
        if self._fronts.survey_due():
            await self._pool.writer.run(lambda session: survey(session, self._fronts, []))
        since = self._fronts.leases
        return await self._transact(lambda tx: settle.reap(tx, limit, since, actor, self._rng))

    async def amend(self, change: Change, task_ids: Sequence[str], *, actor: str) -> list[Amended | HoldfastError]:
        if not task_ids:
            return []
        return await self._transact(lambda tx: amend.amend(tx, change, task_ids, actor, self._rng))

    async def prune(self, retention: Retention, *, limit: int) -> int:
        gone = await self._transact(lambda tx: amend.prune(tx, retention, limit))
        for _ in range(datasets.SWEEPS):
            if not await self._write(datasets.sweep):
                break
        if not gone:
            await self._fold()
        return gone

    async def report(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        await self._transact(lambda tx: leases.report(tx, lease, kind, data))

    # Workflows and steps

    async def advance(self, *, limit: int, actor: str) -> int:  # noqa: ARG002  who began it is the actor
        done = 0
        while done < limit:
            most = limit - done
            came = await self._transact(lambda tx: advance.step(tx, most))  # noqa: B023  awaited here
            if came is None:
                break
            done += came.done
            if came.stuck:
                break
        return done

    async def parents(self, task_id: str, *, after: int, limit: int) -> list[ParentEnd]:
        return await self._read(lambda session: runs.parents(session, task_id, after, limit))

    async def run(self, run_id: str) -> RunInfo | None:
        return await self._read(lambda session: runs.run(session, run_id))

    async def run_lives(self, run_id: str) -> bool:
        return await self._read(lambda session: runs.lives(session, run_id))

    async def runs(self, *, limit: int, after: str | None) -> list[RunInfo]:
        return await self._read(lambda session: runs.listed(session, limit, after))

    async def record_step(self, lease: Lease, name: str, result: str) -> Step:
        return await self._transact(lambda tx: steps.record(tx, lease, name, result))

    async def steps(self, task_id: str) -> list[Step]:
        return await self._read(lambda session: steps.listed(session, task_id))

    # Reads

    async def get(self, task_id: str) -> Task | None:
        return await self._read(lambda session: reads.get(session, task_id))

    async def find(self, idempotency_key: str) -> Task | None:
        return await self._read(lambda session: reads.find(session, idempotency_key))

    async def ended(self, task_ids: Sequence[str], *, limit: int) -> dict[str, Task | None]:
        return await self._read(lambda session: reads.ended(session, task_ids, limit))

    async def page(self, wanted: TaskFilter) -> list[Task]:
        return await self._read(lambda session: reads.page(session, wanted))

    async def events(self, task_id: str | None, *, after: int, limit: int) -> list[Event]:
        return await self._read(lambda session: reads.events(session, task_id, after, limit, self._horizon))

    async def last_event(self) -> int:
        return await self._read(lambda session: reached(session, self._horizon))

    async def oldest_due(self) -> dict[str, datetime]:
        return await self._read(reads.oldest_due)

    async def queues(self) -> list[QueueInfo]:
        infos, rows = await self._read(reads.queues)
        if rows > FOLD_ROWS + len(infos):
            with suppress(Forbidden):  # who may only look leaves it to a worker
                await self._fold()
        return infos

    async def now(self) -> datetime:
        return await self._read(reads.now)

    # Queues and workers

    async def pause(self, queue: str, *, paused: bool) -> None:
        await self._pool.writer.run(lambda session: session.rows("pause", queue, paused))
        self._announce(wakes=True)

    async def limit(self, queue: str, changes: Mapping[str, Any]) -> Limits:
        made = await self._write_all(lambda session: limits.limit(session, queue, changes))
        self._announce(wakes=True)
        return made

    async def enroll(self, worker: WorkerInfo) -> None:
        nonce = None if self._options.pooled or worker.remote else await self._presence.hold(worker.id)
        again = worker.id in self._enrolled
        await self._transact(lambda tx: workers.enroll(tx, worker, nonce, again=again))
        self._enrolled.add(worker.id)

    async def leave(self, worker_id: str, held: Sequence[Lease] | None = None) -> None:
        if held is None:
            self._enrolled.discard(worker_id)
        if is_text(worker_id):
            await self._transact(lambda tx: workers.leave(tx, worker_id, held))
        if held is None:
            await self._presence.let_go(worker_id)

    async def workers(self) -> list[WorkerInfo]:
        return await self._read(workers.listed)

    async def evict(self, *, actor: str) -> list[str]:  # noqa: ARG002  the reaper that follows is the actor
        for worker_id in self._presence.lost():
            await self._renew(worker_id)
        await self._write(workers.forget_remote)
        found = await self._write(lambda session: workers.gone(session, self._presence.here))
        overdue = self._overdue(found)
        if not overdue:
            return []
        return await self._transact(lambda tx: workers.evict(tx, overdue))

    async def _renew(self, worker_id: str) -> None:
        nonce = await self._presence.hold(worker_id)
        await self._pool.writer.run(lambda session: workers.renew(session, worker_id, nonce))

    def _overdue(self, found: list[Enrolled]) -> list[Enrolled]:
        """Those whose session this handle has missed for the grace time. Real time: a session comes back in that.

        After an outage every session is missing, and those who wait between two tries come back last: twice the time.
        """
        now, grace = SYSTEM_CLOCK.monotonic(), self._options.evict_grace_seconds
        self._missed = {one: self._missed.get(one, now) for one in found}
        if now - self._pool.writer.back_at < 2 * grace:
            return []
        return [one for one, since in self._missed.items() if now - since >= grace]

    # Schedules

    async def declare_schedule(self, new: NewSchedule) -> Schedule:
        with self._having_schedules():
            return await self._pool.writer.run(lambda session: schedules.declare(session, new))

    async def schedules(self) -> list[Schedule]:
        # Every worker asks now and then, and one that has nothing else to read is spared a connection for it.
        seat = self._pool.writer if self._pool.writer.connected else self._pool.reader
        with self._having_schedules():
            return await seat.run(schedules.listed)

    async def fire(self, name: str, *, last_fired_at: datetime, upto: datetime, tasks: Sequence[NewTask]) -> bool:
        submit.check(tasks)
        with self._having_schedules():
            fired = await self._transact(lambda tx: schedules.fire(tx, name, last_fired_at, upto, tasks))
        if fired and tasks:
            self._fronts.submitted(tasks)
            self._announce(wakes=True)
        return fired

    async def pause_schedule(self, name: str, *, paused: bool) -> None:
        with self._having_schedules():
            await self._pool.writer.run(lambda session: schedules.pause(session, name, paused=paused))

    async def delete_schedule(self, name: str) -> None:
        with self._having_schedules():
            await self._pool.writer.run(lambda session: schedules.delete(session, name))

    @contextmanager
    def _having_schedules(self) -> Iterator[None]:
        try:
            yield
        except asyncpg.UndefinedTableError as error:
            raise SchemaMismatch(
                f"{self.label} has an older schema, which has no schedules; "
                "run `holdfast migrate` as the owner of the schema"
            ) from error

    # Transactions of others

    async def joining(self) -> Joining:
        self._ensure_open()
        if self._joining is None:
            try:
                identity = await self._read(lambda session: session.value("identity"))
            except asyncpg.UndefinedFunctionError as error:
                raise SchemaMismatch(
                    f"{self.label} has an older schema, which cannot join transactions; "
                    "run `holdfast migrate` as the owner of the schema"
                ) from error
            self._joining = Joining(self._options.quoted_schema, self.label, identity, self._given, self._fronts)
        return self._joining

    def own_transaction(self) -> OwnTransaction:
        self._ensure_open()
        return OwnTransaction(self._handlers, lambda: self._announce(wakes=True, ends=True))

    def _given(self) -> datetime | None:
        """The instant that a test wants it to be."""
        return None if self._clock is SYSTEM_CLOCK else from_micros(self._clock.micros())

    # The store itself

    async def check(self) -> list[doctor.Finding]:
        found = await self._read(lambda session: doctor.findings(session, self._options))
        return [*found, await self._tidings.finding()]

    async def migrate(self, *, dry_run: bool = False) -> list[str]:
        return await self._pool.migrate(dry_run=dry_run)

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
        version = await self._pool.version() if since is None else since
        return schema.whole_script(schema.steps_after(version), self._options.quoted_schema)

    def roles_sql(self) -> str:
        """What gives producers, workers and viewers their rights on this schema, for `holdfast migrate --roles`."""
        return roles.script(self._options.quoted_schema)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._end_survey()
            await self._tidings.close()
            await self._handlers.close()
            await self._opened.close()

    async def _fold(self) -> None:
        await self._pool.writer.run(lambda session: session.rows("fold"))
