"""Every store against the memory store in what it tells sinks and what tasks write, pin and read.

Ids of rows are each store's own, so a row is named by its line (sink and task), of which one is taken at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, initialize, invariant, multiple, rule

from holdfast.model.outbox import Delivery, Effect, NewSink, OutboxRow, OutboxState
from holdfast.model.outcome import Completed, Emitted, Outcome, Settlement
from holdfast.model.output import Mode, Output, OutputRow, Pin
from holdfast.model.query import Retention
from holdfast.model.task import NewTask
from holdfast.model.transition import Change
from holdfast.testing.conformance.subject import EVERYTHING
from tests.conformance.test_state_machine import (
    FIELDS,
    OUTCOMES,
    QUEUES,
    Held,
    Side,
    TwinSides,
    number_as_id,
    reaped,
)

Line = tuple[str, str]

SINKS = [
    NewSink(name="all", url="https://all", effect=Effect.ROUTE),
    NewSink(name="some", url="https://some", effect=Effect.ROUTE, kinds=("task.failed", "custom"), queues=("a",)),
    NewSink(name="wake", url="sqs://wake", effect=Effect.WAKE),
    NewSink(name="wake-a", url="sqs://wake", effect=Effect.WAKE, queues=("a",)),
]
NAMES = [sink.name for sink in SINKS]
FATES: list[dict[str, Any]] = [
    {},
    {"error": "answered 500"},
    {"error": "unreachable", "blame": False},
    {"error": "refused", "final": True},
    {"error": "answered 429", "delay_seconds": 7.0},
]
HOLDS = st.sampled_from(["r1", "r2"])
DATASETS = st.sampled_from(["d1", "d2"])
ROWS = st.dictionaries(st.sampled_from(["a", "b", "c", "é"]), st.sampled_from(["1", '"x"']), max_size=3)


class EffectTwins(TwinSides):
    """Few rules, each of which goes far: the ways of a task themselves are test_state_machine.py's."""

    tasks: Bundle[NewTask] = Bundle("tasks")

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[Side, dict[Line, OutboxRow]] = {self.model: {}, self.store: {}}

    @initialize()
    def begin(self) -> None:
        for sink in SINKS:
            self.both(lambda side, sink=sink: side.store.declare_sink(sink))  # type: ignore[misc]

    @rule(sink=st.sampled_from(SINKS), gone=st.integers(0, 7).map(lambda n: n == 7))
    def change_a_sink(self, sink: NewSink, gone: bool) -> None:
        self.both(lambda side: side.store.delete_sink(sink.name) if gone else side.store.declare_sink(sink))

    def some_claimed(self, number: int) -> list[Held]:
        """Leases on so many tasks; some are new, so that there is always work."""
        news = [NewTask(id=number_as_id(next(self.numbers)), name="n", payload="1", queue="a") for _ in range(number)]
        self.both(lambda side: side.store.submit(news))
        return self.claimed(self.request(limit=number, worker_id="worker-1"))

    # The life of tasks

    @rule(target=tasks, batch=st.lists(FIELDS, min_size=1, max_size=3))
    def submit(self, batch: list[dict[str, Any]]) -> Any:
        news = [NewTask(id=number_as_id(next(self.numbers)), **fields) for fields in batch]
        self.both(lambda side: side.store.submit(news))
        return multiple(*news)

    @rule(target=tasks, dataset=DATASETS, version=st.integers(1, 3), queue=st.sampled_from(QUEUES))
    def submit_with_an_input(self, dataset: str, version: int, queue: str) -> NewTask:
        new = NewTask(
            id=number_as_id(next(self.numbers)), name="n", payload="1", queue=queue, inputs=(Pin(dataset, version),)
        )
        self.both(lambda side: side.store.submit([new]))
        return new

    @rule(target=tasks, dataset=DATASETS, parents=st.integers(1, 2))
    def submit_what_reads_its_parents_output(self, dataset: str, parents: int) -> Any:
        numbers = [number_as_id(next(self.numbers)) for _ in range(parents)]
        run_id = numbers[0]
        first = [NewTask(id=number, name="n", payload="1", run_id=run_id) for number in numbers]
        child = NewTask(
            id=number_as_id(next(self.numbers)),
            name="n",
            payload="1",
            run_id=run_id,
            parents=tuple(one.id for one in first),
            inputs=(Pin(dataset, None),),
        )
        self.both(lambda side: side.store.submit([*first, child]))
        return multiple(*first, child)

    @rule(outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=4), emitted=st.booleans())
    def work(self, outcomes: list[Outcome], emitted: bool) -> None:
        held = self.some_claimed(len(outcomes))
        events = (Emitted("custom", {"n": 1}),) if emitted else ()
        self.both(
            lambda side: side.store.settle(
                [Settlement(side.lease(one), outcome, events) for one, outcome in zip(held, outcomes, strict=False)]
            )
        )

    @rule(
        written=st.lists(st.tuples(DATASETS, st.sampled_from(Mode), ROWS), min_size=1, max_size=3), again=st.booleans()
    )
    def write(self, written: list[tuple[str, Mode, dict[str, str]]], again: bool) -> None:
        held = self.some_claimed(len(written))
        outputs = [
            Output(dataset, mode, tuple(OutputRow(key, value) for key, value in rows.items()))
            for dataset, mode, rows in written
        ]
        for _ in range(1 + again):
            self.both(
                lambda side: side.store.settle(
                    [
                        Settlement(side.lease(one), Completed(), (), (), (output,))
                        for one, output in zip(held, outputs, strict=False)
                    ]
                )
            )

    @rule(limit=st.integers(1, 3))
    def lose(self, limit: int) -> None:
        """Leases that run out."""
        self.claimed(self.request(limit=limit, worker_id="worker-2", lease_seconds=10.0))
        self.clock.advance(10.0)
        self.both(lambda side: reaped(side, "reaper"))

    @rule(change=st.sampled_from(Change), first=tasks, more=st.lists(tasks, max_size=2))
    def amend(self, change: Change, first: NewTask, more: list[NewTask]) -> None:
        self.both(lambda side: side.store.amend(change, [new.id for new in [first, *more]], actor="operator"))

    @rule(seconds=st.sampled_from([0.000001, 5.0, 20.0, 60.0, 1000.0]))
    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)

    # What is told

    @rule(names=st.sampled_from([NAMES, ["all"], ["wake", "nobody"]]), hold=HOLDS)
    def take(self, names: list[str], hold: str) -> None:
        async def act(side: Side) -> list[Any]:
            rows = await side.store.take_outbox(names, limit=EVERYTHING, hold=hold, hold_seconds=20.0)
            self.taken[side] |= {(row.sink, row.task_id): row for row in rows}
            return _alike(rows)

        self.both(act)

    @rule(fates=st.lists(st.sampled_from(FATES), min_size=1, max_size=5), hold=HOLDS)
    def tell(self, fates: list[dict[str, Any]], hold: str) -> None:
        """What was ever taken, so that some of it is held by another or gone."""

        async def act(side: Side) -> None:
            told = [self.taken[side][line] for line in sorted(self.taken[side])]
            await side.store.record_deliveries(
                [Delivery(row_id=row.id, hold=hold, **fates[n % len(fates)]) for n, row in enumerate(told)]
            )

        self.both(act)

    @rule(fates=st.lists(st.sampled_from(FATES), min_size=1, max_size=5), rounds=st.integers(1, 4))
    def relay(self, fates: list[dict[str, Any]], rounds: int) -> None:
        for _ in range(rounds):
            self.take(NAMES, "r1")
            self.tell(fates, "r1")

    @rule(purge=st.sampled_from([False, False, True]), every=st.integers(1, 2))
    def act_on_the_dead(self, purge: bool, every: int) -> None:
        async def act(side: Side) -> int:
            dead = await side.store.outbox(sink=None, state=OutboxState.DEAD, limit=EVERYTHING, after=0)
            row_ids = [row.id for row in sorted(dead, key=lambda row: (row.sink, row.task_id, row.id))][::every]
            return await (side.store.purge_outbox(row_ids) if purge else side.store.requeue_outbox(row_ids))

        self.both(act)

    # What is read

    @rule(age=st.sampled_from([timedelta(0), timedelta(seconds=60)]), ended=st.booleans())
    def prune(self, age: timedelta, ended: bool) -> None:
        retention = Retention(age, age, None, age) if ended else Retention(None, None, None, age)
        self.both(lambda side: side.store.prune(retention, limit=EVERYTHING))

    @rule(new=tasks)
    def look_at_its_inputs(self, new: NewTask) -> None:
        self.both(lambda side: side.store.pinned(new.id))

    # What both show

    @invariant()
    def shows_the_same_rows(self) -> None:
        self.both(_routed)

    @invariant()
    def shows_the_same_versions(self) -> None:
        self.both(_versions)


