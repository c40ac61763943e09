"""Rows that no answer comes to, over real HTTP and in virtual time: a sink that is down is told from a row that is
poison (policy/silence.py), and what nobody is there for ends dead (maintenance/untold.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from holdfast.errors import NotSupported
from holdfast.events.facts import PartFailed, RowDead, RowsDead, SinkAway, SinkBack
from holdfast.maintenance.posts import LONGEST_REST_SECONDS
from holdfast.maintenance.relay import APART, LEFT_SECONDS, Relay
from holdfast.model.outbox import Effect, NewSink, OutboxState
from holdfast.policy.relaying import GONE_SECONDS, REST_SECONDS, TRIES, UNTOLD_SECONDS
from holdfast.policy.sinks import webhook_sink
from holdfast.sinks.protocol import Channel, unreached
from holdfast.sinks.webhook import Webhook
from tests.relay.receiver import Receiver, Request
from tests.relay.support import HOOK, World, on_each, until

STORES = pytest.mark.parametrize("store", ["memory", "sqlite", "postgres"])
GONE = NewSink(name="subscriber:gone", url="subscriber:gone", effect=Effect.ROUTE)


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as opened:
        yield opened


class Silent:
    """A receiver that hangs, or breaks the connection, for the tasks of `poison`; or for all."""

    def __init__(self, receiver: Receiver, *, hangs: bool = False) -> None:
        self.poison: set[str] = set()
        self.down = False
        self._receiver = receiver
        self._hangs = hangs
        receiver.answer = self._answer

    def _answer(self, request: Request) -> int:
        if self.down or any(task_id.encode() in request.body for task_id in self.poison):
            if self._hangs:
                self._receiver.released.wait(60)
            raise ConnectionAbortedError("without an answer")
        return 200

    def told(self, task_id: str) -> int:
        return sum(task_id.encode() in request.body for request in list(self._receiver.requests))


def over_http(world: World, receiver: Receiver, *, seconds: float = 5.0) -> Relay:
    """A relay with one webhook, the receiver."""

    def opening(target: NewSink) -> Channel:
        world.to_close.append(Webhook(target, total_seconds=seconds))
        return world.to_close[-1]

    return world.relay(webhook_sink(receiver.url(), name="hook", private=True), opening=opening)


async def tries(world: World, task_id: str) -> int:
    (row,) = [row for row in await world.rows() if row.task_id == task_id]
    return row.tries


@STORES
def test_a_row_that_meets_silence_while_others_are_answered_ends_dead(store: str, receiver: Receiver) -> None:
    """Always alone in its batch, on a sink that is little used: what comes between are single events of others."""

    async def use(world: World) -> None:
        silent = Silent(receiver)
        relay = over_http(world, receiver)
        await relay.begin(world.store, world.health)
        poison = await world.submit()
        silent.poison.add(poison)
        await world.round(relay)
        assert await tries(world, poison) == 0, "the sink may be down"
        for _ in range(2 * TRIES):
            world.clock.advance(timedelta(hours=1))
            await world.round(relay)
            well = await world.submit()
            world.clock.advance(LONGEST_REST_SECONDS)
            await world.round(relay)
            assert silent.told(well) == 1, "the others go on"
        (dead,) = await world.rows(OutboxState.DEAD)
        assert (dead.task_id, dead.tries) == (poison, TRIES)
        (fact,) = world.of(RowDead)
        assert fact.row_id == dead.id
        assert len(world.of(SinkAway)) <= 2, "once it is known, it rests the sink no more"
        assert world.of(PartFailed) == []
        assert await world.store.requeue_outbox([dead.id]) == 1
        silent.poison.clear()
        world.clock.advance(1)
        await world.round(relay)
        assert await world.rows() == []

    on_each(store, use)


def test_a_row_that_is_blamed_once_goes_on_to_its_end_with_nobody_else_to_tell(receiver: Receiver) -> None:
    async def use(world: World) -> None:
        silent = Silent(receiver)
        relay = over_http(world, receiver)
        await relay.begin(world.store, world.health)
        poison, well = await world.submit(), await world.submit()
        silent.poison.add(poison)
        await world.round(relay)
        assert silent.told(well) == 1
        assert await tries(world, poison) == 1, "in one batch with one that was answered"
        for _ in range(TRIES):
            world.clock.advance(timedelta(hours=1))
            await world.round(relay)
        assert [row.task_id for row in await world.rows(OutboxState.DEAD)] == [poison]
        assert world.of(SinkAway) == []

    on_each("memory", use)


def test_a_sink_that_is_silent_to_all_blames_nobody(receiver: Receiver) -> None:
    async def use(world: World) -> None:
        silent = Silent(receiver)
        relay = over_http(world, receiver)
        await relay.begin(world.store, world.health)
        await world.submit()
        await world.round(relay)
        silent.down = True
        tasks = [await world.submit() for _ in range(5)]
        for _ in range(60):
            await world.round(relay)
            world.clock.advance(timedelta(minutes=1))
        assert [row.tries for row in await world.rows()] == [0] * 5
        assert len(world.of(SinkAway)) == 1
        silent.down = False
        for _ in range(3):
            await world.round(relay)
            world.clock.advance(LONGEST_REST_SECONDS)
        assert await world.rows() == []
        assert all(silent.told(task_id) for task_id in tasks)
        assert len(world.of(SinkBack)) == 1

    on_each("memory", use)


def test_an_outage_costs_a_row_that_was_blamed_no_try(receiver: Receiver) -> None:
    async def use(world: World) -> None:
        silent = Silent(receiver)
        relay = over_http(world, receiver)
        await relay.begin(world.store, world.health)
        blamed, well = await world.submit(), await world.submit()
        silent.poison.add(blamed)
        await world.round(relay)
        silent.down = True
        await world.submit()
        await world.round(relay)
        before = await tries(world, blamed)
        for _ in range(30):
            world.clock.advance(timedelta(minutes=10))
            await world.round(relay)
        assert await tries(world, blamed) == before
        assert silent.told(well) == 1

    on_each("memory", use)


def test_a_hanging_row_that_is_known_holds_nobody_up(receiver: Receiver) -> None:
    """1. It hangs beside one that is answered: blamed. 2. From then on others are told while it hangs."""

    async def use(world: World) -> None:
        silent = Silent(receiver, hangs=True)
        quick = over_http(world, receiver, seconds=0.3)
        await quick.begin(world.store, world.health)
        poison, _ = await world.submit(), await world.submit()
        silent.poison.add(poison)
        await world.round(quick)
        assert await tries(world, poison) == 1
        post = quick._posts["hook"]
        post._channel = Webhook(post.target, total_seconds=60)
        world.to_close.append(post._channel)
        world.clock.advance(2)
        await quick.round(world.store, world.health)
        await until(lambda: silent.told(poison) == 2)
        for _ in range(3):
            well = await world.submit()
            await quick.round(world.store, world.health)
            await until(lambda: False not in post.tasks)
            assert silent.told(well) == 1
        assert True in post.tasks, "it still hangs"
        receiver.released.set()
        await quick.told()
        assert await tries(world, poison) == 2

    on_each("memory", use)


def test_what_is_written_while_a_sink_rests_is_tried_before_what_met_silence(receiver: Receiver) -> None:
    """After a restart the only row there is poison, and rests the sink ever longer. Whatever comes is told at its next
    look.
    """

    async def use(world: World) -> None:
        silent = Silent(receiver)
        relay = over_http(world, receiver)
        await relay.begin(world.store, world.health)
        poison = await world.submit()
        silent.poison.add(poison)
        for _ in range(10):
            await world.round(relay)
            world.clock.advance(LONGEST_REST_SECONDS)
        await world.round(relay)
        world.clock.advance(2 * REST_SECONDS)
        well = await world.submit()
        asked = silent.told(poison)
        world.clock.advance(LONGEST_REST_SECONDS)
        await world.round(relay)
        assert silent.told(well) == 1
        assert silent.told(poison) == asked
        world.clock.advance(REST_SECONDS)
        await world.round(relay)
        assert await tries(world, poison) == 1

    on_each("memory", use)


def test_several_poison_rows_do_not_keep_a_sink_from_being_found_well(receiver: Receiver) -> None:
    async def use(world: World) -> None:
        silent = Silent(receiver)
        relay = over_http(world, receiver)
        await relay.begin(world.store, world.health)
        for _ in range(5):
            silent.poison.add(await world.submit())
        for _ in range(8):
            await world.round(relay)
            world.clock.advance(LONGEST_REST_SECONDS)
        well = await world.submit()
        await world.round(relay)
        assert silent.told(well) == 1

    on_each("memory", use)


@pytest.mark.soak
def test_a_crowd_of_poison_rows_is_told_some_at_a_time(receiver: Receiver) -> None:
    async def use(world: World) -> None:
        silent = Silent(receiver)
        relay = over_http(world, receiver)
        await relay.begin(world.store, world.health)
        for _ in range(2 * APART):
            silent.poison.add(await world.submit())
        await world.submit()
        await world.round(relay)
        assert {row.tries for row in await world.rows()} == {1}
        world.clock.advance(2)
        await world.round(relay)
        assert sorted(row.tries for row in await world.rows()) == [1] * APART + [2] * APART
        for _ in range(3 * TRIES):
            world.clock.advance(timedelta(hours=1))
            await world.round(relay)
        assert len(await world.rows(OutboxState.DEAD)) == 2 * APART

    on_each("memory", use)


@STORES
def test_several_relays_and_one_that_is_started_anew_come_to_the_same_end(store: str, receiver: Receiver) -> None:
    async def use(world: World) -> None:
        silent = Silent(receiver)
        relays = [over_http(world, receiver), over_http(world, receiver)]
        await relays[0].begin(world.store, world.health)
        poison = await world.submit()
        silent.poison.add(poison)
        for number in range(10 * TRIES):
            if number == TRIES:
                relays[0] = over_http(world, receiver)
            world.clock.advance(timedelta(hours=1))
            await asyncio.gather(*(world.round(relay) for relay in relays))
            await world.submit()
            await asyncio.gather(*(world.round(relay) for relay in relays))
            if await world.rows(OutboxState.DEAD):
                return
        raise AssertionError("it never died")

    on_each(store, use)


@STORES
def test_what_a_receiver_that_is_gone_for_good_was_to_be_told_ends_dead(store: str) -> None:
    async def use(world: World) -> None:
        hook = world.channel()
        hook.raises = ConnectionRefusedError("nobody there")
        relay = world.relay(HOOK)
        await relay.begin(world.store, world.health)
        old = {await world.lived() for _ in range(120)}
        await world.round(relay)
        world.clock.advance(timedelta(seconds=UNTOLD_SECONDS))
        young = await world.submit()
        for _ in range(5):
            await world.round(relay)
            world.clock.advance(LONGEST_REST_SECONDS)
        dead = await world.rows(OutboxState.DEAD)
        assert len(dead) == 3 * len(old)
        assert {row.task_id for row in dead} == old
        assert {row.last_error for row in dead} == {"ConnectionRefusedError: nobody there"}
        assert [row.task_id for row in await world.rows(OutboxState.PENDING)] == [young]
        assert len(world.of(RowDead)) + sum(fact.number for fact in world.of(RowsDead)) == len(dead)
        hook.raises = None
        assert await world.store.requeue_outbox([row.id for row in dead]) == len(dead)
        world.clock.advance(LONGEST_REST_SECONDS)
        await world.drain(relay)
        assert await world.rows() == []
        assert len(hook.rows) == len(dead) + 1

    on_each(store, use)


def test_rows_that_are_old_because_no_relay_ran_are_not_given_up_for_an_hours_outage() -> None:
    async def use(world: World) -> None:
        await world.store.declare_sink(HOOK)
        await world.submit()
        world.clock.advance(timedelta(seconds=3 * UNTOLD_SECONDS))
        hook = world.channel()
        hook.raises = ConnectionRefusedError("nobody there")
        relay = world.relay()
        for _ in range(60):
            await world.round(relay)
            world.clock.advance(timedelta(minutes=1))
        assert await world.rows(OutboxState.DEAD) == []
        for _ in range(int(GONE_SECONDS) // 60):
            await world.round(relay)
            world.clock.advance(timedelta(minutes=1))
        assert len(await world.rows(OutboxState.DEAD)) == 1

    on_each("memory", use)


def test_wake_ups_do_not_die_of_old_age() -> None:
    async def use(world: World) -> None:
        relay = world.relay(NewSink(name="wake", url="sqs://wake-ups", effect=Effect.WAKE))
        await relay.begin(world.store, world.health)
        await world.submit()
        wake = world.channel("wake")
        wake.answer = lambda _row: unreached("nobody there")
        for _ in range(40):
            await world.round(relay)
            world.clock.advance(timedelta(hours=12))
        (row,) = await world.rows()
        assert (row.state, row.tries) == (OutboxState.PENDING, 0)

    on_each("memory", use)


@STORES
def test_what_a_subscriber_whose_code_is_gone_was_to_be_told_ends_dead(store: str) -> None:
    async def use(world: World) -> None:
        def opening(target: NewSink) -> Channel:
            raise NotSupported("the code of this process has no such subscriber")

        await world.store.declare_sink(GONE)
        relay = world.relay(opening=opening)
        await world.round(relay)
        for _ in range(120):
            await world.lived()
        world.clock.advance(timedelta(seconds=UNTOLD_SECONDS - 1))
        young = await world.submit()
        await world.round(relay)
        assert await world.rows(OutboxState.DEAD) == []
        world.clock.advance(LEFT_SECONDS)
        await world.round(relay)
        dead = await world.rows(OutboxState.DEAD)
        assert len(dead) == 360
        assert {row.last_error for row in dead} == {"the code of this process has no such subscriber"}
        assert [row.task_id for row in await world.rows(OutboxState.PENDING)] == [young]
        (fact,) = world.of(RowsDead)
        assert fact.number == 360
        serving = world.relay()
        assert await world.store.requeue_outbox([row.id for row in dead]) == 360
        world.clock.advance(LEFT_SECONDS)
        await world.round(relay)
        assert await world.rows(OutboxState.DEAD) == [], "requeued rows wait for those who can serve them"
        await world.drain(serving)
        assert len(world.channel(GONE.name).rows) == 361

    on_each(store, use)
