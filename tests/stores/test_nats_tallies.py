"""How many tasks have ended is told by tallies, one per handle: they stay exact, few, and nobody depends on his own."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast.model.query import Retention
from holdfast.model.transition import Change
from holdfast.stores.nats import messages, tallies
from holdfast.stores.nats.store import NatsStore
from tests.stores.nats_support import Place, completed, counts, found, in_place, ledger_of, put, until


async def _names(place: Place) -> set[str]:
    store = place.open()
    await store.queues()
    return set(await found(store, ledger_of(store).subjects.tallies))


def test_old_tallies_are_merged_by_upkeep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tallies, "KEPT", 2)

    async def work(place: Place) -> None:
        for _ in range(4):
            await completed(place.open())
        upkeep = place.open()
        await upkeep.prune(Retention(), limit=10)
        assert len(await _names(place)) == 4, "none is a day old"
        monkeypatch.setattr(tallies.old_tallies, "__kwdefaults__", {"age": timedelta(0)})
        await upkeep.prune(Retention(), limit=10)
        assert len(await _names(place)) == 1
        assert await counts(upkeep) == await counts(place.open()) == {"default": {"completed": 4}}

    in_place(work)


def test_a_few_tallies_are_left_alone() -> None:
    async def work(place: Place) -> None:
        await completed(place.open())
        store = place.open()
        await store.queues()
        assert await tallies.old_tallies(ledger_of(store), age=timedelta(0)) == []

    in_place(work)


def own_tally(store: NatsStore) -> str:
    """The subject under which it counts."""
    ledger = ledger_of(store)
    return ledger.subjects.tally(ledger.besides.own_tally()[0])


@pytest.mark.parametrize("ttl", ["60s", "1s"])
def test_a_handle_whose_tally_was_merged_goes_on(monkeypatch: pytest.MonkeyPatch, ttl: str) -> None:
    """Also where the empty message in its place has vanished, and where it has seen that message or not."""
    monkeypatch.setattr(messages, "MARKER_TTL", ttl)

    async def work(place: Place) -> None:
        idle, other = place.open(), place.open()
        (task_id,) = await completed(idle)
        counted_as = own_tally(idle)
        await other.queues()
        await tallies.merge(ledger_of(other), list(ledger_of(other).replica.tallies))
        if ttl == "1s":
            await _vanished(place, counted_as)
        await completed(idle, 2)
        assert await counts(place.open()) == await counts(idle) == {"default": {"completed": 3}}
        await idle.amend(Change.DELETE, [task_id], actor="me")
        assert await counts(place.open()) == {"default": {"completed": 2}}
        assert len(await _names(place)) == 2

    in_place(work)


async def _vanished(place: Place, subject: str) -> None:
    store = place.open()
    await store.queues()

    async def gone() -> bool:
        return not await ledger_of(store).reader.last([subject])

    await until(gone)


def test_a_handle_whose_tally_was_taken_away_by_hand_goes_on() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        await completed(store)
        ledger = ledger_of(store)
        await ledger.reader.purge(own_tally(store))
        await completed(store)
        assert await counts(place.open()) == {"default": {"completed": 1}}, "the other is not told any more"

    in_place(work)


def test_two_who_merge_at_once_lose_and_double_nothing() -> None:
    async def work(place: Place) -> None:
        for _ in range(3):
            await completed(place.open())
        mergers, busy = [place.open(), place.open()], place.open()
        for store in mergers:
            await store.queues()
        names = list(ledger_of(mergers[0]).replica.tallies)
        await asyncio.gather(completed(busy, 5), *(tallies.merge(ledger_of(one), names) for one in mergers))
        assert await counts(place.open()) == {"default": {"completed": 8}}

    in_place(work)


def test_a_tally_that_comes_to_nothing_is_still_its_own() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        for _ in range(2):
            await store.amend(Change.DELETE, await completed(store), actor="me")
        assert len(await _names(place)) == 1
        assert await counts(place.open()) == {"default": {}}

    in_place(work)


def test_a_mark_of_a_repair_makes_everybody_read_anew() -> None:
    """What was removed without a message is known only to those who read all of it."""

    async def work(place: Place) -> None:
        store, other = place.open(), place.open()
        await completed(store, 2)
        assert await counts(other) == {"default": {"completed": 2}}
        ledger = ledger_of(store)
        await ledger.reader.purge(own_tally(store))
        assert await counts(other) == {"default": {"completed": 2}}, "nobody has told it"
        await put(store, ledger.subjects.mark("repaired"), b"", ttl="60s")

        async def told() -> bool:
            return await counts(other) == {"default": {}}

        await until(told)

    in_place(work)


def test_who_has_merged_tallies_knows_its_own() -> None:
    """Its next end is not refused, and nothing is read anew."""

    async def work(place: Place) -> None:
        store = place.open()
        await completed(place.open(), 2)
        await completed(store)
        ledger = ledger_of(store)
        await ledger.fresh()
        others = [name for name in ledger.replica.tallies if name != ledger.besides.own_tally()[0]]
        await tallies.merge(ledger, others)
        assert await _names(place) == {own_tally(store)}
        there = (await ledger.reader.last([own_tally(store)]))[own_tally(store)]
        assert ledger.besides.own_tally()[2] == there.seq
        await completed(store)
        assert await counts(store) == {"default": {"completed": 4}}

    in_place(work)
