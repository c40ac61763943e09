"""claim → inputs → executor → outcome → finalizer. Knows what runs, how it was told to stop, and when its slot is free
again.

An attempt is settled once, by whoever comes first: its handler's end, its timeout, the end of the grace time, or the
lease keeper when the event loop is blocked (from its own thread; hence the lock). A handler that goes on after its task
was settled is *stuck*: it keeps its slot until it ends, and nothing it does reaches the store.

Runs are known by their lease's token: a task can come back to this worker while an earlier attempt is still stuck here.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from holdfast import ids
from holdfast.clock import SYSTEM_CLOCK
from holdfast.context import Context, Ending, Reporter
from holdfast.errors import InvalidTask
from holdfast.events.bus import Bus
from holdfast.events.facts import HandlerStuck, LeaseWasLost, NameUnknown
from holdfast.executors.protocol import Executor, Job, Stopper
from holdfast.model.claim import Claim
from holdfast.model.outcome import (
    Canceled,
    Completed,
    ErrorInfo,
    Failed,
    Outcome,
    Recorded,
    Released,
    Settlement,
    Snoozed,
)
from holdfast.registry import Definition, Registry
from holdfast.runtime.input_reader import InputReader
from holdfast.workflows.inputs import NO_INPUTS, Inputs, wanted

UNKNOWN_NAME_SNOOZE_SECONDS = 30.0
UNKNOWN_NAME_TOLD_SECONDS = 60.0
UNKNOWN_NAMES_KEPT = 1000
STOP_GRACE_SECONDS = 5.0
"""How long a canceled coroutine or a killed process may take to end before it counts as stuck, and a worker whose slots
are all stuck hopes that one ends.
"""

Reason = Literal["timeout", "lost", "canceled", "leaving"]


class _Call(msgspec.Struct):
    """What a payload has to be to call a function with it."""

    args: list[Any]
    kwargs: dict[str, Any]
    inputs: list[Any] = []


_calls = msgspec.json.Decoder(_Call)


class Run:
    """One attempt in a slot."""

    __slots__ = ("claim", "executor", "job", "reason", "settled", "started_at", "stuck", "timer")

    def __init__(self, claim: Claim, executor: Stopper, job: Job, started_at: float) -> None:
        self.claim = claim
        self.executor = executor
        """Who has it now: the reader of its inputs comes first."""
        self.job = job
        self.started_at = started_at
        self.timer: asyncio.TimerHandle | None = None
        self.reason: Reason | None = None
        self.settled = False
        self.stuck = False


class Runner:
    def __init__(
        self,
        *,
        registry: Registry,
        executors: Mapping[str, Executor],
        reader: InputReader,
        reporter: Reporter,
        settle: Callable[[Claim, Settlement], None],
        lost: Callable[[Claim], None],
        slot_freed: Callable[[], None],
        all_stuck: Callable[[], None],
        bus: Bus,
        slots: int,
    ) -> None:
        self._registry = registry
        self._executors = executors
        self._reader = reader
        self._reporter = reporter
        self._settle = settle
        self._lost = lost
        self._slot_freed = slot_freed
        self._all_stuck = all_stuck
        self._bus = bus
        self._slots = slots
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self.runs: dict[str, Run] = {}
        self.stuck = 0
        self._unknown: dict[str, float] = {}

    def start(self, claim: Claim) -> None:
        definition = self._registry.get(claim.name)
        if definition is None:
            self._tell_unknown(claim)
            self._refuse(claim, Snoozed(UNKNOWN_NAME_SNOOZE_SECONDS * (0.9 + 0.2 * ids.JITTER.random())))
            return
        try:
            job = self._job(claim, definition)
            parents = 0 if job.inputs is NO_INPUTS else wanted(job.inputs.layout)
        except (msgspec.DecodeError, InvalidTask) as error:
            text = f"the payload is not a call of {claim.name!r}: {error}"
            self._refuse(claim, Failed(ErrorInfo(text, "bad_payload"), unrecoverable=True))
            return
        run = Run(claim, self._reader, job, SYSTEM_CLOCK.monotonic())
        self.runs[claim.lease.token] = run
        if claim.timeout is not None:
            run.timer = self._loop.call_later(claim.timeout, self.stop, run, "timeout")
        if parents:
            self._reader.start(job, lambda: self._go_on(run), lambda outcome: self._ended(run, outcome))
        else:
            self._execute(run)

    def _go_on(self, run: Run) -> None:
        """Its inputs are there; but it may have been told to stop a moment before."""
        if run.reason is None and not run.settled:
            self._execute(run)
        else:
            self._ended(run, Released())

    def _execute(self, run: Run) -> None:
        executor = self._executors[run.job.definition.run_in]
        run.executor = executor
        executor.start(run.job, lambda outcome: self._ended(run, outcome))

    def _refuse(self, claim: Claim, outcome: Outcome) -> None:
        """Settle what never got a slot. It is reported free later, not now: who started this is still counting."""
        self._settle(claim, Settlement(claim.lease, outcome))
        self._loop.call_soon(self._slot_freed)

    def _tell_unknown(self, claim: Claim) -> None:
        """Once a minute and name: a backlog of a name that nobody knows must not flood the log."""
        now = SYSTEM_CLOCK.monotonic()
        if now - self._unknown.get(claim.name, -UNKNOWN_NAME_TOLD_SECONDS) >= UNKNOWN_NAME_TOLD_SECONDS:
            if len(self._unknown) >= UNKNOWN_NAMES_KEPT:
                self._unknown.clear()
            self._unknown[claim.name] = now
            self._bus.publish(NameUnknown(claim, self._registry.hint(claim.name)))

    def _job(self, claim: Claim, definition: Definition) -> Job:
        call = _calls.decode(claim.payload)
        job = Job(claim, definition, Context(claim, self._reporter), call.args, call.kwargs)
        if call.inputs:
            job.inputs = Inputs(call.inputs, [])
        return job

    def _ended(self, run: Run, outcome: Outcome) -> None:
        """The handler has really ended, on the event loop."""
        if run.timer is not None:
            run.timer.cancel()
        if self._take(run):
            self._conclude(run, outcome)
        self._free(run)

    def _conclude(self, run: Run, outcome: Outcome) -> None:
        context = run.job.context
        if run.reason == "lost":
            self._lost(run.claim)
            return
        outcome = _as_ended(context.ending, _as_stopped(run, outcome))
        self._settle(run.claim, context.settlement(outcome))

    def _take(self, run: Run) -> bool:
        """True for the one caller that may settle this attempt."""
        with self._lock:
            taken, run.settled = run.settled, True
            return not taken

    def _free(self, run: Run) -> None:
        del self.runs[run.claim.lease.token]
        if run.stuck:
            self.stuck -= 1
        self._slot_freed()

    # Stopping

    def stop(self, run: Run, reason: Reason) -> None:
        """End this attempt for a reason that is not its handler's own."""
        if run.settled:
            run.executor.stop(run.job)  # settled by the keeper while the loop was blocked; it may still be running
            return
        if run.reason == "timeout":
            return
        run.reason = reason
        if reason == "canceled":
            run.executor.ask(run.job)
            return
        run.job.context.request_cancel()
        if run.executor.stop(run.job):
            self._loop.call_later(STOP_GRACE_SECONDS, self.abandon, run)
        else:
            self.abandon(run)

    def abandon(self, run: Run) -> None:
        """Settle an attempt whose handler does not end. On the event loop."""
        if self._take(run):
            self._mark_stuck(run)
            if run.job.context.ending is Ending.OPEN:
                run.reason = "lost"  # its transaction locks the record: whatever becomes of it, we cannot say
            self._conclude(run, _as_stopped(run, Released()))
            # Not at once: a thread has only just been told, and one that minds `cancel_requested` is about to end.
            self._loop.call_later(STOP_GRACE_SECONDS, self.despair_if_all_stuck, run)

    def take_stuck(self, run: Run) -> Settlement | None:
        """The same for the watchdog, from its own thread, while the loop is blocked: it settles what it gets, and only
        then asks whether all is lost, for that may end the process.
        """
        if run.job.context.ending is Ending.OPEN or not self._take(run):
            return None
        run.reason = "timeout"
        self._mark_stuck(run)
        return Settlement(run.claim.lease, _timed_out(run.claim))

    def _mark_stuck(self, run: Run) -> None:
        run.stuck = True
        self.stuck += 1
        self._bus.publish(HandlerStuck(run.claim, self.stuck, self._slots))

    def despair_if_all_stuck(self, run: Run) -> None:
        if self.stuck >= self._slots and run.reason != "leaving":
            self._all_stuck()

    def lease_lost(self, token: str, why: str) -> None:
        """The store's word (C6.4): stop at once, settle nothing."""
        run = self.runs.get(token)
        if run is not None and not run.settled:
            self._bus.publish(LeaseWasLost(run.claim, why))
            self.stop(run, "lost")

    def cancel_requested(self, token: str) -> None:
        run = self.runs.get(token)
        if run is not None and run.reason is None:
            self.stop(run, "canceled")


def _as_stopped(run: Run, outcome: Outcome) -> Outcome:
    """What the end of a handler means, given what it was told."""
    if run.reason == "timeout":
        return _timed_out(run.claim)
    if isinstance(outcome, Completed):
        return outcome
    if run.reason == "canceled":
        return Canceled()
    return Released() if run.reason == "leaving" else outcome


def _as_ended(ending: Ending, outcome: Outcome) -> Outcome:
    """What the end of a handler means, given what it has recorded of it itself."""
    if ending is Ending.NONE or (ending is not Ending.COMMITTED and not isinstance(outcome, Completed)):
        return outcome
    return Recorded()


def _timed_out(claim: Claim) -> Failed:
    return Failed(ErrorInfo(f"the attempt took longer than its timeout of {claim.timeout:g} s", "timeout"))
