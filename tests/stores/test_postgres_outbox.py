"""The outbox under many hands: relays at once, transactions that take their time, lines that are long. And what a take
costs, in buffers touched: free of the noise of time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from holdfast.model.outbox import Delivery, Effect, NewSink, OutboxRow, OutboxState
from holdfast.model.outcome import Completed, Emitted, Settlement
from holdfast.model.query import Retention
from holdfast.policy.relaying import COUNTED
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.statements import statement
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.virtual_clock import VirtualClock
from tests.stores.postgres_support import claim_one, handle, new_task, opened, somebody_else

HOOK = "hook"
MANY = 100_000


@asynccontextmanager
async def telling(effect: Effect = Effect.ROUTE, **options: Any) -> AsyncIterator[PostgresStore]:
    async with opened(**options) as store:
        await store.declare_sink(NewSink(name=HOOK, url="https://host", effect=effect))
        yield store


async def take(store: PostgresStore, limit: int = 100, hold: str = "r", seconds: float = 600.0) -> list[OutboxRow]:
    return await store.take_outbox([HOOK], limit=limit, hold=hold, hold_seconds=seconds)


async def deliver(store: PostgresStore, rows: Sequence[OutboxRow], hold: str = "r", error: str | None = None) -> None:
    await store.record_deliveries([Delivery(row_id=row.id, hold=hold, error=error) for row in rows])


def kinds(rows: Sequence[OutboxRow]) -> list[str]:
    return [row.event.kind for row in rows if row.event is not None]


async def add_events(store: PostgresStore, task_id: str, number: int) -> None:
    """As if an attempt had told so much."""
    async with somebody_else(store) as conn:
        await conn.execute(
            "insert into events (task_id, at, kind, actor, data)"
            " select $1, clock_timestamp(), 'task.progress', 'w', '{}' from generate_series(1, $2::bigint)",
            task_id,
            number,
        )


# Who writes


def test_a_slow_transaction_with_a_lower_id_is_not_passed_over() -> None:
    async def use() -> None:
        async with telling() as store, somebody_else(store) as slow:
            open_one, quick = new_task(), new_task()
            transaction = slow.transaction()
            await transaction.start()
            await (await store.joining()).into(slow).asubmit([open_one])
            await store.submit([quick])
            first = await take(store)
            assert [row.task_id for row in first] == [quick.id]
            await deliver(store, first)
            await transaction.commit()
            (late,) = await take(store)
            assert late.task_id == open_one.id
            assert late.id < first[0].id

    asyncio.run(use())


def test_transactions_of_others_tell_as_well() -> None:
    """Submits, completions with all that comes with them, and plain SQL; also from a serializable one."""

    async def use() -> None:
        async with telling() as store, somebody_else(store) as conn:
            first, follow_up = new_task(), new_task()
            joining = await store.joining()
            async with conn.transaction(isolation="serializable"):
                await joining.into(conn).asubmit([first])
            lease = (await claim_one(store)).lease
            async with conn.transaction(isolation="repeatable_read"):
                done = Settlement(lease, Completed(), (Emitted("invoice.sent", {"no": 7}),), (follow_up,))
                await joining.into(conn).acomplete(done)
            by_hand = await conn.fetchval("select enqueue('probe')::text")
            rows = await store.outbox(sink=HOOK, state=None, limit=99, after=0)
            own = [row for row in rows if row.task_id == first.id]
            assert kinds(own) == ["task.enqueued", "task.running", "invoice.sent", "task.completed"]
            assert [(row.task_id, *kinds([row])) for row in rows if row not in own] == [
                (follow_up.id, "task.enqueued"),
                (by_hand, "task.enqueued"),
            ]
            events = await store.events(first.id, after=0, limit=9)
            assert [row.event for row in own] == events

    asyncio.run(use())


def test_nobody_who_changes_a_task_waits_for_a_relay_or_makes_one_wait() -> None:
    """1. A relay stands still in the middle of a take. 2. The task of the row goes on, and another relay too. 3. A
    caller leaves a transaction open that tells more of the task: what is there before is delivered meanwhile."""

    async def use() -> None:
        async with telling() as store, somebody_else(store) as stalled, somebody_else(store) as slow:
            one, other = new_task(), new_task()
            await store.submit([one, other])
            async with stalled.transaction():
                await stalled.fetch("select from outbox where task_id = $1 for update", one.id)
                lease = (await claim_one(store, task_id=one.id)).lease
                assert [row.task_id for row in await take(store)] == [other.id]
            async with slow.transaction():
                await (await store.joining()).into(slow).acomplete(Settlement(lease, Completed()))
                for kind in ("task.enqueued", "task.running"):
                    (row,) = await take(store)
                    assert kinds([row]) == [kind]
                    await deliver(store, [row])
                assert await take(store) == []
            assert kinds(await take(store)) == ["task.completed"]

    asyncio.run(use())


def test_rows_of_a_sink_that_was_deleted_under_an_open_transaction_go() -> None:
    async def use() -> None:
        async with telling() as store, somebody_else(store) as slow:
            async with slow.transaction():
                await (await store.joining()).into(slow).asubmit([new_task()])
                assert await store.delete_sink(HOOK)
            await store.declare_sink(NewSink(name="z", url="https://host", effect=Effect.ROUTE))
            await store.submit([new_task()])
            assert [row.sink for row in await store.outbox(sink=None, state=None, limit=9, after=0)] == [HOOK, "z"]
            await store.prune(Retention(), limit=9)
            assert [row.sink for row in await store.outbox(sink=None, state=None, limit=9, after=0)] == ["z"]

    asyncio.run(use())


# Relays among themselves


def test_relays_at_once_tell_everything_once_and_every_line_in_order() -> None:
    """Every third delivery fails the first time. Rows come while others are told."""
    tasks, events, relays = 12, 8, 3
    clock = VirtualClock()
    heard: dict[str, list[int]] = {}
    failed: set[int] = set()

    async def relay(store: PostgresStore, name: str) -> int:
        rows = await take(store, limit=5, hold=name)
        good = [row for row in rows if row.id % 3 or row.id in failed]
        bad = [row for row in rows if row not in good]
        failed.update(row.id for row in bad)
        for row in good:
            assert row.event is not None
            heard.setdefault(row.task_id, []).append(row.event.payload["n"])
        await deliver(store, good, name)
        await deliver(store, bad, name, "no")
        return len(rows)

    async def use() -> None:
        async with telling(clock=clock) as store:
            hands = [handle(store._options.schema, clock) for _ in range(relays)]
            await store.submit([new_task() for _ in range(tasks)])
            claims = [await claim_one(store) for _ in range(tasks)]
            for row in await take(store, tasks * 3):
                heard[row.task_id] = []
            await store.delete_sink(HOOK)
            await store.declare_sink(NewSink(name=HOOK, url="https://host", effect=Effect.ROUTE))

            async def report() -> None:
                for n in range(events):
                    for one in claims:
                        await store.report(one.lease, "task.progress", {"n": n})

            reporting = asyncio.create_task(report())
            idle = False
            while not (reporting.done() and idle):
                told = await asyncio.gather(*(relay(one, f"r{n}") for n, one in enumerate(hands)))
                idle = not any(told) and not await store.outbox(sink=HOOK, state=None, limit=1, after=0)
                clock.advance(1)
            await reporting
            assert heard == {one.lease.task_id: list(range(events)) for one in claims}
            for one in hands:
                await one.close()

    asyncio.run(use())


def test_a_relay_that_stalls_costs_a_repetition_and_its_word_counts_no_more() -> None:
    clock = VirtualClock()

    async def use() -> None:
        async with telling(clock=clock) as store, opened(store._options.schema, clock) as other:
            await store.submit([new_task()])
            (row,) = await take(store, hold="slow", seconds=30)
            assert await take(other, hold="other") == []
            clock.advance(30)
            assert await take(other, hold="other") == [row]
            await deliver(store, [row], "slow", "too late")
            await deliver(store, [row], "slow")
            assert [row.tries for row in await store.outbox(sink=None, state=None, limit=9, after=0)] == [0]
            await deliver(other, [row], "other")
            assert await store.outbox(sink=None, state=None, limit=9, after=0) == []

    asyncio.run(use())


def test_a_row_is_not_put_behind_one_that_is_just_going() -> None:
    """1. A relay records that the first row of a line was told, and has not committed. 2. Another finds the second row
    and sees the first. Were it put behind that, nobody would look for it any more."""

    async def use() -> None:
        async with telling() as store, somebody_else(store) as recording:
            await store.submit([new_task()])
            await take(store)
            await claim_one(store)
            async with recording.transaction():
                await recording.execute("delete from outbox where id = 1")
                assert await take(store) == []
            assert kinds(await take(store)) == ["task.running"]

    asyncio.run(use())


def test_a_row_that_was_put_behind_comes_when_those_before_it_are_gone_or_dead() -> None:
    async def use() -> None:
        async with telling() as store:
            await store.submit([new_task()])
            lease = (await claim_one(store)).lease
            await store.report(lease, "task.progress", {})
            (first,) = await take(store)
            async with somebody_else(store) as conn:
                behind = await conn.fetch("select id from outbox where free_at is null order by id")
                assert [row["id"] for row in behind] == [2, 3]
            await store.record_deliveries([Delivery(row_id=first.id, hold="r", error="never", final=True)])
            (second,) = await take(store)
            assert kinds([second]) == ["task.running"]
            assert await store.requeue_outbox([first.id]) == 1
            (again,) = await take(store, hold="s")
            assert again.id == first.id
            await deliver(store, [second])
            assert await take(store, hold="t") == []
            await deliver(store, [again], "s")
            assert kinds(await take(store)) == ["task.progress"]

    asyncio.run(use())


def test_two_rows_of_one_line_that_go_at_once_leave_the_third_to_somebody() -> None:
    """1. The first row of a line is dead, the second in hand; the first is requeued and taken too. 2. Both are told,
    and recorded at the same time. Neither sees that the other goes: each takes that for the row to come next.
    """

    async def use() -> None:
        async with telling() as store, somebody_else(store) as recording:
            await store.submit([new_task()])
            await store.report((await claim_one(store)).lease, "task.progress", {})
            (first,) = await take(store)
            await store.record_deliveries([Delivery(row_id=first.id, hold="r", error="never", final=True)])
            (second,) = await take(store)
            await store.requeue_outbox([first.id])
            (again,) = await take(store, hold="s")
            assert again.id == first.id
            async with recording.transaction():
                await recording.execute("delete from outbox where id = $1", again.id)
                promote = statement(store._options.quoted_schema, "promote_outbox")
                await recording.execute(promote, [HOOK], [again.task_id])
                other = asyncio.create_task(deliver(store, [second]))
                await asyncio.wait({other}, timeout=0.5)  # it may wait for the first one to commit
            await other
            assert kinds(await take(store)) == ["task.progress"]

    asyncio.run(use())


@pytest.mark.parametrize("error", ["nul \x00", "half \ud800", "x" * 100_000, "'; drop table outbox --"])
def test_what_a_sink_answers_is_kept_whatever_it_is(error: str) -> None:
    async def use() -> None:
        async with telling() as store:
            await store.submit([new_task()])
            await deliver(store, await take(store), error=error)
            (row,) = await store.outbox(sink=HOOK, state=OutboxState.PENDING, limit=9, after=0)
            assert row.tries == 1
            assert row.last_error is not None
            assert len(row.last_error) == len(error)

    asyncio.run(use())


# Wake-ups


def test_a_wake_up_is_not_lost_while_its_task_comes_back() -> None:
    """1. A task runs, and its first wake-up is due again. 2. It is given back, in a transaction that is open. 3. A
    relay drops the old one. 4. The transaction commits, with one of its own."""

    async def use() -> None:
        async with telling(Effect.WAKE) as store, somebody_else(store) as slow:
            task = new_task()
            await store.submit([task])
            await claim_one(store)
            async with slow.transaction():
                await slow.execute("update tasks set status = 'queued', run_at = now() where id = $1", task.id)
                await slow.execute(
                    "insert into events (task_id, at, kind, actor) values ($1, now(), 'task.released', 'w')", task.id
                )
                assert await take(store) == []
            (row,) = await take(store)
            assert (row.task_id, row.effect) == (task.id, Effect.WAKE)
            assert await store.outbox(sink=None, state=None, limit=9, after=0) == [row]

    asyncio.run(use())


# What it costs


FILL = """
insert into outbox (task_id, created_at, due_at, free_at, event_id, sink, effect, queue, kind, actor, data)
select
    case when $3 then $2::uuid else gen_random_uuid() end, at, at, at, n, 'hook', 'route_event', 'default',
    'task.progress', 'w', '{}'
