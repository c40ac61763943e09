"""A handle on a NATS store: every verb is done by the engine that all handles of this process share (engine.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK, Clock
from holdfast.errors import StoreClosed
from holdfast.policy.backoff import Rng
from holdfast.stores.nats.engine import Engine, engine_for
from holdfast.stores.nats.engine import leave as leave_engine
from holdfast.stores.nats.options import Options
from holdfast.stores.nats.store import NatsStore, no_transaction
from holdfast.stores.protocol import Joining, OwnTransaction
from holdfast.wakeups.protocol import Wakeup

P = ParamSpec("P")
T = TypeVar("T")


def _there(
    verb: Callable[Concatenate[NatsStore, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SharedStore, P], Coroutine[Any, Any, T]]:
    """The same verb, done in the engine's thread."""

    async def call(self: SharedStore, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._engine().run(verb, *args, **kwargs)

    return call


class SharedStore:
    capabilities = NatsStore.capabilities

    def __init__(self, options: Options, clock: Clock = SYSTEM_CLOCK, *, rng: Rng = ids.JITTER) -> None:
        self._options = options
        self._clock = clock
        self._rng = rng
        self._used: Engine | None = None
        self._closed = False
        self.label = options.label

    def _engine(self) -> Engine:
        """Made when it is first needed."""
        if self._closed:
            raise StoreClosed(f"{self.label} was closed; open it again to go on")
        if self._used is None:
            self._used = engine_for(self._options, self._clock, self._rng, self)
        return self._used

    @property
    def wakeups(self) -> Sequence[Wakeup]:
        return self._engine().store.wakeups

    @property
    def endings(self) -> Sequence[Wakeup]:
        return self._engine().store.endings

    async def joining(self) -> Joining:
        no_transaction()

    def own_transaction(self) -> OwnTransaction:
        no_transaction()

    async def close(self) -> None:
        self._closed = True
        engine, self._used = self._used, None
        if engine is not None:
            await asyncio.to_thread(leave_engine, engine, self)

    submit = _there(NatsStore.submit)
    claim = _there(NatsStore.claim)
    extend = _there(NatsStore.extend)
    settle = _there(NatsStore.settle)
    reap = _there(NatsStore.reap)
    amend = _there(NatsStore.amend)
    prune = _there(NatsStore.prune)
    report = _there(NatsStore.report)

    get = _there(NatsStore.get)
    find = _there(NatsStore.find)
    ended = _there(NatsStore.ended)
    page = _there(NatsStore.page)
    events = _there(NatsStore.events)
    last_event = _there(NatsStore.last_event)
    queues = _there(NatsStore.queues)
    oldest_due = _there(NatsStore.oldest_due)
    now = _there(NatsStore.now)

    pause = _there(NatsStore.pause)
    limit = _there(NatsStore.limit)

    advance = _there(NatsStore.advance)
    parents = _there(NatsStore.parents)
    run = _there(NatsStore.run)
    run_lives = _there(NatsStore.run_lives)
    runs = _there(NatsStore.runs)
    record_step = _there(NatsStore.record_step)
    steps = _there(NatsStore.steps)

    declare_schedule = _there(NatsStore.declare_schedule)
    schedules = _there(NatsStore.schedules)
    fire = _there(NatsStore.fire)
    pause_schedule = _there(NatsStore.pause_schedule)
    delete_schedule = _there(NatsStore.delete_schedule)

    declare_sink = _there(NatsStore.declare_sink)
    delete_sink = _there(NatsStore.delete_sink)
    sinks = _there(NatsStore.sinks)
    targets = _there(NatsStore.targets)
    take_outbox = _there(NatsStore.take_outbox)
    record_deliveries = _there(NatsStore.record_deliveries)
    outbox = _there(NatsStore.outbox)
    requeue_outbox = _there(NatsStore.requeue_outbox)
    purge_outbox = _there(NatsStore.purge_outbox)

    datasets = _there(NatsStore.datasets)
    dataset_versions = _there(NatsStore.dataset_versions)
    dataset_version = _there(NatsStore.dataset_version)
    dataset_rows = _there(NatsStore.dataset_rows)
    pinned = _there(NatsStore.pinned)

    add_token = _there(NatsStore.add_token)
    token = _there(NatsStore.token)
    tokens = _there(NatsStore.tokens)
    revoke_token = _there(NatsStore.revoke_token)

    enroll = _there(NatsStore.enroll)
    leave = _there(NatsStore.leave)
    workers = _there(NatsStore.workers)
    evict = _there(NatsStore.evict)

    check = _there(NatsStore.check)
    migrate = _there(NatsStore.migrate)
    repair = _there(NatsStore.repair)
