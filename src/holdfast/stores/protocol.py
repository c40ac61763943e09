"""The seam: what every store answers for, as few verbs, batched, safe to repeat.

    submit ──► claim ──► extend … ──► settle            a task's way
                  ▲                      │
                  └──── reap, amend ◄────┘              its way back; prune is its end

What holds for every verb:

- One atomic step: a record and its events change together or not at all (C3.3).
- Repeatable after a lost reply: submits carry ids that the client made, claims a `claim_id`, settles their token.
- The store's clock decides; it is handed in when a store is opened for a test, never per call, so that the seam also
  fits a dispatcher, whose clients must not choose the time.
- What crosses the seam is the outcome; the store asks policy/verdict.py what follows and writes that.
- Where a call names several things, the answer has one entry each, in order: a value, or the error that refuses it.
  A call that is refused as a whole raises, and has changed nothing.
- Every call may raise StoreUnavailable; then it may or may not have happened, and can simply be made again.

A store says in its Capabilities what it cannot do, and refuses that with NotSupported. Everything here is proved for
every store by testing/conformance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from holdfast.errors import HoldfastError
from holdfast.model.claim import Claimed, ClaimRequest, Extended, Lease
from holdfast.model.event import Event
from holdfast.model.limits import Limits
from holdfast.model.outbox import Delivery, NewSink, OutboxRow, OutboxState, Sink
from holdfast.model.outcome import Settlement
from holdfast.model.output import DatasetInfo, DatasetVersion, OutputRow
from holdfast.model.query import QueueInfo, Retention, TaskFilter, WorkerInfo
from holdfast.model.repair import Repair
from holdfast.model.schedule import NewSchedule, Schedule
from holdfast.model.task import NewTask, Submitted, Task
from holdfast.model.token import NewToken, Token
from holdfast.model.transition import Amended, Change, Settled
from holdfast.model.workflow import ParentEnd, RunInfo, Step
from holdfast.wakeups.protocol import Wakeup


class Capabilities(msgspec.Struct, frozen=True, kw_only=True):
    """The contract's section 19 as data."""

    durable: bool
    """An acknowledged submit survives a power cut."""
    shared: bool
    """Other processes can open the same store."""
    joined_transactions: bool = False
    early_reaping: bool = False
    limits: bool = False
    workflows: bool = False
    schedules: bool = False
    outbox: bool = False
    outputs: bool = False
    tokens: bool = False
    maintained: bool = False
    """Somebody else reaps, advances, fires, prunes and relays for those who work on it."""