def _alike(rows: Sequence[OutboxRow]) -> list[Any]:
    return sorted((_without_ids(row) for row in rows), key=lambda row: (row.sink, row.task_id))


def _without_ids(row: OutboxRow) -> OutboxRow:
    event = None if row.event is None else msgspec.structs.replace(row.event, id=0)
    return msgspec.structs.replace(row, id=0, event=event)


async def _routed(side: Side) -> list[Any]:
    """Line by line. A wake-up that wakes nobody may be dropped at any time, so of those only what is taken counts."""
    rows = await side.store.outbox(sink=None, state=None, limit=EVERYTHING, after=0)
    return _alike([row for row in rows if row.effect is Effect.ROUTE])


async def _versions(side: Side) -> list[Any]:
    """Uuids are each store's own."""
    shown: list[Any] = []
    for info in await side.store.datasets(limit=EVERYTHING, after=None):
        for version in await side.store.dataset_versions(info.latest.dataset, limit=EVERYTHING, before=None):
            rows = await side.store.dataset_rows(version.dataset, version.version, after=None, limit=EVERYTHING)
            shown.append((msgspec.structs.replace(version, dataset_uuid=""), rows))
    return shown


BOUNDED = settings(max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck))


class SQLiteEffectTwins(EffectTwins):
    under_test = "sqlite"


TestSQLiteEffectsAgainstTheModel = SQLiteEffectTwins.TestCase
TestSQLiteEffectsAgainstTheModel.settings = BOUNDED


class MemoryEffectTwins(EffectTwins):
    under_test = "memory"


TestMemoryEffectsAgainstTheModel = MemoryEffectTwins.TestCase
TestMemoryEffectsAgainstTheModel.settings = settings(BOUNDED, max_examples=25)


class PostgresEffectTwins(EffectTwins):
    under_test = "postgres"


TestPostgresEffectsAgainstTheModel = PostgresEffectTwins.TestCase
TestPostgresEffectsAgainstTheModel.settings = settings(BOUNDED, max_examples=25)
