"""One run of a worker: the parts of the loop, wired, started in order and stopped in order.

    store ──claims──► Claimer ──► Runner ──► executors
      ▲                             │ outcome
      └──── settles ── Finalizer ◄──┘
    side loop (own thread, own handle): LeaseKeeper, Watchdog, and the Crew that keeps the store going

Stopping: claim no more and give back what was not started; let what runs finish within the grace time; then stop the
rest and give it back without a failure counted; last, leave the store, which ends any lease that is left.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

import msgspec

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError, SchemaMismatch, StoreUnavailable
from holdfast.events.bus import Bus
from holdfast.events.facts import WakeupAway, WakeupBack, WakeupsRefused, WorkerStarted, WorkerStopped, WorkerStopping
from holdfast.executors.coroutine import CoroutineExecutor
from holdfast.executors.process import ProcessExecutor
from holdfast.executors.protocol import Executor
from holdfast.executors.thread import ThreadExecutor
from holdfast.health import StoreHealth
from holdfast.maintenance.advancer import advance_all
from holdfast.maintenance.crew import Crew
from holdfast.maintenance.relay import Relay
from holdfast.model.claim import Claim
from holdfast.model.outcome import Released, Settlement
from holdfast.model.query import Retention, WorkerInfo
from holdfast.registry import Registry
from holdfast.runtime.claimer import Claimer
from holdfast.runtime.finalizer import Finalizer
from holdfast.runtime.input_reader import InputReader
from holdfast.runtime.lease_keeper import LeaseKeeper
from holdfast.runtime.reporter import StoreReporter
from holdfast.runtime.runner import Runner
from holdfast.runtime.side_loop import SideLoop
from holdfast.runtime.watchdog import Watchdog
from holdfast.stores.protocol import Store
from holdfast.wakeups.open import transport
from holdfast.wakeups.protocol import Transport
from holdfast.wakeups.reports import Reports

ENROLL_SECONDS = 10.0
ADVANCING_SECONDS = 0.01
RELAYING_SECONDS = 10.0
LAST_CLAIM_SECONDS = 5.0
LAST_SETTLE_SECONDS = 10.0
"""How long a leaving worker tries to settle; what is left then is rescued by others."""


class WorkerSettings(msgspec.Struct, frozen=True, kw_only=True):
    worker_id: str
    queues: tuple[str, ...] | None
    concurrency: int
    lease_seconds: float
    poll_seconds: float
    grace_seconds: float
    retention: Retention


class Employer(Protocol):
    """The worker, as its shift sees it."""

    settings: WorkerSettings
    bus: Bus
    countdown: Callable[[int, float], None] | None
    give_up: Callable[[], None] | None
    outside: bool

    @property
    def registry(self) -> Registry: ...
    @property
    def stop_asked(self) -> bool: ...
    @property
    def abort_asked(self) -> bool: ...
    def info(self) -> WorkerInfo: ...
    def open_store(self) -> Store: ...


class Shift:
    """One run of a worker, on one event loop."""

    def __init__(self, worker: Employer, store: Store) -> None:
        self._worker = worker
        self._settings = worker.settings
        self._store = store
        self._bus = worker.bus
        self._loop = asyncio.get_running_loop()
        self._nudged = asyncio.Event()
        self._changed = asyncio.Event()
        self._hopeless = False
        self._released = 0
        self._health = health = StoreHealth(self._bus)
        self.keeper = LeaseKeeper(
            tell=self._tell,
            lost=lambda token, why: self.runner.lease_lost(token, why),
            cancel_requested=lambda token: self.runner.cancel_requested(token),
        )
        self._transport = self._wakeup_transport()
        self._maintained = store.capabilities.maintained
        registry = worker.registry
        self._relay = Relay(registry.sinks, registry.subscribers, self._bus, outside=worker.outside)
        self._crew = Crew(
            self._settings.worker_id,
            self._bus,
            retention=self._settings.retention,
            schedules=registry.schedules,
            relay=self._relay,
        )
        self.finalizer = Finalizer(store, health, self._bus, settled=self._settled)
        self._executors: dict[str, Executor] = {
            "loop": CoroutineExecutor(self._loop),
            "thread": ThreadExecutor(self._loop),
            "process": ProcessExecutor(self._loop),
        }
        self.runner = Runner(
            registry=worker.registry,
            executors=self._executors,
            reader=InputReader(store, health),
            reporter=StoreReporter(store, health),
            settle=self.finalizer.add,
            lost=self._let_go,
            slot_freed=self._slot_freed,
            all_stuck=self._all_stuck,
            bus=self._bus,
            slots=self._settings.concurrency,
        )
        self.claimer = Claimer(
            store=store,
            health=health,
            worker_id=self._settings.worker_id,
            queues=self._settings.queues,
            slots=self._settings.concurrency,
            lease_seconds=self._settings.lease_seconds,
            poll_seconds=self._settings.poll_seconds,
            running=self.runner.runs,
            hold=self.keeper.hold,
            start=self.runner.start,
            give_back=self._release,
            transport=self._transport,
        )
        self._side = self._side_loop()

    def _wakeup_transport(self) -> Transport | None:
        sink, bus = self._worker.registry.wakeup, self._bus
        if sink is None or not self._worker.outside:
            return None
        reports = Reports(
            away=lambda error: bus.publish(WakeupAway(sink.url, error)),
            back=lambda: bus.publish(WakeupBack(sink.url)),
            refused=lambda number: bus.publish(WakeupsRefused(sink.url, number)),
        )
        return transport(sink, self._settings.queues, reports)

    def _side_loop(self) -> SideLoop:
        watchdog = Watchdog(
            loop=self._loop,
            thread_id=threading.get_ident(),
            runner=self.runner,
            bus=self._bus,
            hopeless=self._all_stuck,
        )
        return SideLoop(
            self._worker.open_store,
            self._bus,
            self._health,
            enter=self._enter,
            parts=[
                self.keeper.run,
                watchdog.run,
                *self._crew.parts(self._store.capabilities),
                self._stay_enrolled,
            ],
            leave=self._leave,
        )

    # The life of a shift

    async def work(self, *, until_idle: bool) -> None:
        asked = asyncio.create_task(self._asked_to_stop(), name="holdfast-stop")
        await self._start_side(asked)
        self._bus.publish(self._started())
        if self._transport is not None:
            self._transport.start()
        claiming = asyncio.create_task(self.claimer.run(), name="holdfast-claimer")
        finalizing = asyncio.create_task(self.finalizer.run(), name="holdfast-finalizer")
        idle = asyncio.create_task(self._idle() if until_idle else self._never(), name="holdfast-idle")
        parts = {claiming, finalizing, idle, asked}
        canceled = True
        try:
            await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
            canceled = False
        finally:
            await self._stop(claiming, at_once=canceled or self._hopeless)
            await self._close(parts)
        if self._hopeless:
            raise HoldfastError(f"every slot of {self._settings.worker_id} is stuck in a handler that does not end")
        for part in (claiming, finalizing):
            if not part.cancelled():
                part.result()  # a part that failed: its error is the worker's

    async def _stop(self, claiming: asyncio.Task[None], *, at_once: bool) -> None:
        self.claimer.stop()
        await asyncio.wait([claiming], timeout=0 if self._health.away else LAST_CLAIM_SECONDS)
        await self._finish(at_once=at_once)

    async def _close(self, parts: set[asyncio.Task[None]]) -> None:
        for part in parts:
            part.cancel()
        await asyncio.gather(*parts, return_exceptions=True)
        await self._side.stop(LAST_SETTLE_SECONDS)
        for executor in self._executors.values():
            executor.close()
        if self._transport is not None:
            await asyncio.to_thread(self._transport.close)
        await self._store.close()
        self._bus.publish(WorkerStopped(self._settings.worker_id, self._released))

    async def _start_side(self, asked: asyncio.Task[None]) -> None:
        """Returns when this worker is enrolled; or, while the store is away, when it is asked to stop."""
        starting = asyncio.create_task(self._side.start(), name="holdfast-start")
        try:
            await asyncio.wait({starting, asked}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                await self._side.stop(LAST_SETTLE_SECONDS)
            await starting
        except BaseException:
            asked.cancel()
            await self._side.stop(LAST_SETTLE_SECONDS)
            await self._store.close()
            raise

    def _started(self) -> WorkerStarted:
        settings = self._settings
        tasks = len(self._worker.registry)
        return WorkerStarted(settings.worker_id, self._store.label, settings.queues, settings.concurrency, tasks)

    async def _never(self) -> None:
        await asyncio.Event().wait()

    async def _asked_to_stop(self) -> None:
        while not self._worker.stop_asked and not self._hopeless:
            await self._nudged.wait()
            self._nudged.clear()

    async def _idle(self) -> None:
        """Returns when nothing is claimable now and nothing runs."""
        while True:
            await self.claimer.empty_handed.wait()
            await self._quiet()
            await self.finalizer.drained()
            started = self.claimer.started
            await self._advance()
            if self.claimer.look_again():
                continue
            await self.claimer.empty_handed.wait()
            # Whatever was started meanwhile may leave work behind that its settle has yet to record.
            if self.claimer.started == started and self._is_quiet():
                await self._bounded(self._relayed(), RELAYING_SECONDS)
                return

    async def _relayed(self) -> None:
        """What happened here is told before this worker leaves, as far as its sinks can be reached."""
        self._relay.look_soon()
        while self._relay.busy:  # noqa: ASYNC110  on another thread
            await asyncio.sleep(ADVANCING_SECONDS)

    async def _advance(self) -> None:
        """Until nothing is left that a settle has left behind, also in the hands of the side loop."""
        advance = partial(advance_all, self._store, actor=self._settings.worker_id)
        while await self._health.persist(advance) or self._crew.advancer.busy:  # noqa: ASYNC110  busy on another thread
            await asyncio.sleep(ADVANCING_SECONDS)

    async def _quiet(self) -> None:
        while not self._is_quiet():
            self._changed.clear()
            await self._changed.wait()

    def _is_quiet(self) -> bool:
        return len(self.runner.runs) == self.runner.stuck and self.claimer.buffered == 0

    # Stopping

    async def _finish(self, *, at_once: bool) -> None:
        unstarted = self.claimer.give_up_buffer()
        self._released += len(unstarted)
        self._release(unstarted)
        running = len(self.runner.runs) - self.runner.stuck
        if running and not at_once:
            self._bus.publish(WorkerStopping(self._settings.worker_id, running, self._settings.grace_seconds))
            await self._grace()
        for run in list(self.runner.runs.values()):
            if not run.settled:
                self._released += 1
            self.runner.stop(run, "leaving")
        if not self._is_quiet():
            await self._bounded(self._quiet(), 1.0)
        for run in list(self.runner.runs.values()):
            self.runner.abandon(run)
        await self._bounded(self.finalizer.drained(), LAST_SETTLE_SECONDS)

    async def _grace(self) -> None:
        """Let what runs finish, until the grace time is over or somebody asks again."""
        ends_at = SYSTEM_CLOCK.monotonic() + self._settings.grace_seconds
        while not self._is_quiet() and not self._worker.abort_asked and not self._hopeless:
            left = ends_at - SYSTEM_CLOCK.monotonic()
            if left <= 0:
                return
            if self._worker.countdown is not None:
                self._worker.countdown(len(self.runner.runs) - self.runner.stuck, left)
            self._changed.clear()
            await self._bounded(self._changed.wait(), min(1.0, left))

    async def _bounded(self, waiting: Coroutine[Any, Any, object], seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await waiting
        except TimeoutError:
            return

    def _release(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self.finalizer.add(claim, Settlement(claim.lease, Released()))

    # What the parts tell each other

    def _let_go(self, claim: Claim) -> None:
        self.keeper.drop(claim)
        if self._transport is not None:
            self._transport.settled(claim.task_id)

    def _settled(self, claim: Claim) -> None:
        self._let_go(claim)
        if claim.run_id is not None and not self._maintained:
            self._crew.advancer.look_soon()

    def _slot_freed(self) -> None:
        self.claimer.slot_freed()
        self._changed.set()

    def _all_stuck(self) -> None:
        """On whichever thread finds out."""
        self._hopeless = True
        self.nudge()
        if self._worker.give_up is not None and self._loop_blocked():
            self._worker.give_up()

    def _loop_blocked(self) -> bool:
        return threading.current_thread().name == "holdfast-keeper"

    def nudge(self) -> None:
        self._tell(self._nudged.set)
        self._tell(self._changed.set)

    def _tell(self, call: Callable[..., None], *args: object) -> None:
        try:
            self._loop.call_soon_threadsafe(call, *args)
        except RuntimeError:
            return  # the loop has closed: the shift is over

    # On the side loop

    async def _enter(self, store: Store, health: StoreHealth) -> None:
        await self._enroll(store, health)
        await self._crew.begin(store, health)

    async def _enroll(self, store: Store, health: StoreHealth) -> None:
        await health.persist(lambda: store.enroll(self._worker.info()))

    async def _stay_enrolled(self, store: Store, health: StoreHealth) -> None:
        while True:
            await asyncio.sleep(ENROLL_SECONDS)
            await self._enroll(store, health)

    async def _leave(self, store: Store, health: StoreHealth) -> None:  # noqa: ARG002
        """Where its name is proof enough, also what it has claimed and never heard of is ended."""
        try:
            await store.leave(self._settings.worker_id, self.keeper.leases if self._maintained else None)
        except (StoreUnavailable, SchemaMismatch):
            return  # the leases run out by themselves