from generate_series(1, $1::bigint) as n, (select clock_timestamp() - interval '1 minute') as moment (at)
"""


async def fill(store: PostgresStore, rows: int, *, line: str | None = None) -> None:
    """As if the trigger had written them, long before all others: for one task, or each for another."""
    async with somebody_else(store) as conn:
        await conn.execute(FILL, rows, line, line is not None)
        await conn.execute("vacuum (analyze) outbox")


async def touched(store: PostgresStore) -> int:
    """Buffers that a take of ten rows touches. It runs in full, with what it writes."""

    async def work(session: Session) -> int:
        text = statement(session.schema, "take_outbox")
        explained = await session.conn.fetchval(
            f"explain (analyze, buffers, format json) {text}", None, [HOOK], 10, "cost", 1_000_000, 10
        )
        (found,) = json.loads(explained)
        assert '"Relation Name": "outbox"' in explained
        assert "Seq Scan" not in explained
        return int(found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"])

    return await store._write(work)


async def lowest() -> int:
    async with telling() as store:
        await fill(store, 40)
        return min([await touched(store) for _ in range(3)])


def test_a_take_costs_the_same_however_many_rows_wait() -> None:
    async def use() -> None:
        async with telling() as store:
            await fill(store, MANY)
            assert await touched(store) <= 2 * await lowest()

    asyncio.run(use())


def test_a_long_line_whose_first_row_fails_stands_in_nobodys_way() -> None:
    async def use() -> None:
        async with telling() as store:
            poison, others = new_task(), [new_task() for _ in range(40)]
            await fill(store, MANY, line=poison.id)
            (first,) = await take(store, 1)
            await deliver(store, [first], error="no")
            await store.submit(others)
            told: list[OutboxRow] = []
            while len(told) < 20:
                told += await take(store, 10)
            assert {row.task_id for row in told} <= {new.id for new in others}
            async with somebody_else(store) as conn:
                await conn.execute("vacuum (analyze) outbox")
            assert await touched(store) <= 2 * await lowest()

    asyncio.run(use())


def test_numbers_are_told_up_to_a_bound() -> None:
    async def use() -> None:
        async with telling() as store:
            await fill(store, COUNTED + 1)
            (sink,) = await store.sinks()
            assert (sink.pending, sink.dead) == (COUNTED, 0)
            async with somebody_else(store) as conn:
                await conn.execute("update outbox set state = 'dead', free_at = null")
            (sink,) = await store.sinks()
            assert (sink.pending, sink.dead) == (0, COUNTED)
            assert ("outbox", None) in [(question, well) for question, well, _ in await store.check()]
            assert await store.delete_sink(HOOK)
            assert await store.outbox(sink=None, state=None, limit=9, after=0) == []

    asyncio.run(use())
