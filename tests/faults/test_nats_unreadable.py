"""A message of the NATS store that cannot be understood stops who would need it, says which it is, and loses nothing.

Written by a newer Holdfast, or by hand: damage to a server's files does not look so (test_nats_damage.py).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from holdfast import Holdfast
from holdfast.errors import StoreUnavailable
from holdfast.events.facts import StoreAway
from holdfast.model.transition import Change
from holdfast.stores.nats.images import VERSION, decode_image, encode
from holdfast.stores.nats.store import NatsStore
from tests.faults.checks import check_whole
from tests.faults.load import declare
from tests.faults.nats_support import opened, place
from tests.jetstream_admin import Ask, asked
from tests.runtime.support import Crew, ended
from tests.stores.nats_support import Place as Handles
from tests.stores.nats_support import completed, end, found, in_place, ledger_of, put, submitted
from tests.stores.postgres_support import request

GARBAGE = b"\xc1 what is this"


async def newer(store: NatsStore, subject: str) -> bytes:
    """The same image, as a version that is yet to come would write it."""
    (one,) = (await found(store, subject)).values()
    return encode(msgspec.structs.replace(decode_image(one.body), version=VERSION + 1))


async def removed(place: Handles, store: NatsStore, seq: int) -> None:
    """As an operator does it."""

    async def work(ask: Ask) -> None:
        await ask(f"STREAM.MSG.DELETE.{ledger_of(store).stream.name}", seq=seq)

    await asyncio.to_thread(asked, place.url, work)


async def refused(verb: Callable[[], Awaitable[object]], subject: str, seq: int) -> None:
    with pytest.raises(StoreUnavailable, match=rf"message {seq} under {re.escape(subject)} cannot be read.*doctor"):
        await verb()


@pytest.mark.parametrize("kind", ["live", "newer", "queue", "tally", "worker"])
def test_what_is_followed_and_not_understood_stops_everything_until_it_is_gone(kind: str) -> None:
    """On a handle that follows already, and on one that begins. Nothing else of what was written with it is missed."""

    async def work(handles: Handles) -> None:
        store, other = handles.open(), handles.open()
        subjects = ledger_of(store).subjects
        (strange, *rest) = await submitted(store, 3)
        await other.reap(limit=1, actor="nobody")
        live = subjects.live("default", strange)
        names = {
            "queue": subjects.queue("default"),
            "tally": subjects.tally("x"),
            "worker": subjects.table("worker", "w"),
        }
        subject = names.get(kind, live)
        was = (await found(store, subject)).get(subject)
        seq = await put(store, subject, await newer(store, subject) if kind == "newer" else GARBAGE)
        rest += await submitted(handles.open(), 2)
        for one in (store, other, handles.open()):
            await refused(lambda: one.claim(request(limit=10)), subject, seq)  # noqa: B023
            await refused(one.queues, subject, seq)
            says = {name: (well, words) for name, well, words in await one.check()}
            assert says["messages"][0] is False
            assert f"{seq} ({subject})" in says["messages"][1]
        if was is not None:
            await put(store, subject, was.body)
        else:
            await removed(handles, store, seq)
        for one in (store, other):
            (claim,) = (await one.claim(request())).claims
            assert claim.task_id in (strange, *rest)
            await ledger_of(one).fresh()
        await store.reap(limit=1, actor="nobody")
        await check_ended(store, [strange, *rest])

    in_place(work)


async def check_ended(store: NatsStore, task_ids: list[str]) -> None:
    await store.amend(Change.RELEASE, task_ids, actor="operator")
    await end(store, task_ids)
    await check_whole(store, task_ids)


def test_a_damaged_task_that_is_given_up_holds_up_nobody() -> None:
    """Its message is removed by hand, of which nobody is told; the repair removes what is left of it."""

    async def work(handles: Handles) -> None:
        store = handles.open()
        (strange, *rest) = await submitted(store, 3)
        subject = ledger_of(store).subjects.live("default", strange)
        seq = await put(store, subject, GARBAGE)
        await refused(lambda: store.claim(request(limit=10)), subject, seq)
        await removed(handles, store, seq)
        assert {claim.task_id for claim in (await store.claim(request(limit=10))).claims} == set(rest)
        assert {one.what for one in await store.repair()} == {"events"}
        await check_ended(store, rest)

    in_place(work)


def test_an_end_that_is_not_understood_stops_only_who_asks_for_it() -> None:
    async def work(handles: Handles) -> None:
        store = handles.open()
        (strange, other) = await completed(store, 2)
        (queued,) = await submitted(store)
        subject = ledger_of(store).subjects.end("completed", "default", strange)
        seq = await put(store, subject, GARBAGE)
        await refused(lambda: store.get(strange), subject, seq)
        await refused(store.repair, subject, seq)
        assert await store.get(other) is not None
        await end(store, [queued])

    in_place(work)


def test_a_worker_says_what_it_cannot_read_and_goes_on_when_it_can() -> None:
    async def write(url: str, body: bytes) -> int:
        async with opened(url) as store:
            await ledger_of(store).ready()
            return await put(store, ledger_of(store).subjects.table("token", "t"), body)

    with place() as url, Holdfast(url) as app:
        declare(app)
        with Crew(app) as crew:
            assert ended(app.enqueue("plain")).status == "completed"
            seq = asyncio.run(write(url, GARBAGE))
            assert f"message {seq} under" in crew.wait_for(StoreAway).error
            task = app.enqueue("plain")
            asyncio.run(write(url, b""))
            assert ended(task).status == "completed"
    assert crew.raised is None
