"""The relay on every store, round by round, in virtual time (contract section 12)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.errors import NotSupported
from holdfast.events.facts import Relayed, RowDead, SinkAway, SinkBack, SinkFailed, SinkLeft
from holdfast.maintenance.posts import LONGEST_REST_SECONDS
from holdfast.maintenance.relay import BATCH, HOLD_SECONDS
from holdfast.model.backoff import Fixed
from holdfast.model.outbox import Effect, NewSink, OutboxState
from holdfast.model.outcome import ErrorInfo, Failed
from holdfast.policy.relaying import REPEAT_SECONDS, TRIES
from holdfast.sinks.open import channel
from holdfast.sinks.protocol import Answer, Channel, unreached
from tests.relay.support import HOOK, WAKE, World, on_each, until

STORES = pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
LIFE = ["task.enqueued", "task.running", "task.completed"]


@STORES
def test_events_are_told_in_the_order_of_each_task(store: str) -> None:
    async def use(world: World) -> None:
        relay = world.relay(HOOK)
        await relay.begin(world.store, world.health)
        lived = [await world.lived() for _ in range(3)]
        await world.drain(relay)
        for task_id in lived:
            assert [kind for told, kind in world.channel().heard if told == task_id] == LIFE
        assert await world.rows() == []
        assert sum(fact.number for fact in world.of(Relayed)) == 9

    on_each(store, use)


@STORES
def test_a_restarted_relay_goes_on_with_what_is_pending(store: str) -> None:
    async def use(world: World) -> None:
        first = world.relay(HOOK)
        await first.begin(world.store, world.health)
        await world.lived()
        await first.round(world.store, world.health)
        await first.told()
        after = world.relay()  # the sink is the store's by now
        await world.drain(after)
        assert [kind for _, kind in world.channel().heard] == LIFE

    on_each(store, use)


@STORES
def test_a_relay_that_dies_between_telling_and_recording_costs_a_repetition(store: str) -> None:
    """1. A takes a row and tells it. 2. A is gone. 3. While A's hold lasts, B takes nothing. 4. Then B tells it."""

    async def use(world: World) -> None:
        await world.store.declare_sink(HOOK)
        await world.submit()
        (taken,) = await world.store.take_outbox(["hook"], limit=10, hold="dead", hold_seconds=HOLD_SECONDS)
        b = world.relay()
        await world.round(b)
        assert world.channel().rows == []
        world.clock.advance(HOLD_SECONDS)
        await world.round(b)
        assert [row.id for row in world.channel().rows] == [taken.id]
        assert await world.rows() == []

    on_each(store, use)


@STORES
def test_two_relays_at_once_tell_everything_once(store: str) -> None:
    async def use(world: World) -> None:
        await world.store.declare_sink(HOOK)
        for _ in range(2 * BATCH + 20):
            await world.submit()
        relays = [world.relay(), world.relay()]
        while await world.rows():
            await asyncio.gather(*(world.round(relay) for relay in relays))
        told = [row.id for row in world.channel().rows]
        assert len(told) == len(set(told)) == 2 * BATCH + 20

    on_each(store, use)


@STORES
def test_a_sink_that_is_down_for_an_hour_costs_nothing_but_latency(store: str) -> None:
    async def use(world: World) -> None:
        relay = world.relay(HOOK)
        await relay.begin(world.store, world.health)
        task_id = await world.lived()
        hook = world.channel()
        hook.raises = ConnectionRefusedError("nobody there")
        for _ in range(60):
            await world.round(relay)
            world.clock.advance(timedelta(minutes=1))
        assert [row.tries for row in await world.rows()] == [0, 0, 0]
        assert hook.calls[1:] == [1] * (len(hook.calls) - 1), "a sink that is down is probed with single rows"
        assert [fact.sink for fact in world.of(SinkAway)] == ["hook"], "told once"
        hook.raises = None
        await world.drain(relay)
        assert hook.heard == [(task_id, kind) for kind in LIFE]
        (back,) = world.of(SinkBack)
        assert back.away_seconds >= 3600 - LONGEST_REST_SECONDS
        assert world.of(RowDead) == []

    on_each(store, use)


