"""Datasets under many hands: writers at once, one that is killed on its way, a prune against a submit."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from holdfast.errors import DatasetNotFound, LeaseLost
from holdfast.model.claim import Lease
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.output import Mode, Output, OutputRow, Pin
from holdfast.model.query import Retention
from holdfast.model.schedule import NewSchedule, Timing
from holdfast.model.task import NewTask
from holdfast.model.transition import Settled
from holdfast.stores.postgres import datasets
from holdfast.stores.postgres.statements import statement
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.virtual_clock import VirtualClock
from tests import postgres_server
from tests.stores.postgres_support import claim_one, new_task, opened, request, somebody_else

NOW = Retention(completed=None, canceled=None, failed=None, outputs=timedelta(0))


def output(*keys: str, dataset: str = "d", mode: Mode = Mode.APPEND, value: str = "1") -> Output:
    return Output(dataset, mode, tuple(OutputRow(key, value) for key in keys))


async def leases(store: PostgresStore, number: int, **fields: Any) -> list[Lease]:
    await store.submit([new_task(**fields) for _ in range(number)])
    return [one.lease for one in (await store.claim(request(limit=number, queues=("default",)))).claims]


async def write(store: PostgresStore, *outputs: Output) -> str:
    """By a task that is done with it; its id."""
    (lease,) = await leases(store, 1)
    (answer,) = await store.settle([Settlement(lease, Completed(), outputs=outputs)])
    assert isinstance(answer, Settled)
    return lease.task_id


async def keys(store: PostgresStore, version: int, dataset: str = "d") -> list[str]:
    return [row.key for row in await store.dataset_rows(dataset, version, after=None, limit=999)]


async def numbers(store: PostgresStore, dataset: str = "d") -> list[int]:
    return [one.version for one in await store.dataset_versions(dataset, limit=999, before=None)]


def waiting_for(*pins: Pin) -> tuple[NewTask, NewTask]:
    parent = new_task(run_id="r")
    return parent, new_task(run_id="r", queue="later", parents=(parent.id,), inputs=pins)


# Writers


def test_writers_of_the_same_datasets_at_once_take_turns_whatever_their_order() -> None:
    """Batches of settlements that name the same datasets in opposite orders, over handles of their own."""
    names, rounds = ["a", "b", "c"], 5

    async def use() -> None:
        async with opened() as store, opened(store._options.schema) as other:

            async def writes(handle: PostgresStore, held: Sequence[Lease], order: Sequence[str]) -> None:
                outputs = [(output(lease.task_id, dataset=name),) for lease, name in zip(held, order, strict=True)]
                ends = [
                    Settlement(lease, Completed(), outputs=given) for lease, given in zip(held, outputs, strict=True)
                ]
                assert all(isinstance(answer, Settled) for answer in await handle.settle(ends))

            for _ in range(rounds):
                held = await leases(store, 6)
                await asyncio.gather(writes(store, held[:3], names), writes(other, held[3:], names[::-1]))
            for name in names:
                assert await numbers(store, name) == [*range(2 * rounds, 0, -1)]
                assert len(await keys(store, 2 * rounds, name)) == 2 * rounds

    asyncio.run(use())


def test_a_writer_waits_for_a_callers_transaction_and_goes_on_from_what_that_committed() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as caller:
            first, second = await leases(store, 2)
            joining = await store.joining()
            async with caller.transaction():
                await joining.into(caller).acomplete(Settlement(first, Completed(), outputs=(output("a", "b"),)))
                writing = asyncio.create_task(
                    store.settle([Settlement(second, Completed(), outputs=(output("b", "c", value="2"),))])
                )
                await until_somebody_waits(store)
                assert not writing.done()
            await writing
            rows = await store.dataset_rows("d", 2, after=None, limit=9)
            assert rows == [OutputRow("a", "1"), OutputRow("b", "1"), OutputRow("c", "2")]
            assert await keys(store, 1) == ["a", "b"]

    asyncio.run(use())


async def until_somebody_waits(store: PostgresStore) -> None:
    asked = (
        "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database())"
    )
    async with somebody_else(store) as conn, asyncio.timeout(60):
        while not await conn.fetchval(asked):  # noqa: ASYNC110  only the server knows
            await asyncio.sleep(0.01)


def test_a_callers_transaction_that_is_undone_has_written_nothing() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as caller:
            (lease,) = await leases(store, 1)
            joining = await store.joining()
            end = Settlement(lease, Completed(), outputs=(output("a"),))
            transaction = caller.transaction()
            await transaction.start()
            await joining.into(caller).acomplete(end)
            await transaction.rollback()
            assert await store.datasets(limit=9, after=None) == []
            async with caller.transaction():
                await joining.into(caller).acomplete(end)
                await joining.into(caller).acomplete(end)
            assert await numbers(store) == [1]

    asyncio.run(use())


WRITER = """
import asyncio, sys
from holdfast.clock import SYSTEM_CLOCK
from holdfast.model.claim import Lease
from holdfast.stores.postgres.options import parsed
from tests.stores.test_postgres_outputs import Completed, PostgresStore, Settlement, output

