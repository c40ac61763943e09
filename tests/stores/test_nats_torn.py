"""Tasks of the NATS store with two homes, as a torn step leaves them: `repair()` leaves them one, and the right one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
import pytest

from holdfast import ids
from holdfast.clock import to_micros
from holdfast.errors import StoreUnavailable
from holdfast.model.claim import Claim, ClaimRequest
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Settled
from holdfast.stores.nats.images import Fact, Image, decode_image, encode, sheets_of
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.nats.wire import Message
from tests.faults.checks import check_whole
from tests.faults.nats_support import opened
from tests.jetstream_admin import Ask, asked, connected
from tests.jetstream_servers import Servers, fresh_prefix, fresh_single
from tests.stores.nats_support import Place, counts, found, in_place, ledger_of, put, submitted


async def running(store: NatsStore) -> Claim:
    (task_id,) = await submitted(store)
    asked = ClaimRequest(worker_id="w", claim_id=ids.token(), task_id=task_id)
    (claim,) = (await store.claim(asked)).claims
    return claim


async def half_ended(store: NatsStore, claim: Claim, *, sheet: bool = False) -> list[Message]:
    """What stands first in the step that completes it: its image under `end`, and the event, alone or on a sheet."""
    subjects = ledger_of(store).subjects
    (live,) = (await found(store, subjects.live_anywhere(claim.task_id))).values()
    image: Image = decode_image(live.body)
    now = to_micros(await store.now())
    ended = msgspec.structs.replace(
        image,
        born=image.born or live.seq,
        noted=image.noted + 1,
        status=TaskStatus.COMPLETED,
        finished_at=now,
        claimed_by=None,
        token=None,
        lease_expires_at=None,
        settled_token=claim.lease.token,
        settled_as="completed",
        settled_status=TaskStatus.COMPLETED,
        result='"half"',
        sheets=sheets_of(image, live.seq),
        sheet=-1 if sheet else 0,
    )
    fact = Fact(claim.task_id, now, None, "task.completed", "w", '{"attempt": 1}')
    event = Message(subjects.event(claim.task_id, ended.noted), encode(fact))
    if sheet:
        event = Message(subjects.sheet("byhand", 0), encode([fact]))
    return [Message(subjects.end("completed", image.head.queue, claim.task_id), encode(ended)), event]


async def repaired(place: Place) -> dict[str, int]:
    """By a handle of its own; said before and done alike, and once is enough."""
    store = place.open()
    told = await store.repair(dry_run=True)
    assert await store.repair() == told
    assert await place.open().repair() == []
    return {one.what: one.number for one in told}


def test_an_end_without_its_event_is_taken_back() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        claim = await running(store)
        (end, _) = await half_ended(store, claim)
        await put(store, end.subject, end.body)
        assert (await counts(store))["default"] == {"running": 1}
        task = await store.get(claim.task_id)
        assert task is not None
        assert task.status == "running", "as all who work see it"
        assert await repaired(place) == {"homes": 1}
        (told,) = await store.settle([Settlement(claim.lease, Completed("1"))])
        assert isinstance(told, Settled)
        (task,) = await check_whole(store, [claim.task_id])
        assert task.result == 1

    in_place(work)


@pytest.mark.parametrize("sheet", [False, True])
def test_an_end_that_is_whole_stays_and_the_live_image_that_came_back_goes(sheet: bool) -> None:
    """Its tally has counted it before, or is made to now."""

    async def work(place: Place) -> None:
        store = place.open()
        claim = await running(store)
        await ledger_of(store).wire.write(await half_ended(store, claim, sheet=sheet))
        assert await repaired(place) == {"homes": 1, "tally": 1, "heads": 1}
        for reader in (store, place.open()):
            (task,) = await check_whole(reader, [claim.task_id])
            assert (task.status, task.result) == ("completed", "half")
            assert (await reader.claim(ClaimRequest(worker_id="w", claim_id=ids.token()))).claims == []

    in_place(work)


def test_of_two_ends_the_later_stays() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        claim = await running(store)
        (end, event) = await half_ended(store, claim)
        await put(store, end.subject.replace(".completed.", ".canceled."), end.body)
        (told,) = await store.settle([Settlement(claim.lease, Completed("1"))])
        assert isinstance(told, Settled)
        assert await repaired(place) == {"homes": 1}
        (task,) = await check_whole(store, [claim.task_id])
        assert (task.status, task.result) == ("completed", 1)
        assert event.subject in await found(store, event.subject)

    in_place(work)


def test_a_task_that_moves_while_it_is_mended_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """1. It is seen in two places. 2. Its worker ends it. 3. The repair writes nothing."""

    async def work(place: Place) -> None:
        store, other = place.open(), place.open()
        claim = await running(store)
        (end, _) = await half_ended(store, claim)
        await put(store, end.subject, end.body)
        write = ledger_of(other).wire.write
        tried: list[Sequence[Message]] = []

        async def late(messages: Sequence[Message], *given: Any) -> int:
            if not tried and any(one.subject == end.subject for one in messages):
                tried.append(messages)
                (told,) = await store.settle([Settlement(claim.lease, Completed("1"))])
                assert isinstance(told, Settled)
            return await write(messages, *given)

        monkeypatch.setattr(ledger_of(other).wire, "write", late)
        await other.repair()
        assert tried
        (task,) = await check_whole(store, [claim.task_id])
        assert task.result == 1

    in_place(work)


# By a server that is full: it stores a part of a step, and refuses the rest


@pytest.fixture
def small() -> Iterator[Servers]:
    with fresh_single(max_file_store="2MB") as server:
        yield server


async def filled(url: str, filler: str, free: int) -> None:
    """Up to so many bytes."""

    async def make(ask: Ask) -> None:
        await ask(f"STREAM.CREATE.{filler}", name=filler, subjects=[f"{filler}.>"], storage="file", num_replicas=1)

    async def used(ask: Ask) -> int:
        return int((await ask("INFO"))["storage"])

    asked(url, make)
    async with connected(url) as client:
        while (room := (2 << 20) - asked(url, used) - free) > 200:
            await client.request(f"{filler}.{ids.nonce()}", b"x" * min(50_000, room - 100), 10)


def emptied(url: str, filler: str) -> None:
    async def work(ask: Ask) -> None:
        await ask(f"STREAM.DELETE.{filler}")

    asked(url, work)


@pytest.mark.soak
def test_settles_that_a_full_server_has_torn_are_taken_back(small: Servers) -> None:
    """Wherever it tears them: nobody was told that they were done, so they are done again, as a whole."""

    async def use(url: str) -> None:
        torn = 0
        async with opened(url, timeout=1.0) as store:
            made: list[str] = []
            for free in range(2_000, 26_000, 2_000):
                claims = [await running(store) for _ in range(10)]
                made += [claim.task_id for claim in claims]
                ends = [Settlement(claim.lease, Completed('"' + "x" * 1000 + '"')) for claim in claims]
                await filled(url, "filler", free)
                try:
                    await store.settle(ends)
                except StoreUnavailable:
                    emptied(url, "filler")
                    done = {one.what: one.number for one in await store.repair()}
                    torn += done.get("homes", 0)
                    assert set(done) <= {"homes"}
                    assert await store.repair(dry_run=True) == []
                    assert (await counts(store))["default"]["running"] == 10
                    assert all(isinstance(one, Settled) for one in await store.settle(ends))
                else:
                    emptied(url, "filler")
            await check_whole(store, made)
            assert torn

    asyncio.run(use(small.url(fresh_prefix())))
