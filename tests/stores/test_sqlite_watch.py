"""Wake-ups: this process's own commits at once, those of other processes through the file."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from holdfast.model.outcome import Completed, ErrorInfo, Failed, Settlement
from tests.stores.sqlite_support import child, claim_one, new_task, opened

WATCH = "holdfast-sqlite-watch"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tasks.db"


def watching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == WATCH]


def test_a_submit_of_another_process_wakes_the_listeners_of_this_one(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            await store.queues()
            woken = threading.Event()
            (wakeup,) = store.wakeups
            stop = wakeup.listen(woken.set)
            assert await asyncio.to_thread(woken.wait, 20)  # the first look always wakes
            with child("first_use", path) as other:
                assert other.said() == "here"
                woken.clear()
                other.go_on()
                assert await asyncio.to_thread(woken.wait, 20)
            stop()

    asyncio.run(use())


def test_only_what_may_have_become_claimable_is_announced_here(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            announced: list[str] = []
            store._engine.hub.listen(lambda: announced.append("woken"))
            await store.submit([new_task()])
            assert len(announced) == 1
            claim = await claim_one(store)
            await store.extend([claim.lease])
            assert len(announced) == 1
            await store.settle([Settlement(claim.lease, Failed(ErrorInfo("no"), retry_after_seconds=0.0))])
            assert len(announced) == 2
            claim = await claim_one(store)
            await store.settle([Settlement(claim.lease, Completed())])
            assert len(announced) == 2
            await store.pause("default", paused=False)
            assert len(announced) == 3

    asyncio.run(use())


def test_the_file_is_watched_only_while_somebody_listens(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            await store.queues()
            before = watching()
            (wakeup,) = store.wakeups
            stops = [wakeup.listen(lambda: None) for _ in range(2)]
            (thread,) = [found for found in watching() if found not in before]
            stops[0]()
            stops[0]()
            assert thread.is_alive()
            stops[1]()
            await asyncio.to_thread(thread.join, 20)
            assert not thread.is_alive()

    asyncio.run(use())


def test_listening_does_not_need_the_file_to_be_there_yet(path: Path) -> None:
    async def use() -> None:
        async with opened(path) as store:
            woken = threading.Event()
            (wakeup,) = store.wakeups
            stop = wakeup.listen(woken.set)
            await store.submit([new_task()])
            assert await asyncio.to_thread(woken.wait, 20)
            stop()

    asyncio.run(use())