class TaskStore(Protocol):
    """The seven verbs of a task's life."""

    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        """Store these tasks, all or none; durable when this returns (C4.1).

        A known idempotency key answers with the existing task's id; the same id again answers as the first time.
        """

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Lease up to `limit` due tasks, best first, each a new attempt with a new token (C5.3)."""

    async def extend(self, leases: Sequence[Lease]) -> list[Extended | HoldfastError]:
        """Prolong these leases by their own length from now; LeaseLost for each that is not current (C6.2)."""

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | HoldfastError]:
        """Record the ends of these attempts with their events and follow-ups; LeaseLost for what is stale.

        Each settlement is atomic for itself. The same again gets the same answer and changes nothing.
        """

    async def reap(self, *, limit: int, actor: str) -> list[Settled]:
        """Record up to `limit` expired attempts as lost, each once, whoever else reaps at the same time (C6.5)."""

    async def amend(self, change: Change, task_ids: Sequence[str], *, actor: str) -> list[Amended | HoldfastError]:
        """An operator's act on these tasks (C8, table 18)."""

    async def prune(self, retention: Retention, *, limit: int) -> int:
        """Delete up to `limit` ended tasks, and superseded versions of datasets, that are older than `retention` keeps
        them; how many of both went (C8.5, C13.3).
        """

    async def report(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        """Record an event of a running attempt at once (progress); LeaseLost if the lease is not current."""


class TaskReader(Protocol):
    async def get(self, task_id: str) -> Task | None: ...

    async def find(self, idempotency_key: str) -> Task | None: ...

    async def ended(self, task_ids: Sequence[str], *, limit: int) -> dict[str, Task | None]:
        """Of these tasks those that have ended, by id, and None for each that does not exist; some `limit` at most."""

    async def page(self, wanted: TaskFilter) -> list[Task]: ...

    async def events(self, task_id: str | None, *, after: int, limit: int) -> list[Event]:
        """Events in order, of one task or of all, with an id above `after`."""

    async def last_event(self) -> int:
        """A place in the log of all events: what is recorded from now on is above it, and little else."""

    async def queues(self) -> list[QueueInfo]:
        """Every queue ever seen, by name, with its counts. Costs the same however many tasks there are."""

    async def oldest_due(self) -> dict[str, datetime]:
        """By queue, since when the task is due that has waited longest; without those where none is. Paused queues and
        tasks that a limit holds are counted. Costs a seek per queue and priority.
        """

    async def now(self) -> datetime:
        """The store's clock."""


class QueueStore(Protocol):
    async def pause(self, queue: str, *, paused: bool) -> None: ...

    async def limit(self, queue: str, changes: Mapping[str, Any]) -> Limits:
        """Change some limits of a queue, or of the whole store (`*`); the limits that hold now (C9, policy/limits.py).

        Claims of all workers follow within a second. What is not named in `changes` stays; None clears it.
        """


class WorkflowStore(Protocol):
    """A task with parents waits. It is advanced by the settles that end its parents, in the same atomic step."""

    async def advance(self, *, limit: int, actor: str) -> int:
        """Go on with what a settle has left because there was too much of it (C10.5): some `limit` dependents, in one
        atomic step; how many. 0: nothing is left.
        """

    async def parents(self, task_id: str, *, after: int, limit: int) -> list[ParentEnd]:
        """How the parents of a task have ended, in the order in which it names them, without the first `after`.

        One that has not ended (again) shows its last failure; one that is gone is missing.
        """

    async def run(self, run_id: str) -> RunInfo | None: ...

    async def run_lives(self, run_id: str) -> bool:
        """Can anything of it still run? Costs the same however many tasks it has."""

    async def runs(self, *, limit: int, after: str | None) -> list[RunInfo]:
        """Newest first, by the id of their first task; `after` is the id of the last run of the page before."""


class StepStore(Protocol):
    async def record_step(self, lease: Lease, name: str, result: str) -> Step:
        """Record what a step gave; the recorded one, if there is one already. LeaseLost if the lease is not current."""

    async def steps(self, task_id: str) -> list[Step]: ...


class ScheduleStore(Protocol):
    async def declare_schedule(self, new: NewSchedule) -> Schedule:
        """Make it known, or renew it; paused stays paused. One that fires at other times than before begins anew at
        this moment (policy/firing.py).
        """

    async def schedules(self) -> list[Schedule]:
        """All of them, by name."""

    async def fire(self, name: str, *, last_fired_at: datetime, upto: datetime, tasks: Sequence[NewTask]) -> bool:
        """Submit these tasks and set `last_fired_at` to `upto`, if it is what the caller took it for and the schedule
        is not paused; else False: somebody else was first, and nothing was changed.
        """

    async def pause_schedule(self, name: str, *, paused: bool) -> None:
        """What would have fired meanwhile is not missed: a resumed schedule begins anew. ScheduleNotFound."""

    async def delete_schedule(self, name: str) -> None:
        """ScheduleNotFound. Its tasks stay."""


class OutboxStore(Protocol):
    """Who is told of changes, and what they are yet to be told (section 12). Rows are written by the store itself, with
    the change and its event, for every sink that is known then.
    """

    async def declare_sink(self, new: NewSink) -> None:
        """Make it known, or renew it."""

    async def delete_sink(self, name: str) -> bool:
        """And all that waits for it; False if there is none of this name."""

    async def sinks(self) -> list[Sink]:
        """All of them, by name, as people read them."""

    async def targets(self) -> list[NewSink]:
        """The same for relays, with the secrets."""

    async def take_outbox(self, sinks: Sequence[str], *, limit: int, hold: str, hold_seconds: float) -> list[OutboxRow]:
        """Rows for these sinks that are due, oldest first, for this relay alone until the hold is over.

        Of the events of one task for one sink only the first that is pending. Wake-ups for tasks that are not due and
        queued any more are dropped instead.
        """

    async def record_deliveries(self, deliveries: Sequence[Delivery]) -> None:
        """What became of rows that were taken (policy/relaying.py). Of rows that are held by others now: nothing."""

    async def outbox(self, *, sink: str | None, state: OutboxState | None, limit: int, after: int) -> list[OutboxRow]:
        """By id, above `after`."""

    async def requeue_outbox(self, row_ids: Sequence[int]) -> int:
        """Dead rows are pending again, with all their tries; how many."""

    async def purge_outbox(self, row_ids: Sequence[int]) -> int:
        """Forget dead rows; how many."""


class DatasetStore(Protocol):
    """What completions have written (section 13). Versions never change."""

    async def datasets(self, *, limit: int, after: str | None) -> list[DatasetInfo]:
        """By name, after this one."""

    async def dataset_versions(self, dataset: str, *, limit: int, before: int | None) -> list[DatasetVersion]:
        """Newest first, those below `before`."""

    async def dataset_version(self, dataset: str, version: int | None) -> DatasetVersion | None:
        """This one, or the latest."""

    async def dataset_rows(self, dataset: str, version: int, *, after: str | None, limit: int) -> list[OutputRow]:
        """By key (in the order of code points), after this one. DatasetNotFound if there is no such version."""

    async def pinned(self, task_id: str) -> dict[str, int | None]:
        """The versions that a task reads, by dataset; None where no parent has written one."""


class TokenStore(Protocol):
    async def add_token(self, new: NewToken) -> Token: ...

    async def token(self, token_id: str) -> Token | None: ...

    async def tokens(self) -> list[Token]:
        """Oldest first, the revoked ones too."""

    async def revoke_token(self, token_id: str) -> bool:
        """False if there is none. Revoking once more changes nothing."""


class WorkerStore(Protocol):
    async def enroll(self, worker: WorkerInfo) -> None:
        """Make a worker known, or renew its entry, and hold the evidence that it lives (C6.7).

        A remote one, whose name is all that it shows, does not replace one of which there is evidence.
        """

    async def leave(self, worker_id: str, leases: Sequence[Lease] | None = None) -> None:
        """Forget a worker; what it still holds is ended, as for one that is gone.

        None: all that was claimed under its name. That is for those who have the store itself. Through a dispatcher
        a name proves nothing: then these leases are ended, those of them that are current, and only the entry of a
        remote worker is forgotten.
        """

    async def workers(self) -> list[WorkerInfo]: ...

    async def evict(self, *, actor: str) -> list[str]:
        """End the leases of workers that are known to be gone; their ids. Ordinary reaping follows (C6.7)."""


class Joined(Protocol):
    """Somebody's open transaction, as the store writes in it. What is written is true once that commits.

    The plain forms are for plain connections, the others for both. A refused submit has written nothing and leaves the
    transaction usable; a completion that raises LeaseLost must not be committed.
    """

    @property
    def awaited(self) -> bool:
        """The connection is async: only the forms with an `a` work."""

    def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]: ...

    async def asubmit(self, tasks: Sequence[NewTask]) -> list[Submitted]: ...

    def complete(self, settlement: Settlement) -> Settled: ...

    async def acomplete(self, settlement: Settlement) -> Settled: ...


