"""A dispatcher as a store: the whole seam over HTTP, for workers and programs without access to the database.

What a call means is decided by the store behind, by its clock. What is different here:

- `reap`, `prune` and `evict` find nothing to do: the dispatcher does all of that (`maintained`).
- Relaying and its secrets (`targets`, `take_outbox`, `record_deliveries`), tokens and migrations are refused with
  NotSupported: they belong where the store is. So is joining a transaction: there is none to join.
- A worker that is gone is noticed when its leases expire; nothing here shows that it lives (ADR 16).
- What the store behind cannot do, it refuses itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn

from holdfast.dispatcher import queries, wire, wire_flows, wire_work
from holdfast.errors import NotSupported
from holdfast.model.claim import Lease
from holdfast.model.limits import NO_LIMITS, Limits
from holdfast.model.query import WorkerInfo
from holdfast.model.repair import Repair
from holdfast.model.token import NewToken, Token
from holdfast.policy.limits import changed
from holdfast.stores.protocol import Capabilities, Joining, OwnTransaction
from holdfast.stores.remote import forms
from holdfast.stores.remote.flow_verbs import FlowVerbs
from holdfast.stores.remote.listener import Listener
from holdfast.stores.remote.options import Options
from holdfast.stores.remote.read_verbs import ReadVerbs
from holdfast.stores.remote.task_verbs import TaskVerbs
from holdfast.stores.remote.telling_verbs import TellingVerbs
from holdfast.wakeups.protocol import Wakeup

PATIENCE_SECONDS = 10.0
"""Beyond what a dispatcher was asked to wait."""


class RemoteStore(TaskVerbs, ReadVerbs, FlowVerbs, TellingVerbs):
    capabilities = Capabilities(
        durable=True,
        shared=True,
        limits=True,
        workflows=True,
        schedules=True,
        outbox=True,
        outputs=True,
        maintained=True,
    )

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._listeners = [self._listener("work"), self._listener("ends")] if options.wakeups else []
        self.wakeups: Sequence[Wakeup] = self._listeners[:1]
        self.endings: Sequence[Wakeup] = self._listeners[1:]

    def _listener(self, kind: Literal["work", "ends"]) -> Listener:
        async def ask(seen: str | None, wait: float) -> str:
            query = queries.WakeupsQuery(kind=kind, seen=seen, wait=0 if seen is None else wait)
            answer = await self._ask("wakeups", wire_work.WakeupsAnswer, query, seconds=wait + PATIENCE_SECONDS)
            return answer.seen

        return Listener(ask, label=self.label)

    # Queues and workers

    async def pause(self, queue: str, *, paused: bool) -> None:
        await self._ask("pause_queue", wire.Done, wire_flows.PauseQueueCall(queue=queue, paused=paused))

    async def limit(self, queue: str, changes: Mapping[str, Any]) -> Limits:
        changed(queue, NO_LIMITS, changes)  # refuses what makes no sense; what holds already is known there
        return await self._ask("limit", Limits, wire_flows.LimitCall(queue=queue, **changes))

    async def enroll(self, worker: WorkerInfo) -> None:
        call = wire_work.EnrollCall(
            id=worker.id,
            host=worker.host,
            pid=worker.pid,
            queues=worker.queues,
            concurrency=worker.concurrency,
            version=worker.version,
            names=worker.names,
        )
        await self._ask("enroll", wire.Done, call)

    async def leave(self, worker_id: str, leases: Sequence[Lease] | None = None) -> None:
        """What is not shown to be its own is left to run out."""
        held = [forms.lease_in(lease) for lease in leases or ()]
        await self._ask("leave", wire.Done, wire_work.LeaveCall(worker_id=worker_id, leases=held[: wire.BATCH_MOST]))

    async def workers(self) -> list[WorkerInfo]:
        return (await self._ask("workers", wire_work.WorkersAnswer)).workers

    async def evict(self, *, actor: str) -> list[str]:  # noqa: ARG002
        self._line.ensure_open()
        return []

    # What is refused

    async def add_token(self, new: NewToken) -> Token:  # noqa: ARG002
        self._no_tokens()

    async def token(self, token_id: str) -> Token | None:  # noqa: ARG002
        self._no_tokens()

    async def tokens(self) -> list[Token]:
        self._no_tokens()

    async def revoke_token(self, token_id: str) -> bool:  # noqa: ARG002
        self._no_tokens()

    def _no_tokens(self) -> NoReturn:
        raise NotSupported(
            f"tokens are not made through {self.label}; run `holdfast token` with the URL of the store behind it"
        )

    async def joining(self) -> Joining:
        raise NotSupported(f"{self.label} has no transaction to join; use the URL of the SQLite or PostgreSQL store")

    def own_transaction(self) -> OwnTransaction:
        raise NotSupported(f"{self.label} has no transaction to offer; use the URL of the SQLite or PostgreSQL store")

    async def migrate(self, *, dry_run: bool = False) -> list[str]:  # noqa: ARG002
        raise NotSupported(f"{self.label} is a dispatcher; run `holdfast migrate` with the URL of the store behind it")

    async def repair(
        self,
        *,
        dry_run: bool = False,  # noqa: ARG002
        told: Callable[[str], None] = lambda _: None,  # noqa: ARG002
    ) -> list[Repair]:
        raise NotSupported(
            f"{self.label} is a dispatcher; run `holdfast doctor --repair` with the URL of the store behind it"
        )

    # The store itself

    async def check(self) -> list[tuple[str, bool | None, str]]:
        store = await self._ask("store", wire.StoreAnswer)
        behind = f"{store.label} is behind it, holdfast {store.version}"
        checks = (await self._ask("check", wire.CheckAnswer)).checks
        return [("dispatcher", True, behind), *((one.question, one.well, one.words) for one in checks)]

    async def close(self) -> None:
        for listener in self._listeners:
            await listener.close()
        await self._line.close()