@STORES
def test_a_sink_that_is_down_or_slow_holds_up_no_other(store: str) -> None:
    async def use(world: World) -> None:
        other = NewSink(name="other", url="https://example.org/other", effect=Effect.ROUTE)
        relay = world.relay(HOOK, other)
        await relay.begin(world.store, world.health)
        gate = world.channel("hook").gate = asyncio.Event()
        await world.submit()
        await relay.round(world.store, world.health)
        await until(lambda: world.channel("other").rows)
        await world.submit()
        async with asyncio.timeout(20):
            while len(world.channel("other").rows) < 2:
                await relay.round(world.store, world.health)
                await asyncio.sleep(0.001)
        assert world.channel("hook").rows == []
        gate.set()
        await relay.told()
        await world.drain(relay)
        assert len(world.channel("hook").rows) == 2

    on_each(store, use)


@STORES
def test_a_poison_row_holds_back_its_own_line_and_ends_dead(store: str) -> None:
    async def use(world: World) -> None:
        relay = world.relay(HOOK)
        await relay.begin(world.store, world.health)
        poisoned = await world.submit()
        hook = world.channel()
        hook.answer = lambda row: (
            Answer(error="answered 500") if (row.task_id, row.id) == (poisoned, first.id) else Answer()
        )
        (first,) = await world.rows()
        await world.settle(await world.claim())
        well = await world.lived()
        await world.drain(relay)
        assert [kind for task_id, kind in hook.heard if task_id == well] == LIFE
        for tried in range(1, TRIES):
            assert {task_id for task_id, kind in hook.heard if kind == "task.completed"} == {well}
            (row, *_) = await world.rows()
            assert (row.tries, row.state) == (tried, OutboxState.PENDING)
            world.clock.advance(timedelta(hours=1))
            await world.drain(relay)
        (dead,) = await world.rows(OutboxState.DEAD)
        assert (dead.id, dead.last_error) == (first.id, "answered 500")
        (fact,) = world.of(RowDead)
        assert (fact.row_id, fact.task_id) == (first.id, poisoned)
        assert [kind for task_id, kind in hook.heard if task_id == poisoned][-2:] == LIFE[1:]
        assert world.of(SinkAway) == [], "a sink that judges is there"

    on_each(store, use)


@STORES
def test_of_a_batch_that_fails_in_part_only_the_failed_rows_stay(store: str) -> None:
    async def use(world: World) -> None:
        relay = world.relay(WAKE)
        await relay.begin(world.store, world.health)
        tasks = [await world.submit() for _ in range(4)]
        refused = set(tasks[1:3])
        wake = world.channel("wake")
        wake.answer = lambda row: unreached("throttled") if row.task_id in refused else Answer()
        await world.round(relay)
        world.clock.advance(6)  # longer than policy's rest, shorter than a repetition
        refused.clear()
        await world.round(relay)
        assert sorted(row.task_id for row in wake.rows) == sorted([*tasks, *tasks[1:3]])
        assert world.of(SinkAway) == []

    on_each(store, use)


@STORES
def test_a_lost_wake_up_is_repeated_until_the_task_is_claimed(store: str) -> None:
    async def use(world: World) -> None:
        relay = world.relay(WAKE)
        await relay.begin(world.store, world.health)
        task_id = await world.submit()
        wake = world.channel("wake")
        for wanted, pause in ((1, REPEAT_SECONDS), (2, 2 * REPEAT_SECONDS), (3, 4 * REPEAT_SECONDS)):
            await world.round(relay)
            await world.round(relay)
            assert [row.task_id for row in wake.rows] == [task_id] * wanted
            world.clock.advance(pause)
        await world.settle(await world.claim())
        await world.round(relay)
        assert len(wake.rows) == 3
        assert await world.rows() == []

    on_each(store, use)


@STORES
def test_scheduled_and_retrying_tasks_are_announced_when_they_are_due(store: str) -> None:
    async def use(world: World) -> None:
        relay = world.relay(WAKE)
        await relay.begin(world.store, world.health)
        wake = world.channel("wake")
        later = await world.submit(run_at=world.clock.now() + timedelta(hours=2))
        retried = await world.submit(backoff=Fixed(600.0))
        await world.round(relay)
        assert [row.task_id for row in wake.rows] == [retried]
        await world.settle(await world.claim(), Failed(ErrorInfo("no", "no")))
        await world.round(relay)
        world.clock.advance(601)
        await world.round(relay)
        assert [row.task_id for row in wake.rows] == [retried, retried]
        await world.settle(await world.claim())
        world.clock.advance(timedelta(hours=2))
        await world.round(relay)
        assert [row.task_id for row in wake.rows] == [retried, retried, later]

    on_each(store, use)