async def main():
    store = PostgresStore(parsed(sys.argv[1], {"schema": sys.argv[2]}), SYSTEM_CLOCK)
    lease = Lease(sys.argv[3], 1, sys.argv[4])
    await store.settle([Settlement(lease, Completed(), outputs=(output("a", "b"),))])

asyncio.run(main())
"""


def test_a_writer_that_is_killed_on_its_way_has_written_nothing_and_its_successor_all() -> None:
    """Killed while it waits for the dataset: its task is locked, its lease checked, its rows not yet written."""

    async def use() -> None:
        async with opened() as store, somebody_else(store) as holder:
            await write(store, output("z"))
            (lease,) = await leases(store, 1)
            transaction = holder.transaction()
            await transaction.start()
            await holder.fetch("select from datasets for update")
            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", WRITER, postgres_server.server().url, store._options.schema, lease.task_id,
                lease.token, cwd=os.getcwd(),
            )  # fmt: skip
            await until_somebody_waits(store)
            child.send_signal(signal.SIGKILL)
            await child.wait()
            await transaction.rollback()
            async with asyncio.timeout(60):
                (answer,) = await store.settle([Settlement(lease, Completed(), outputs=(output("a", "b"),))])
            assert isinstance(answer, Settled)
            assert await numbers(store) == [2, 1]
            assert await keys(store, 2) == ["a", "b", "z"]

    asyncio.run(use())


def test_a_lost_lease_and_a_refused_follow_up_leave_no_dataset_behind() -> None:
    async def use() -> None:
        async with opened() as store:
            lost, refused = await leases(store, 2)
            stale = Lease(lost.task_id, lost.attempt, refused.token)
            follow_up = new_task(inputs=(Pin("nowhere", 1),))
            answers = await store.settle(
                [
                    Settlement(stale, Completed(), outputs=(output("a"),)),
                    Settlement(refused, Completed(), follow_ups=(follow_up,), outputs=(output("a"),)),
                ]
            )
            assert [type(answer) for answer in answers] == [LeaseLost, DatasetNotFound]
            assert await store.datasets(limit=9, after=None) == []
            assert await store.dataset_version("d", None) is None
            (answer,) = await store.settle([Settlement(refused, Completed(), outputs=(output("a"),))])
            assert isinstance(answer, Settled)
            assert await numbers(store) == [1]

    asyncio.run(use())


def test_as_much_as_one_completion_may_carry_is_written_and_appended_once() -> None:
    rows = tuple(OutputRow(f"{n:06}", '"' + "x" * 150 + '"') for n in range(100_000))

    async def use() -> None:
        async with opened() as store, somebody_else(store) as caller:
            await write(store, Output("d", Mode.REPLACE, rows))
            (lease,) = await leases(store, 1)
            async with caller.transaction():
                more = (*rows, OutputRow("last", "1"))
                end = Settlement(lease, Completed(), outputs=(Output("d", Mode.APPEND, more),))
                await (await store.joining()).into(caller).acomplete(end)
            latest = await store.dataset_version("d", None)
            assert latest is not None
            assert (latest.version, latest.rows, latest.added) == (2, 100_001, 1)
            assert len(await store.dataset_rows("d", 1, after="099990", limit=99)) == 9

    asyncio.run(use())


# Pins and what is old


def test_every_way_of_submitting_refuses_a_version_that_is_not_there() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as caller:
            await write(store, output("a"))
            good, bad = (Pin("d", 1),), (Pin("d", 1), Pin("e", 2**70))
            joining = await store.joining()

            async def joined(tasks: Sequence[NewTask]) -> None:
                async with caller.transaction():
                    await joining.into(caller).asubmit(tasks)

            async def fired(tasks: Sequence[NewTask]) -> None:
                made = await store.declare_schedule(
                    NewSchedule(name="s", timing=Timing(every=60.0), task=new_task(id=""), declared=False)
                )
                upto = made.last_fired_at + timedelta(minutes=1)
                await store.fire("s", last_fired_at=made.last_fired_at, upto=upto, tasks=tasks)

            ways = {"alone": store.submit, "joined": joined, "fired": fired}
            for way, submit in ways.items():
                for number in (1, 3, 300):
                    for lacking in (bad, (Pin("d", 2),), (Pin("e", 1),)):
                        tasks = [*(new_task() for _ in range(number - 1)), new_task(inputs=lacking)]
                        with pytest.raises(DatasetNotFound):
                            await submit(tasks)
                        assert await store.get(tasks[0].id) is None, way
                    tasks = [new_task(inputs=good) for _ in range(number)]
                    await submit(tasks)
                    assert [await store.pinned(new.id) for new in tasks[:2]] == [{"d": 1}] * min(number, 2), way
            async with caller.transaction():  # a refusal leaves it usable
                with pytest.raises(DatasetNotFound, match="version 9"):
                    await joining.into(caller).asubmit([new_task(inputs=(Pin("d", 9),))])
                await joining.into(caller).asubmit([new_task(inputs=good)])

    asyncio.run(use())


def test_submits_that_are_written_together_are_refused_one_by_one() -> None:
    async def use() -> None:
        async with opened() as store:
            await write(store, output("a"))
            tasks = [new_task(inputs=(Pin("d", 1 + n % 2),)) for n in range(10)]
            answers = await asyncio.gather(*(store.submit([new]) for new in tasks), return_exceptions=True)
            assert [isinstance(answer, DatasetNotFound) for answer in answers] == [bool(n % 2) for n in range(10)]

    asyncio.run(use())


def test_a_submit_that_pins_a_version_and_a_prune_cannot_pass_each_other() -> None:
    """First a caller has pinned, and not committed; then a prune has decided, and not committed."""

    async def use() -> None:
        async with opened() as store, somebody_else(store) as caller:
            for key in "abc":
                await write(store, output(key))
            pinning = new_task(inputs=(Pin("d", 1),))
            async with caller.transaction():
                await (await store.joining()).into(caller).asubmit([pinning])
                assert await store.prune(NOW, limit=9) == 1
            assert await numbers(store) == [3, 1]
            assert await store.prune(NOW, limit=9) == 0
            await write(store, output("d"))
            transaction = caller.transaction()
            await transaction.start()
            await caller.execute("delete from dataset_versions where version = 3")
            submitting = asyncio.create_task(store.submit([new_task(inputs=(Pin("d", 3),))]))
            await until_somebody_waits(store)
            await transaction.commit()
            with pytest.raises(DatasetNotFound):
                await submitting
            assert await keys(store, 1) == ["a"]

    asyncio.run(use())


def test_a_prune_looks_again_at_what_it_has_locked() -> None:
    """1. A version is found to be free. 2. A submit pins it and commits, before it is locked."""

    async def use() -> None:
        async with opened() as store, somebody_else(store) as pruning:
            for key in "ab":
                await write(store, output(key))
            schema = store._options.quoted_schema
            async with pruning.transaction():
                looked = statement(schema, "old_versions").replace("FOR UPDATE", "--")
                assert [tuple(row) for row in await pruning.fetch(looked, None, 0, 9)] == [("d", 1)]
                await store.submit([new_task(inputs=(Pin("d", 1),))])
                assert await pruning.fetch(statement(schema, "drop_versions"), ["d"], [1]) == []

    asyncio.run(use())


def test_what_a_parent_writes_is_kept_for_its_child() -> None:
    clock = VirtualClock()

    async def use() -> None:
        async with opened(clock=clock) as store:
            parent, child = waiting_for(Pin("d", None))
            await store.submit([parent, child])
            lease = (await claim_one(store, task_id=parent.id)).lease
            await store.settle([Settlement(lease, Completed(), outputs=(output("a"),))])
            for key in "bc":
                await write(store, output(key))
            clock.advance(1)
            assert await store.prune(NOW, limit=9) == 1
            assert (await numbers(store), await store.pinned(child.id)) == ([3, 1], {"d": 1})
            lease = (await claim_one(store, task_id=child.id)).lease
            await store.settle([Settlement(lease, Completed())])
            assert await store.prune(NOW, limit=9) == 1
            assert await numbers(store) == [3]

    asyncio.run(use())


def test_rows_of_a_base_go_with_its_last_version_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "SWEPT", 3)
    monkeypatch.setattr(datasets, "SWEEPS", 2)

    async def use() -> None:
        async with opened() as store, somebody_else(store) as conn:

            async def left() -> int:
                return int(await conn.fetchval("select count(*) from dataset_rows"))

            await write(store, output(*"abcdefgh"))
            await write(store, output("i"))
            await write(store, output("z", mode=Mode.REPLACE))
            assert await store.prune(NOW, limit=1) == 1
            assert await left() == 10
            assert await store.prune(NOW, limit=9) == 1
            assert await left() == 4
            assert await store.prune(NOW, limit=9) == 0
            assert await left() == 1
            assert await conn.fetchval("select count(*) from loose_bases") == 0
            assert await keys(store, 3) == ["z"]

    asyncio.run(use())


def test_two_that_prune_the_last_versions_of_a_base_at_once_leave_no_rows() -> None:
    async def use() -> None:
        async with opened() as store, opened(store._options.schema) as other, somebody_else(store) as conn:
            for _ in range(5):
                for key in "abcd":
                    await write(store, output(key))
                await write(store, output("z", mode=Mode.REPLACE))
                while sum(await asyncio.gather(store.prune(NOW, limit=1), other.prune(NOW, limit=1))):
                    pass
                await store.prune(NOW, limit=9)
                assert [row["key"] for row in await conn.fetch("select key from dataset_rows")] == ["z"]

    asyncio.run(use())


def test_a_pin_goes_with_its_task() -> None:
    async def use() -> None:
        async with opened() as store, somebody_else(store) as conn:
            await write(store, output("a"))
            (lease,) = await leases(store, 1, inputs=(Pin("d", 1),))
            await store.settle([Settlement(lease, Completed())])
            assert await conn.fetchval("select count(*) from pins") == 1
            await store.prune(Retention(completed=timedelta(0)), limit=9)
            assert await conn.fetchval("select count(*) from pins") == 0

    asyncio.run(use())


def test_a_missing_dataset_is_an_answer_and_no_fault_of_the_server() -> None:
    async def use() -> None:
        async with opened() as store:
            for version in (1, 0, -1, 2**80):
                for dataset in ("d", "nul \x00", "'; drop table datasets --"):
                    with pytest.raises(DatasetNotFound):
                        await store.dataset_rows(dataset, version, after=None, limit=9)
                    assert await store.dataset_version(dataset, version) is None
                    assert await store.dataset_versions(dataset, limit=9, before=version) == []
            assert await store.pinned("no id") == {}

    asyncio.run(use())
