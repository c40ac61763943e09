"""Several changes of one process under way at once on NATS: who waits for whom, and what a refused one leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pytest
from nats.aio.msg import Msg

from holdfast import ids
from holdfast.errors import LeaseLost, TaskCompleted
from holdfast.model.claim import Claim, Claimed, ClaimRequest, Lease
from holdfast.model.outcome import Completed, Settlement, Snoozed
from holdfast.model.query import TaskFilter
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change, Settled
from holdfast.stores.nats.reader import Found
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.nats.wire import Message
from tests.stores.nats_support import Place, counts, end, in_place, ledger_of, submitted

if TYPE_CHECKING:
    from nats.aio.msg import Msg


class Gate:
    """Holds back what is written about a task, until it is opened; everything else goes to the server at once."""

    def __init__(self, store: NatsStore, task_id: str) -> None:
        self.held = asyncio.Event()
        self._opened = asyncio.Event()
        wire = ledger_of(store).wire
        write = wire.write

        async def gated(messages: Sequence[Message], named: Callable[[str], None] = lambda _: None) -> int:
            if not self._opened.is_set() and any(task_id in message.subject for message in messages):
                self.held.set()
                await self._opened.wait()
            return await write(messages, named)

        wire.write = gated  # type: ignore[method-assign]

    def open(self) -> None:
        self._opened.set()


async def claimed(store: NatsStore, limit: int = 1, *, queue: str = "default") -> list[Claim]:
    request = ClaimRequest(worker_id="w", claim_id=ids.token(), limit=limit, queues=(queue,))
    return list((await store.claim(request)).claims)


def completion(claim: Claim) -> Settlement:
    return Settlement(claim.lease, Completed("null"))


def snooze(claim: Claim) -> Settlement:
    return Settlement(claim.lease, Snoozed(60))


async def goes_on(*tasks: asyncio.Task[object]) -> bool:
    """Whether any of them ends although something is held."""
    done, _ = await asyncio.wait(tasks, timeout=0.3)
    return bool(done)


def test_a_claim_and_a_settle_are_under_way_at_once() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        await submitted(store, 2)
        (first,) = await claimed(store)
        gate = Gate(store, first.lease.task_id[8:])
        settle = asyncio.create_task(store.settle([completion(first)]))
        await gate.held.wait()
        (second,) = await claimed(store)
        assert second.lease.task_id != first.lease.task_id
        assert not settle.done()
        gate.open()
        assert [type(one) for one in await settle] == [Settled]
        assert await counts(store) == {"default": {"completed": 1, "running": 1}}

    in_place(work)


def test_what_names_a_task_under_way_waits_for_it() -> None:
    """A second settle is answered as the first one is, and a heartbeat learns that the task has ended."""

    async def work(place: Place) -> None:
        store = place.open()
        await submitted(store)
        (claim,) = await claimed(store)
        gate = Gate(store, claim.lease.task_id[8:])
        first = asyncio.create_task(store.settle([completion(claim)]))
        await gate.held.wait()
        again = asyncio.create_task(store.settle([completion(claim)]))
        beat = asyncio.create_task(store.extend([claim.lease]))
        canceled = asyncio.create_task(store.amend(Change.CANCEL, [claim.lease.task_id], actor="me"))
        assert not await goes_on(first, again, beat, canceled)
        gate.open()
        assert await again == await first
        assert [type(one) for one in await beat] == [LeaseLost]
        assert [type(one) for one in await canceled] == [TaskCompleted]

    in_place(work)


def test_an_answer_about_a_task_under_way_waits_although_it_comes_with_another() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        await submitted(store, 2)
        first, second = await claimed(store, 2)
        gate = Gate(store, first.lease.task_id[8:])
        settle = asyncio.create_task(store.settle([snooze(first)]))
        await gate.held.wait()
        both = asyncio.create_task(store.settle([snooze(first), snooze(second)]))
        assert not await goes_on(both)
        gate.open()
        assert [type(one) for one in await both] == [Settled] * 2
        await settle
        assert await counts(store) == {"default": {"queued": 2}}

    in_place(work)


def test_a_refused_change_gives_back_only_its_own() -> None:
    """Somebody else takes the task first, while another claim of this handle is acknowledged."""

    async def work(place: Place) -> None:
        store, rival = place.open(), place.open()
        contested, free = await submitted(store, 2)
        gate = Gate(store, contested[8:])
        claiming = asyncio.create_task(claimed(store))
        await gate.held.wait()
        (other,) = await claimed(store)
        assert other.lease.task_id == free
        taken = await rival.claim(ClaimRequest(worker_id="rival", claim_id=ids.token(), task_id=contested))
        assert [one.lease.task_id for one in taken.claims] == [contested]
        gate.open()
        assert await claiming == []
        assert await counts(store) == {"default": {"running": 2}}
        for claim, owner in ((other, store), (taken.claims[0], rival)):
            assert [type(one) for one in await owner.settle([completion(claim)])] == [Settled]
        assert await counts(store) == await counts(rival) == {"default": {"completed": 2}}

    in_place(work)


def test_nothing_to_claim_is_not_said_of_what_is_only_planned() -> None:
    async def work(place: Place) -> None:
        store, rival = place.open(), place.open()
        (task_id,) = await submitted(store)
        gate = Gate(store, task_id[8:])
        first = asyncio.create_task(claimed(store))
        await gate.held.wait()
        second = asyncio.create_task(claimed(store))
        assert not await goes_on(second)
        taken = await rival.claim(ClaimRequest(worker_id="rival", claim_id=ids.token()))
        gate.open()
        assert [len(taken.claims), await first, await second] == [1, [], []]

    in_place(work)


def test_a_place_below_a_limit_is_free_when_the_settle_is_acknowledged() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        await submitted(store, 2, queue="narrow")
        await store.limit("narrow", {"max_running": 1})
        (first,) = await claimed(store, queue="narrow")
        gate = Gate(store, first.lease.task_id[8:])
        settle = asyncio.create_task(store.settle([completion(first)]))
        await gate.held.wait()
        second = asyncio.create_task(claimed(store, queue="narrow"))
        assert not await goes_on(second)
        gate.open()
        assert len(await second) == 1
        await settle
        assert await counts(store) == {"narrow": {"completed": 1, "running": 1}}

    in_place(work)


def test_counts_show_nothing_that_is_only_planned() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        (task_id,) = await submitted(store)
        gate = Gate(store, task_id[8:])
        claiming = asyncio.create_task(claimed(store))
        await gate.held.wait()
        looking = asyncio.create_task(store.queues())
        assert not await goes_on(looking)
        gate.open()
        assert len(await claiming) == 1
        assert (await looking)[0].counts == {"running": 1}

    in_place(work)


def test_a_page_shows_nothing_that_is_only_planned() -> None:
    """A claim of two is refused because somebody else has ended one of them: the other was queued all the time."""

    async def work(place: Place) -> None:
        store, rival = place.open(), place.open()
        contested, queued = await submitted(store, 2)
        gate = Gate(store, queued[8:])
        claiming = asyncio.create_task(claimed(store, 2))
        await gate.held.wait()
        await end(rival, [contested])
        paging = asyncio.create_task(store.page(TaskFilter(status=TaskStatus.QUEUED)))
        assert not await goes_on(paging)
        claiming.cancel()
        assert [task.id for task in await paging] == [queued]

    in_place(work)


def test_many_claim_and_settle_at_once_and_each_task_ends_once() -> None:
    async def work(place: Place) -> None:
        stores = [place.open(), place.open()]
        made = set(await submitted(stores[0], 300))
        ended: list[str] = []

        async def worker(store: NatsStore) -> None:
            while claims := await claimed(store, 7):
                answers = await store.settle([completion(claim) for claim in claims])
                assert [type(one) for one in answers] == [Settled] * len(claims)
                ended.extend(claim.lease.task_id for claim in claims)

        await asyncio.gather(*(worker(store) for store in stores for _ in range(4)))
        assert sorted(ended) == sorted(made)
        for store in stores:
            assert await counts(store) == {"default": {"completed": 300}}

    in_place(work)


def test_a_claim_sent_twice_at_once_is_one_claim() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        await submitted(store, 3)
        request = ClaimRequest(worker_id="w", claim_id=ids.token(), limit=2)
        answers: list[Claimed] = await asyncio.gather(*(store.claim(request) for _ in range(3)))
        assert len({tuple(one.lease for one in answer.claims) for answer in answers}) == 1
        assert await counts(store) == {"default": {"queued": 1, "running": 2}}

    in_place(work)


def test_what_is_written_after_everything_was_read_anew_is_seen() -> None:
    """It was planned before; the replica that has planned it is not there any more."""

    async def work(place: Place) -> None:
        store = place.open()
        await submitted(store)
        (claim,) = await claimed(store)
        gate = Gate(store, claim.lease.task_id[8:])
        settle = asyncio.create_task(store.settle([completion(claim)]))
        await gate.held.wait()
        ledger_of(store).following.feed.forget()
        await ledger_of(store).fresh()
        gate.open()
        assert [type(one) for one in await settle] == [Settled]
        assert await counts(store) == {"default": {"completed": 1}}

    in_place(work)


def test_a_change_that_cannot_be_written_down_leaves_nothing() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        await submitted(store)
        (claim,) = await claimed(store)
        with pytest.raises(OverflowError):
            await store.settle([Settlement(claim.lease, Snoozed(1e18))])
        assert await counts(store) == {"default": {"running": 1}}
        assert [type(one) for one in await store.settle([completion(claim)])] == [Settled]

    in_place(work)


def test_a_task_that_ends_while_it_is_looked_for_is_not_brought_back() -> None:
    """The replica is behind: a task that it does not know is read, and has ended by the time the answer is there."""

    async def work(place: Place) -> None:
        store, other = place.open(), place.open()
        ledger = ledger_of(store)
        came, homes, held, late = ledger.following.feed._came, ledger.homes, list["Msg"](), False

        async def perhaps(message: Msg) -> None:
            if late:
                held.append(message)
            else:
                await came(message)

        async def overtaken(task_ids: Sequence[str]) -> dict[str, Found]:
            nonlocal late
            found = await homes(task_ids)
            if late:
                late = False
                await other.settle([completion(claim)])
                for message in held:
                    await came(message)
                await ledger.fresh()
            return found

        ledger.following.feed._came = perhaps  # type: ignore[method-assign]
        ledger.homes = overtaken  # type: ignore[method-assign]
        await counts(store)
        late = True
        await submitted(other)
        (claim,) = await claimed(other)
        stranger = Lease(claim.lease.task_id, claim.lease.attempt, "another")
        assert [type(one) for one in await store.extend([stranger])] == [LeaseLost]
        assert await counts(store) == {"default": {"completed": 1}}

    in_place(work)


def test_a_worker_that_leaves_gives_back_more_than_a_step_can_hold() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        for _ in range(3):
            await submitted(store, 450)
        held = [claim for _ in range(3) for claim in await claimed(store, 450)]
        assert len(held) == 1350
        await store.leave("w", [claim.lease for claim in held[:600]])
        assert len(await store.reap(limit=2000, actor="reaper")) == 600
        await store.leave("w")
        assert len(await store.reap(limit=2000, actor="reaper")) == 750
        assert "running" not in (await counts(store))["default"]

    in_place(work)


class Deaf:
    """Keeps from a handle what its feed brings, until it hears again."""

    def __init__(self, store: NatsStore) -> None:
        self._feed = ledger_of(store).following.feed
        self._came = self._feed._came
        self._kept: list[Msg] | None = []
        self._feed._came = self._keep  # type: ignore[method-assign]

    async def _keep(self, message: Msg) -> None:
        if self._kept is None:
            await self._came(message)
        else:
            self._kept.append(message)

    async def listen_again(self) -> None:
        """As after a connection that broke."""
        await self._feed._again()

    async def hear(self) -> None:
        kept, self._kept = self._kept or [], None
        for message in kept:
            await self._came(message)


def test_steps_of_our_own_are_passed_over_although_the_feed_began_again_between_them() -> None:
    """1. A claim is acknowledged, and the feed has not brought it. 2. The feed begins again. 3. The task is completed.

    4. The feed brings the claim: a task that nobody holds any more must not come back.
    """

    async def work(place: Place) -> None:
        store = place.open()
        await submitted(store)
        await store.queues()
        deaf = Deaf(store)
        await deaf.listen_again()
        (claim,) = await claimed(store)
        await deaf.listen_again()
        await store.settle([completion(claim)])
        await deaf.hear()
        assert await counts(store) == {"default": {"completed": 1}}
        assert not ledger_of(store).replica.records

    in_place(work)
