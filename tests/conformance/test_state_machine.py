"""Every store against the memory store as the model: the same acts, equal answers, equal snapshots after every step.

Tokens are each store's own, so leases are named by task and attempt and looked up on each side. A rule that takes
several of a bundle names the first by itself: Hypothesis skips a rule whose own bundle is empty, but throws the whole
example away when a list inside it finds none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, multiple, rule
from hypothesis.strategies import SearchStrategy

from holdfast.errors import HoldfastError
from holdfast.model.backoff import Backoff, Delays, Exponential, Fixed, Linear
from holdfast.model.claim import Claim, Claimed, ClaimRequest, Lease
from holdfast.model.limits import WHOLE_STORE
from holdfast.model.outcome import (
    Canceled,
    Completed,
    Emitted,
    ErrorInfo,
    Failed,
    Outcome,
    Released,
    Settlement,
    Snoozed,
)
from holdfast.model.query import Retention, TaskFilter
from holdfast.model.task import NewTask
from holdfast.model.transition import Change
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.subject import EVERYTHING, worker_info
from holdfast.testing.virtual_clock import VirtualClock
from tests.conformance.subjects import FRESH, OpenFresh

Act = Callable[["Side"], Awaitable[Any]]
Held = tuple[str, int]
"""A lease by task and attempt."""


def number_as_id(number: int) -> str:
    return f"01900000-0000-7000-8000-{number:012x}"


UNKNOWN = number_as_id(0)

BACKOFFS: list[Backoff] = [Fixed(0.0), Fixed(5.0), Exponential(), Linear(3.0, cap=7.0), Delays(1, 10)]
OUTCOMES: list[Outcome] = [
    Completed(),
    Completed('{"ok":true}'),
    Failed(ErrorInfo("it broke", "Broken", "stack")),
    Failed(ErrorInfo("slow down"), retry_after_seconds=2.5),
    Failed(ErrorInfo("no such account"), unrecoverable=True),
    Snoozed(0.0),
    Snoozed(7.0),
    Released(),
    Canceled(),
]
WORKERS = st.sampled_from(["worker-1", "worker-2"])
QUEUES = ["a", "b"]

FIELDS: SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {"name": st.sampled_from(["charge", "refund"]), "payload": st.sampled_from(["null", "[1]"])},
    optional={
        "queue": st.sampled_from(QUEUES),
        "priority": st.sampled_from([-1, 0, 1]),
        "delay_seconds": st.sampled_from([0.0, 5.0, 70.0]),
        "max_attempts": st.sampled_from([0, 1, 2]),
        "backoff": st.sampled_from(BACKOFFS),
        "timeout": st.sampled_from([5.0, 40.0]),
        "lease": st.sampled_from([10.0, 90.0]),
        "idempotency_key": st.sampled_from(["k1", "k2", "k3"]),
        "run_id": st.sampled_from(["r1", "r2"]),
        "concurrency_key": st.sampled_from(["x", "y"]),
        "meta": st.just('{"m":1}'),
    },
)


MEMBER: SearchStrategy[tuple[dict[str, Any], dict[str, Any], list[int]]] = st.tuples(
    FIELDS,
    st.fixed_dictionaries(
        {}, optional={"on_parent_failure": st.just("run"), "fail_fast": st.sampled_from(["all", "some"])}
    ),
    st.lists(st.integers(1, 4), max_size=3),
)
"""A member of a workflow: its fields, and how far before it its parents stand."""
LIMITS: SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "max_running": st.sampled_from([None, 1, 2]),
        "rate": st.sampled_from([None, "1/s", "2/10s"]),
        "burst": st.sampled_from([None, 2]),
        "max_running_per_key": st.sampled_from([None, 1, 2]),
    },
)


def linked(number: int, members: list[tuple[dict[str, Any], dict[str, Any], list[int]]]) -> list[NewTask]:
    """These members as tasks of a run of their own; the first has number `number`."""
    tasks: list[NewTask] = []
    for n, (fields, more, back) in enumerate(members):
        parents = tuple(tasks[n - one].id for one in back if one <= n)
        own = fields | more | {"run_id": f"w{number}", "id": number_as_id(number + n), "parents": parents}
        tasks.append(NewTask(**own))
    return tasks


class Side:
    """One of the two stores, with the tokens that it gave out."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.tokens: dict[Held, str] = {}

    def lease(self, held: Held, flaw: str | None = None) -> Lease:
        task_id, attempt = held
        token = self.tokens[held]
        match flaw:
            case "token":
                return Lease(task_id, attempt, "guessed")
            case "attempt":
                return Lease(task_id, attempt + 1, token)
            case "task":
                return Lease(UNKNOWN, attempt, token)
        return Lease(task_id, attempt, token)

    def learn(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            self.tokens[claim.task_id, claim.lease.attempt] = claim.lease.token


FLAWS = st.sampled_from([None, None, None, "token", "attempt", "task"])


class TwinSides(RuleBasedStateMachine):
    """Two stores on one clock, and one act on both."""

    under_test: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.Runner()
        self.clock = VirtualClock()
        self.numbers = iter(range(1, 10_000))
        self.model_close, self.model = self._open(FRESH["memory"])
        self.store_close, self.store = self._open(FRESH[self.under_test])

    def _open(self, fresh: OpenFresh) -> tuple[Callable[[], None], Side]:
        open_handle, dispose = fresh(self.clock)

        async def opened() -> Side:
            return Side(open_handle())

        return dispose, self.loop.run(opened())

    def teardown(self) -> None:
        for side, dispose in ((self.model, self.model_close), (self.store, self.store_close)):
            self.loop.run(side.store.close())
            dispose()
        self.loop.close()

    def both(self, act: Act) -> Any:
        """The answer, which has to be the same on both sides."""
        expected, got = (self.loop.run(_answer(act, side)) for side in (self.model, self.store))
        assert got == expected
        return expected

    def claimed(self, request: ClaimRequest) -> list[Held]:
        answer = self.both(lambda side: _claim(side, request))
        return [(claim.task_id, claim.lease.attempt) for claim in answer.claims] if isinstance(answer, Claimed) else []

    def request(self, **fields: Any) -> ClaimRequest:
        return ClaimRequest(claim_id=number_as_id(next(self.numbers)), **fields)


class Twins(TwinSides):
    """Drives both sides through the same acts. A subclass names the store under test."""

    tasks: Bundle[NewTask] = Bundle("tasks")
    leases: Bundle[Held] = Bundle("leases")
    requests: Bundle[ClaimRequest] = Bundle("requests")

    # Submit

    @rule(target=tasks, batch=st.lists(FIELDS, min_size=1, max_size=4))
    def submit(self, batch: list[dict[str, Any]]) -> Any:
        news = [NewTask(id=number_as_id(next(self.numbers)), **fields) for fields in batch]
        self.both(lambda side: side.store.submit(news))
        return multiple(*news)

    @rule(target=tasks, members=st.lists(MEMBER, min_size=2, max_size=6), repeat=st.booleans())
    def submit_a_workflow(self, members: list[Any], repeat: bool) -> Any:
        number = next(self.numbers)
        for _ in members:
            next(self.numbers)
        news = linked(number, members)
        for _ in range(1 + repeat):
            self.both(lambda side: side.store.submit(news))
        return multiple(*news)

    @rule(new=tasks, fields=FIELDS, name=st.sampled_from([None, "charge"]))
    def submit_again(self, new: NewTask, fields: dict[str, Any], name: str | None) -> None:
        again = new if name is None else msgspec.structs.replace(new, name=name)
        fresh = NewTask(id=number_as_id(next(self.numbers)), **fields)
        self.both(lambda side: side.store.submit([again]))
        self.both(lambda side: side.store.submit([fresh, again, fresh]))

    # Claim

    @rule(
        target=leases,
        limit=st.integers(1, 5),
        worker_id=WORKERS,
        queues=st.sampled_from([None, ("a",), ("b", "a"), ("a", "nowhere")]),
        lease_seconds=st.sampled_from([20.0, 60.0]),
    )
    def claim(self, **fields: Any) -> Any:
        return multiple(*self.claimed(self.request(**fields)))

    @rule(target=requests, limit=st.integers(1, 3), worker_id=WORKERS)
    def claim_without_hearing_the_answer(self, limit: int, worker_id: str) -> ClaimRequest:
        request = self.request(limit=limit, worker_id=worker_id)
        self.claimed(request)
        return request

    @rule(target=leases, request=requests)
    def claim_again(self, request: ClaimRequest) -> Any:
        return multiple(*self.claimed(request))

    @rule(target=leases, new=tasks, worker_id=WORKERS)
    def claim_by_id(self, new: NewTask, worker_id: str) -> Any:
        return multiple(*self.claimed(self.request(task_id=new.id, worker_id=worker_id)))

    # Lease

    @rule(first=leases, more=st.lists(leases, max_size=3), flaw=FLAWS)
    def extend(self, first: Held, more: list[Held], flaw: str | None) -> None:
        self.both(lambda side: side.store.extend([side.lease(one, flaw) for one in [first, *more]]))

    @rule(held=leases, flaw=FLAWS)
    def report(self, held: Held, flaw: str | None) -> None:
        self.both(lambda side: side.store.report(side.lease(held, flaw), "task.progress", {"done": 1}))

    # Settle

    @rule(
        first=leases,
        more=st.lists(leases, max_size=3),
        outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=4, max_size=4),
        flaw=FLAWS,
        emitted=st.booleans(),
    )
    def settle(self, first: Held, more: list[Held], outcomes: list[Outcome], flaw: str | None, emitted: bool) -> None:
        held = list(zip([first, *more], outcomes, strict=False))
        events = (Emitted("custom", {"n": 1}),) if emitted else ()
        self.both(
            lambda side: side.store.settle(
                [Settlement(side.lease(one, flaw), outcome, events) for one, outcome in held],
            )
        )

    @rule(target=tasks, held=leases, fields=FIELDS, repeat=st.booleans())
    def complete_with_a_follow_up(self, held: Held, fields: dict[str, Any], repeat: bool) -> NewTask:
        new = NewTask(id=number_as_id(next(self.numbers)), **fields)
        for _ in range(1 + repeat):
            self.both(lambda side: side.store.settle([Settlement(side.lease(held), Completed(), (), (new,))]))
        return new

    @rule(worker_id=WORKERS)
    def reap(self, worker_id: str) -> None:
        self.both(lambda side: reaped(side, worker_id))

    # Acts of an operator

    @rule(change=st.sampled_from(Change), first=tasks, more=st.lists(tasks, max_size=2), unknown=st.booleans())
    def amend(self, change: Change, first: NewTask, more: list[NewTask], unknown: bool) -> None:
        task_ids = [new.id for new in [first, *more]] + [UNKNOWN] * unknown
        self.both(lambda side: side.store.amend(change, task_ids, actor="operator"))

    @rule(age=st.sampled_from([timedelta(0), timedelta(seconds=60), None]), dead=st.booleans())
    def prune(self, age: timedelta | None, dead: bool) -> None:
        retention = Retention(age, age, age if dead else None)
        self.both(lambda side: side.store.prune(retention, limit=EVERYTHING))

    @rule(queue=st.sampled_from(QUEUES), paused=st.booleans())
    def pause(self, queue: str, paused: bool) -> None:
        self.both(lambda side: side.store.pause(queue, paused=paused))

    @rule(queue=st.sampled_from([*QUEUES, WHOLE_STORE]), changes=LIMITS)
    def limit(self, queue: str, changes: dict[str, Any]) -> None:
        self.both(lambda side: side.store.limit(queue, changes))

    # Workflows and steps

    @rule(limit=st.sampled_from([1, 3, 1000]))
    def advance_workflows(self, limit: int) -> None:
        self.both(lambda side: side.store.advance(limit=limit, actor="advancer"))

    @rule(held=leases, name=st.sampled_from(["s1", "s2"]), result=st.sampled_from(["1", '"two"']), flaw=FLAWS)
    def record_a_step(self, held: Held, name: str, result: str, flaw: str | None) -> None:
        self.both(lambda side: side.store.record_step(side.lease(held, flaw), name, result))
        self.both(lambda side: side.store.steps(held[0]))

    @rule(new=tasks)
    def look_at_its_parents_and_run(self, new: NewTask) -> None:
        self.both(lambda side: side.store.parents(new.id, after=0, limit=100))
        self.both(lambda side: side.store.run(new.run_id or "nobody"))
        self.both(lambda side: side.store.run_lives(new.run_id or "nobody"))
        self.both(lambda side: side.store.page(TaskFilter(run_id=new.run_id or "nobody", last=True)))

    # Workers and time

    @rule(worker_id=WORKERS, remote=st.booleans())
    def enroll(self, worker_id: str, remote: bool) -> None:
        self.both(lambda side: side.store.enroll(msgspec.structs.replace(worker_info(worker_id), remote=remote)))
        self.both(lambda side: side.store.evict(actor="operator"))

    @rule(worker_id=WORKERS)
    def leave(self, worker_id: str) -> None:
        self.both(lambda side: side.store.leave(worker_id))

    @rule(worker_id=WORKERS, held=leases, flaw=FLAWS)
    def leave_from_afar(self, worker_id: str, held: Held, flaw: str | None) -> None:
        self.both(lambda side: side.store.leave(worker_id, [side.lease(held, flaw)]))

    @rule(seconds=st.sampled_from([0.000001, 1.0, 5.0, 10.0, 60.0, 90.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # What both show

    @invariant()
    def shows_the_same_records(self) -> None:
        self.both(_records)

    @invariant()
    def shows_the_same_events(self) -> None:
        self.both(_events_per_task)

    @invariant()
    def shows_the_same_queues_and_workers(self) -> None:
        self.both(_queues)
        self.both(_workers)


async def _answer(act: Act, side: Side) -> Any:
    """Refusals are compared by class and words: they are all worded in one place, policy/refusals.py."""
    try:
        answer = await act(side)
    except HoldfastError as refusal:
        return type(refusal), str(refusal)
    if not isinstance(answer, list):
        return answer
    return [(type(one), str(one)) if isinstance(one, HoldfastError) else one for one in answer]


async def _claim(side: Side, request: ClaimRequest) -> Claimed:
    answer = await side.store.claim(request)
    side.learn(answer.claims)
    hidden = [
        msgspec.structs.replace(claim, lease=Lease(claim.task_id, claim.lease.attempt, "hidden"))
        for claim in answer.claims
    ]
    return Claimed(hidden, answer.next_due_at)


async def reaped(side: Side, actor: str) -> list[Any]:
    """Which of several losses is recorded first is each store's own affair."""
    return sorted(await side.store.reap(limit=EVERYTHING, actor=actor), key=lambda settled: settled.task_id)


async def _records(side: Side) -> list[Any]:
    """An id that is submitted again after its task was deleted is old by its time and new by its submission."""
    return sorted(await side.store.page(TaskFilter(limit=EVERYTHING)), key=lambda task: task.id)


async def _events_per_task(side: Side) -> dict[str, list[Any]]:
    """Ids are each store's own, and so is the order between tasks."""
    told: dict[str, list[Any]] = {}
    for event in await side.store.events(None, after=0, limit=EVERYTHING):
        told.setdefault(event.task_id, []).append(msgspec.structs.replace(event, id=0))
    return told


async def _queues(side: Side) -> list[Any]:
    infos = await side.store.queues()
    return [
        (info.name, info.paused, info.limits, {status: n for status, n in info.counts.items() if n}) for info in infos
    ]


async def _workers(side: Side) -> list[Any]:
    return sorted(await side.store.workers(), key=lambda worker: worker.id)


BOUNDED = settings(
    max_examples=100,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


class MemoryTwins(Twins):
    under_test = "memory"


TestMemoryAgainstTheModel = MemoryTwins.TestCase
TestMemoryAgainstTheModel.settings = BOUNDED


class SQLiteTwins(Twins):
    under_test = "sqlite"


TestSQLiteAgainstTheModel = SQLiteTwins.TestCase
TestSQLiteAgainstTheModel.settings = BOUNDED


class PostgresTwins(Twins):
    under_test = "postgres"


TestPostgresAgainstTheModel = PostgresTwins.TestCase
TestPostgresAgainstTheModel.settings = settings(BOUNDED, max_examples=25)


class NatsTwins(Twins):
    under_test = "nats"


TestNatsAgainstTheModel = NatsTwins.TestCase
TestNatsAgainstTheModel.settings = settings(BOUNDED, max_examples=5)
LONG = settings(BOUNDED, max_examples=1000, stateful_step_count=80)


class LongSQLiteTwins(Twins):
    under_test = "sqlite"


TestSQLiteAgainstTheModelForLong = pytest.mark.soak(LongSQLiteTwins.TestCase)
TestSQLiteAgainstTheModelForLong.settings = LONG


class LongNatsTwins(Twins):
    under_test = "nats"


TestNatsAgainstTheModelForLong = pytest.mark.soak(LongNatsTwins.TestCase)
TestNatsAgainstTheModelForLong.settings = settings(BOUNDED, max_examples=40)


class ClusterTwins(Twins):
    under_test = "nats-cluster"


TestClusterAgainstTheModel = pytest.mark.soak(ClusterTwins.TestCase)
TestClusterAgainstTheModel.settings = settings(BOUNDED, max_examples=40)
