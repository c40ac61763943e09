"""A first look at a NATS store that is interrupted: it goes on where it was, and what was told meanwhile counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.stores.nats.reader import Found
from holdfast.stores.nats.store import NatsStore
from tests.stores.nats_support import Place, counts, end, in_place, ledger_of, submitted, until

if TYPE_CHECKING:
    from nats.aio.msg import Msg


async def submitted_long_ago(store: NatsStore, count: int) -> list[str]:
    """The bulletins that told of them are gone."""
    made = await submitted(store, count)
    ledger = ledger_of(store)
    await ledger.reader.purge(f"{ledger.subjects.prefix}.r.bulletin.*")
    return made


def cut(store: NatsStore, after: int) -> None:
    """Nothing comes of its first consumer after so many messages."""
    feed = ledger_of(store).following.feed
    came, number, gone = feed._came, 0, ""

    async def counted(message: Msg) -> None:
        nonlocal number, gone
        number += 1
        if number == after:
            feed.disturb()
            gone = feed._name
        if feed._name != gone:
            await came(message)

    feed._came = counted  # type: ignore[method-assign]


def test_a_first_look_that_is_interrupted_goes_on() -> None:
    """Nothing has to be asked for by its name, which takes a hundred times as long."""

    async def work(place: Place) -> None:
        store, other = place.open(), place.open()
        await submitted_long_ago(other, 1000)
        cut(store, 300)
        reader, asked = ledger_of(store).reader, list[str]()
        missed = reader.missed

        async def noted(names: Sequence[str], lost: set[str] | None = None) -> list[Found]:
            asked.extend(names)
            return await missed(names, lost)

        reader.missed = noted  # type: ignore[method-assign]
        assert await counts(store) == {"default": {"queued": 1000}}
        assert asked == []
        await submitted(other)
        assert await counts(store) == {"default": {"queued": 1001}}

    in_place(work)


def test_a_task_that_ends_while_it_is_asked_for_by_its_name_is_not_brought_back() -> None:
    async def work(place: Place) -> None:
        store, other = place.open(), place.open()
        (task_id,) = await submitted_long_ago(other, 1)
        ledger = ledger_of(store)
        seen, missed = ledger.following.feed._seen, ledger.reader.missed

        def passed_over(subject: str, body: bytes, seq: int) -> None:
            if not ledger.subjects.is_live(subject):
                seen(subject, body, seq)

        async def as_it_was(names: Sequence[str], lost: set[str] | None = None) -> list[Found]:
            found = await missed(names, lost)
            if names:
                ledger.following.feed._seen = seen
                await end(other, [task_id])
                await until(has_seen)
            return found

        async def has_seen() -> bool:
            return ledger.following.feed.last >= await ledger.stream.last()

        ledger.following.feed._seen = passed_over
        ledger.reader.missed = as_it_was  # type: ignore[method-assign]
        assert await counts(store) == {"default": {"completed": 1}}

    in_place(work)