class Joining(Protocol):
    """What has to be known of a store to join transactions; may be kept, and used in any thread and loop."""

    def into(self, connection: Any) -> Joined:
        """The transaction that is open on this connection; InvalidTask for one that leads elsewhere."""


class OwnTransaction(Protocol):
    """A transaction for a handler, on a connection of its own to the store's database (C7.6).

    Entered and left once. What `leave` raises leaves open whether it happened.
    """

    def enter(self) -> Any:
        """The connection; for plain functions."""

    def leave(self, *, commit: bool) -> None: ...

    async def aenter(self) -> Any:
        """The connection; for coroutines."""

    async def aleave(self, *, commit: bool) -> None: ...


class JoinStore(Protocol):
    async def joining(self) -> Joining: ...

    def own_transaction(self) -> OwnTransaction: ...


class Store(
    TaskStore,
    TaskReader,
    QueueStore,
    WorkerStore,
    JoinStore,
    WorkflowStore,
    StepStore,
    ScheduleStore,
    OutboxStore,
    DatasetStore,
    TokenStore,
    Protocol,
):
    """A handle for one event loop. Handles on the same store in one process share what is costly."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def wakeups(self) -> Sequence[Wakeup]:
        """The store's own hints that work may be claimable; polling is always underneath."""

    @property
    def endings(self) -> Sequence[Wakeup]:
        """The same for tasks that have ended, for those who wait for one."""

    @property
    def label(self) -> str:
        """The store in words for people, without secrets."""

    async def check(self) -> Sequence[tuple[str, bool | None, str]]:
        """What `holdfast doctor` asks: (question, is it well, in words); None is a warning."""

    async def migrate(self, *, dry_run: bool = False) -> list[str]:
        """Bring the schema up to date; the names of the steps done, or to be done."""

    async def repair(self, *, dry_run: bool = False, told: Callable[[str], None] = lambda _: None) -> list[Repair]:
        """Make indexes that are kept apart from the tasks what the tasks say, while others go on working; what was
        wrong. Nothing, where the tasks are the index. `told` hears how long work goes on, in any thread.
        """

    async def close(self) -> None: ...


StoreFactory = Callable[[], Store]
