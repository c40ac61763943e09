"""The verbs of a task's life, over the tables of state.py; the others stand beside it in files of their own.

Each takes the lock, reads the clock once, and is one atomic step. What it changes is decided in acts.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from holdfast.clock import span_micros
from holdfast.errors import HoldfastError, NotSupported
from holdfast.model.claim import Claimed, ClaimRequest, Extended, Lease
from holdfast.model.limits import Limits
from holdfast.model.outcome import Settlement
from holdfast.model.query import Retention
from holdfast.model.repair import Repair
from holdfast.model.task import NewTask, Submitted
from holdfast.model.transition import Amended, Change, Settled
from holdfast.stores.memory.dataset_verbs import DatasetVerbs
from holdfast.stores.memory.flow_verbs import FlowVerbs
from holdfast.stores.memory.outbox_verbs import OutboxVerbs
from holdfast.stores.memory.read_verbs import ReadVerbs
from holdfast.stores.memory.record import Record
from holdfast.stores.memory.token_verbs import TokenVerbs
from holdfast.stores.memory.worker_verbs import WorkerVerbs
from holdfast.stores.protocol import Capabilities, Joining, OwnTransaction


class MemoryStore(FlowVerbs, ReadVerbs, WorkerVerbs, OutboxVerbs, DatasetVerbs, TokenVerbs):
    capabilities = Capabilities(
        durable=False,
        shared=False,
        early_reaping=True,
        limits=True,
        workflows=True,
        schedules=True,
        outbox=True,
        outputs=True,
        tokens=True,
    )

    # A task's life

    async def submit(self, tasks: Sequence[NewTask]) -> list[Submitted]:
        with self._state.lock:
            answers = self._acts.submit(tasks, self._now())
        self._state.hub.announce()
        return answers

    async def claim(self, request: ClaimRequest) -> Claimed:
        with self._state.lock:
            return self._acts.claim(request, self._now())

    async def extend(self, leases: Sequence[Lease]) -> list[Extended | HoldfastError]:
        with self._state.lock:
            return self._acts.extend(leases, self._now())

    async def report(self, lease: Lease, kind: str, data: Mapping[str, Any]) -> None:
        with self._state.lock:
            self._acts.report(lease, kind, data, self._now())

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled | HoldfastError]:
        with self._state.lock:
            answers = self._acts.settle(settlements, self._now())
        self._state.hub.announce()
        return answers

    async def reap(self, *, limit: int, actor: str) -> list[Settled]:
        with self._state.lock:
            settled = self._acts.reap(limit, actor, self._now())
        if settled:
            self._state.hub.announce()
        return settled

    async def amend(self, change: Change, task_ids: Sequence[str], *, actor: str) -> list[Amended | HoldfastError]:
        with self._state.lock:
            answers = self._acts.amend(change, task_ids, actor, self._now())
        self._state.hub.announce()
        return answers

    async def prune(self, retention: Retention, *, limit: int) -> int:
        with self._state.lock:
            now = self._now()
            old = [record for record in self._state.ended.values() if _outlived(record, retention, now)]
            gone = [record for record in old if not self._state.live_run(record)][:limit]
            for record in gone:
                self._state.remove(record)
            if retention.completed is not None:
                self._state.forget_buried(now - span_micros(retention.completed.total_seconds()), limit)
            return len(gone) + self._prune_versions(retention, now, limit - len(gone))

    def _prune_versions(self, retention: Retention, now: int, limit: int) -> int:
        if retention.outputs is None:
            return 0
        live = (record for record in self._state.records.values() if not record.status.terminal)
        return self._state.datasets.prune(live, now - span_micros(retention.outputs.total_seconds()), limit)

    # Queues

    async def pause(self, queue: str, *, paused: bool) -> None:
        with self._state.lock:
            self._now()
            self._acts.pause(queue, paused)
        self._state.hub.announce()

    async def limit(self, queue: str, changes: Mapping[str, Any]) -> Limits:
        with self._state.lock:
            made = self._acts.limit(queue, changes, self._now())
        self._state.hub.announce()
        return made

    # The store itself

    async def check(self) -> list[tuple[str, bool, str]]:
        return [("durable", False, "the memory store loses everything when its process ends; it is for tests")]

    async def migrate(self, *, dry_run: bool = False) -> list[str]:  # noqa: ARG002
        return []

    async def repair(
        self,
        *,
        dry_run: bool = False,  # noqa: ARG002
        told: Callable[[str], None] = lambda _: None,  # noqa: ARG002
    ) -> list[Repair]:
        return []

    async def joining(self) -> Joining:
        raise NotSupported("tasks in memory have no transaction to join; use a SQLite or PostgreSQL URL")

    def own_transaction(self) -> OwnTransaction:
        raise NotSupported("tasks in memory have no transaction to offer; use a SQLite or PostgreSQL URL")

    async def close(self) -> None:
        self._closed = True


def _outlived(record: Record, retention: Retention, now: int) -> bool:
    age = retention.age_of(record.status)
    return (
        age is not None
        and record.finished_at is not None
        and record.finished_at <= now - span_micros(age.total_seconds())
    )
