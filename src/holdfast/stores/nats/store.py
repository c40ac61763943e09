"""NATS JetStream as a store, for one event loop: one stream, one message per thing, changes by atomic compare-and-set.

    subjects.py   what lies where            wire.py      the connection, acknowledged writes
    images.py     how a task is written      stream.py    the stream itself, the servers' clock
    replica.py    the live tasks in memory   feed.py      what others write
    messages.py   a change as messages       ledger.py    plan, write, or catch up and plan again
    besides.py    queues, heads, tallies     turns.py     who plans, what is under way
    bulletins.py  what followers are told    following.py how fresh the replica is
    packs.py      submits beyond one step    reader.py    what is read from the stream itself
    sheets.py     events in one message      history.py   the log of events
    planner.py    the acts                   members.py   who belongs to a run
    torn.py       tasks with two homes       unreadable.py what nobody understands
    client.py     the library's, quicker     engine.py    one such store per process (shared.py)

What a stream's consumer acknowledges is never asked: an image that is not the last in its place decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NoReturn

from holdfast.errors import NotSupported
from holdfast.model.repair import Repair
from holdfast.stores.nats.doctor import checked
from holdfast.stores.nats.flow_verbs import FlowVerbs
from holdfast.stores.nats.read_verbs import ReadVerbs
from holdfast.stores.nats.refused_verbs import RefusedVerbs
from holdfast.stores.nats.repair import Repairs
from holdfast.stores.nats.table_verbs import TableVerbs
from holdfast.stores.protocol import Capabilities, Joining, OwnTransaction
from holdfast.wakeups.protocol import Wakeup


class NatsStore(TableVerbs, FlowVerbs, ReadVerbs, RefusedVerbs):
    capabilities = Capabilities(
        durable=True,
        shared=True,
        early_reaping=True,
        limits=True,
        workflows=True,
        schedules=True,
        tokens=True,
    )

    @property
    def wakeups(self) -> Sequence[Wakeup]:
        return (self._ledger.news,)

    @property
    def endings(self) -> Sequence[Wakeup]:
        return (self._ledger.ends,)

    async def check(self) -> Sequence[tuple[str, bool | None, str]]:
        return await checked(self._ledger)

    async def migrate(self, *, dry_run: bool = False) -> list[str]:
        return await self._ledger.stream.migrate(dry_run=dry_run)

    async def repair(self, *, dry_run: bool = False, told: Callable[[str], None] = lambda _: None) -> list[Repair]:
        return await Repairs(self._ledger, told, dry_run=dry_run).all()

    async def joining(self) -> Joining:
        no_transaction()

    def own_transaction(self) -> OwnTransaction:
        no_transaction()

    async def close(self) -> None:
        await self._ledger.close()


def no_transaction() -> NoReturn:
    raise NotSupported("NATS has no transaction to join; use a SQLite or PostgreSQL URL")