def test_a_full_batch_means_that_it_looks_again_at_once() -> None:
    async def use(world: World) -> None:
        await world.store.declare_sink(HOOK)
        for _ in range(BATCH + 1):
            await world.submit()
        relay = world.relay()
        assert await world.round(relay)
        assert not await world.round(relay)
        assert world.channel().calls == [BATCH, 1]

    on_each("memory", use)


def test_what_this_process_cannot_serve_is_left_to_others_and_said_once() -> None:
    async def use(world: World) -> None:
        def opening(target: NewSink) -> Channel:
            if target.name == "wake":
                raise NotSupported("no boto3 here")
            return world.channel(target.name)

        relay = world.relay(HOOK, WAKE, opening=opening)
        await relay.begin(world.store, world.health)
        await world.submit()
        for _ in range(3):
            world.clock.advance(2)
            await world.round(relay)
        assert [(fact.sink, fact.why) for fact in world.of(SinkLeft)] == [("wake", "no boto3 here")]
        assert len(world.channel().rows) == 1
        assert [row.sink for row in await world.rows()] == ["wake"]

    on_each("memory", use)


def test_a_sink_whose_url_nobody_can_read_is_in_nobodys_way() -> None:
    async def use(world: World) -> None:
        def opening(target: NewSink) -> Channel:
            return world.channel() if target.name == HOOK.name else channel(target, {})

        relay = world.relay(HOOK, opening=opening)
        for number, url in enumerate(("nats://[", "http://[::", "sqs+http://[::1/1/q", "nats://h:99999", "\x00")):
            await world.store.declare_sink(NewSink(name=f"broken{number}", url=url, effect=Effect.WAKE))
        await relay.begin(world.store, world.health)
        await world.submit()
        await world.round(relay)
        assert len(world.channel().rows) == 1
        assert len(world.of(SinkLeft)) == 5

    on_each("memory", use)


def test_a_sink_that_was_changed_or_deleted_is_seen_within_a_second() -> None:
    async def use(world: World) -> None:
        relay = world.relay(HOOK)
        await relay.begin(world.store, world.health)
        await world.store.declare_sink(NewSink(name="hook", url="https://example.org/new", effect=Effect.ROUTE))
        world.clock.advance(1)
        await world.round(relay)
        assert world.channel().closed == 1
        await world.store.delete_sink("hook")
        await world.submit()
        world.clock.advance(1)
        await world.round(relay)
        assert world.channel().closed == 2
        assert world.channel().rows == []

    on_each("memory", use)


def test_a_sink_that_cannot_be_declared_is_told_and_tried_again() -> None:
    async def use(world: World) -> None:
        real = world.store.declare_sink
        refusing = True

        async def declare(new: NewSink) -> None:
            if refusing:
                raise NotSupported("not yet")
            await real(new)

        world.store.declare_sink = declare  # type: ignore[method-assign]
        relay = world.relay(HOOK)
        await relay.begin(world.store, world.health)
        await world.round(relay)
        assert [fact.error for fact in world.of(SinkFailed)] == ["not yet"]
        refusing = False
        world.clock.advance(2)
        await world.round(relay)
        await world.submit()
        await world.round(relay)
        assert len(world.channel().rows) == 1

    on_each("memory", use)


def test_without_sinks_nobody_listens() -> None:
    """On PostgreSQL, who listens makes others pay for telling."""

    async def use(world: World) -> None:
        relay = world.relay()
        running = asyncio.create_task(relay.run(world.store, world.health))
        await until(lambda: relay._looked_at is not None)
        assert relay._bell is None
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    on_each("memory", use)


def test_a_relay_that_is_stopped_finishes_what_it_is_telling() -> None:
    async def use(world: World) -> None:
        gate = world.channel().gate = asyncio.Event()
        relay = world.relay(HOOK)
        await relay.begin(world.store, world.health)
        await world.submit()
        running = asyncio.create_task(relay.run(world.store, world.health))
        await until(lambda: world.channel().calls)
        running.cancel()
        await asyncio.sleep(0)
        gate.set()
        await asyncio.gather(running, return_exceptions=True)
        assert len(world.channel().rows) == 1
        assert await world.rows() == []
        assert world.channel().closed == 1

    on_each("memory", use)
