"""One line when the store goes and one when it is back, whoever else succeeds meanwhile."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.errors import StoreClosed, StoreUnavailable
from holdfast.events.bus import Bus
from holdfast.events.facts import StoreAway, StoreBack, Told
from holdfast.health import StoreHealth


class Disk:
    """Reads always work; writes fail while it is full."""

    def __init__(self) -> None:
        self.full = True
        self.tries = 0

    async def write(self) -> str:
        self.tries += 1
        if self.full:
            raise StoreUnavailable("no space left")
        return "written"

    async def read(self) -> str:
        return "read"


def test_a_full_disk_that_still_answers_reads_is_told_once() -> None:
    told: list[Told] = []
    health, disk = StoreHealth(Bus(told.append)), Disk()

    async def main() -> None:
        writers = [asyncio.create_task(health.persist(disk.write)) for _ in range(3)]
        while disk.tries < 9:
            assert await health.persist(disk.read) == "read"
            assert health.away or disk.tries == 0
            await asyncio.sleep(0)
        disk.full = False
        assert await asyncio.gather(*writers) == ["written"] * 3

    asyncio.run(main())
    assert [type(fact) for fact in told] == [StoreAway, StoreBack]
    assert not health.away


def test_a_caller_that_is_canceled_while_the_store_is_away_leaves_no_trace() -> None:
    told: list[Told] = []
    gone = asyncio.Event()
    health, disk = StoreHealth(Bus(told.append, lambda _fact: gone.set())), Disk()

    async def main() -> None:
        writer = asyncio.create_task(health.persist(disk.write))
        await gone.wait()
        writer.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writer

    asyncio.run(main())
    assert [type(fact) for fact in told] == [StoreAway]
    assert not health.away


def test_a_closed_store_is_not_waited_for() -> None:
    async def closed() -> None:
        raise StoreClosed("it was closed")

    with pytest.raises(StoreClosed):
        asyncio.run(StoreHealth(Bus()).persist(closed))


def test_what_waiting_does_not_heal_is_raised_before_the_store_ever_answered() -> None:
    health = StoreHealth(Bus())

    async def refused() -> None:
        raise StoreUnavailable("wrong password", lasting=True)

    with pytest.raises(StoreUnavailable, match="wrong password"):
        asyncio.run(health.persist(refused))
    assert not health.away


def test_what_waiting_does_not_heal_is_waited_for_once_the_store_has_answered() -> None:
    """Somebody changes the password, and then tells the server or us."""
    health, answers = StoreHealth(Bus()), iter([False, True, True, False])

    async def call() -> None:
        if next(answers):
            raise StoreUnavailable("wrong password", lasting=True)

    async def main() -> None:
        await health.persist(call)
        await health.persist(call)

    asyncio.run(main())
    assert next(answers, None) is None


def test_a_store_that_stays_away_is_told_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Told] = []
    disk = Disk()
    monkeypatch.setattr("holdfast.health.TELL_AGAIN_SECONDS", 0.0)

    def hear(fact: Told) -> None:
        told.append(fact)
        disk.full = len(told) < 3

    asyncio.run(StoreHealth(Bus(hear)).persist(disk.write))
    assert [type(fact) for fact in told] == [StoreAway, StoreAway, StoreAway, StoreBack]
