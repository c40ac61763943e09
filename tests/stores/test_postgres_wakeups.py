"""Wake-ups through PostgreSQL: who is idle is told, nobody else; and what happens when the telling breaks.

Intervals of polling are set so long here that what happens at all happened because somebody was told. A handle by
another spelling of the URL stands for another process: handles that spell it alike share their hub.
"""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import Holdfast, waiting
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import InvalidTask
from holdfast.stores.postgres import listener
from holdfast.stores.postgres.listener import Listener
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from holdfast.stores.postgres.topics import Topic, topic
from tests import postgres_server
from tests.runtime.support import Crew, wait_until
from tests.stores.postgres_support import NEVER_SECONDS, handle, new_task, opened
from tests.stores.swallowing_proxy import swallowing

PATIENCE_SECONDS = 30.0
HOLDERS = """
    select pid from pg_locks
    where locktype = 'advisory' and mode = 'ShareLock' and granted
      and (classid::bigint, objid::bigint) = ($1::bigint & 4294967295, $2::bigint & 4294967295)
"""


def url_of(schema: str, *more: str) -> str:
    return "&".join([f"{postgres_server.server().url}?schema={schema}", *more])


async def holders(about: Topic) -> list[int]:
    """The sessions that say they are idle."""
    return [row["pid"] for row in await postgres_server.administer(lambda conn: conn.fetch(HOLDERS, *about.lock))]


def holders_apart(about: Topic) -> list[int]:
    return [row["pid"] for row in postgres_server.run_apart(lambda conn: conn.fetch(HOLDERS, *about.lock))]


async def until(condition: Any, what: str) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await condition():  # noqa: ASYNC110  the server tells nobody about its locks and sessions
            await asyncio.sleep(0.01)
    assert await condition(), what


@asynccontextmanager
async def another_process(schema: str) -> AsyncIterator[PostgresStore]:
    """Leaving the block waits until everything is told."""
    store = PostgresStore(
        parsed(f"{postgres_server.server().url}?application_name=other", {"schema": schema}), SYSTEM_CLOCK
    )
    try:
        yield store
    finally:
        await store.close()


class Ear:
    """Somebody else's session on a channel."""

    def __init__(self, conn: Any, about: Topic) -> None:
        self.conn = conn
        self._about = about
        self._heard: asyncio.Queue[str] = asyncio.Queue()

    async def open(self) -> None:
        await self.conn.add_listener(self._about.channel, lambda *heard: self._heard.put_nowait(heard[-1]))

    async def hold(self) -> None:
        await self.conn.fetchval("select pg_advisory_lock_shared($1, $2)", *self._about.lock)

    async def let_go(self) -> None:
        await self.conn.fetchval("select pg_advisory_unlock_shared($1, $2)", *self._about.lock)

    async def heard(self) -> list[str]:
        """Everything so far: notifications come in the order of their commits."""
        last = f"{listener.PROOF}that is all"  # listeners leave the proofs of others alone
        await self.conn.execute("select pg_notify($1, $2)", self._about.channel, last)
        found = []
        async with asyncio.timeout(PATIENCE_SECONDS):
            while (payload := await self._heard.get()) != last:
                found.append(payload)
        return [payload for payload in found if not payload.startswith(listener.PROOF)]


@asynccontextmanager
async def ear(about: Topic) -> AsyncIterator[Ear]:
    conn = await asyncpg.connect(postgres_server.server().url)
    try:
        made = Ear(conn, about)
        await made.open()
        yield made
    finally:
        await conn.close()


class Counter:
    """Counts its calls; the next one can be awaited."""

    def __init__(self) -> None:
        self.calls = 0
        self._called = asyncio.Event()

    def __call__(self) -> None:
        self.calls += 1
        self._called.set()

    async def beyond(self, calls: int) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.calls <= calls:
                self._called.clear()
                await self._called.wait()


def listener_of(store: PostgresStore) -> Listener:
    _, found = store.wakeups
    assert isinstance(found, Listener)
    return found


async def told(store: PostgresStore) -> None:
    """Returns when everything is told that was announced."""
    notifier = store._tidings.work._notifier
    assert notifier is not None
    await notifier.close()


@pytest.fixture
def schema() -> str:
    return postgres_server.fresh_schema()


@contextmanager
def child(act: str, url: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.stores.wakeup_children", act, url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


# Telling


def test_nobody_is_told_while_nobody_is_idle(schema: str) -> None:
    async def use() -> None:
        about = topic("work", schema)
        async with ear(about) as other:
            async with opened(schema) as store:
                await store.submit([new_task()])
            assert await other.heard() == []
            await other.hold()
            async with opened(schema) as store:
                await store.submit([new_task()])
            assert len(await other.heard()) == 1
            await other.let_go()
            async with opened(schema) as store:
                await store.submit([new_task()])
            assert await other.heard() == []

    asyncio.run(use())


def test_many_announcements_at_once_are_told_twice_at_most(schema: str) -> None:
    """The first at once; all that come meanwhile by one more, so that the last one is never lost."""

    async def use() -> None:
        about = topic("work", schema)
        async with ear(about) as other:
            await other.hold()
            async with opened(schema) as store:
                for _ in range(100):
                    store._tidings.work.announce()
            assert len(await other.heard()) == 2

    asyncio.run(use())


def test_wakeups_that_are_off_tell_nobody_and_listen_to_nobody(schema: str) -> None:
    async def use() -> None:
        async with ear(topic("work", schema)) as other:
            await other.hold()
            async with opened(schema, wakeups="off") as store:
                await store.submit([new_task()])
                assert len(store.wakeups) == len(store.endings) == 1
                assert ("wake-ups", True, "switched off by wakeups=off; workers poll") in await store.check()
            assert await other.heard() == []

    asyncio.run(use())
    with pytest.raises(InvalidTask, match="wakeups is 'maybe'; write on or off"):
        handle(schema, wakeups="maybe")


def test_the_channel_of_a_long_schema_has_a_name_that_postgres_takes() -> None:
    for long in ("x" * 63, "ä" * 31):
        assert len(topic("work", long).channel.encode()) <= 63
    names = [topic(word, name) for word in ("work", "ends") for name in ("x" * 63, "x" * 62 + "y", "holdfast")]
    assert len({about.channel for about in names}) == len({about.lock for about in names}) == 6


# Listening


def test_a_listener_wakes_everybody_once_it_hears_and_once_it_is_known_to_be_idle(schema: str) -> None:
    """A task that is committed between an empty claim and the lock:

    1. A worker claims and finds nothing. 2. Another process commits a task; nobody is idle, so nobody is told.
    3. The worker becomes idle, and gets the lock: it is woken, and claims once more.
    """

    async def use() -> None:
        async with opened(schema) as store:
            woken = Counter()
            ours = listener_of(store)
            stop = ours.listen(woken)
            await woken.beyond(0)
            async with another_process(schema) as other, ear(topic("work", schema)) as heard:
                await other.submit([new_task()])
                await told(other)
                assert await heard.heard() == []
            assert woken.calls == 1
            ours.idle()
            await woken.beyond(1)
            assert len(await holders(topic("work", schema))) == 1
            ours.busy()
            ours.idle()
            assert woken.calls == 2  # it is known already
            ours.busy()
            stop()

    asyncio.run(use())


def test_an_idle_listener_is_told_by_other_processes_and_not_by_its_own(schema: str) -> None:
    async def use() -> None:
        async with opened(schema) as store, another_process(schema) as other:
            woken = Counter()
            stop = listener_of(store).listen(woken)
            listener_of(store).idle()
            await woken.beyond(1)
            async with ear(topic("work", schema)) as heard:
                await store.submit([new_task()])
                await told(store)
                assert await heard.heard() == [store._tidings._hubs.name]
                assert woken.calls == 2
            await other.submit([new_task()])
            await woken.beyond(2)
            stop()

    asyncio.run(use())


def test_a_listener_that_stays_busy_gives_its_lock_back(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "TICK_SECONDS", 0.01)
    about = topic("work", schema)

    async def use() -> None:
        async with opened(schema) as store:
            woken = Counter()
            ours = listener_of(store)
            stop = ours.listen(woken)
            ours.idle()
            await woken.beyond(1)
            assert len(await holders(about)) == 1
            ours.busy()
            await until(lambda: _nobody(about), "the lock is given back")
            ours.idle()
            await woken.beyond(2)
            assert len(await holders(about)) == 1
            stop()

    asyncio.run(use())


async def _nobody(about: Topic) -> bool:
    return not await holders(about)


def test_a_listener_that_is_told_by_too_many_lets_go_for_a_moment_and_looks_for_itself(schema: str) -> None:
    about = topic("work", schema)
    flood = "select pg_notify($1, 'somebody ' || n) from generate_series(1, 10) as n"

    async def use() -> None:
        async with opened(schema) as store:
            woken = Counter()
            stop = listener_of(store).listen(woken)
            listener_of(store).idle()
            await woken.beyond(1)
            await postgres_server.administer(lambda conn: conn.execute(flood, about.channel))
            await woken.beyond(2 + 10)  # ten times told, and once more when it has the lock again
            assert len(await holders(about)) == 1
            stop()

    asyncio.run(use())


def test_a_listener_whose_session_was_ended_comes_back_and_wakes_everybody(
    schema: str, caplog: pytest.LogCaptureFixture
) -> None:
    about = topic("work", schema)

    async def use() -> None:
        async with opened(schema) as store, another_process(schema) as other:
            woken = Counter()
            stop = listener_of(store).listen(woken)
            listener_of(store).idle()
            await woken.beyond(1)
            (pid,) = await holders(about)
            before = woken.calls
            await postgres_server.administer(lambda conn: conn.execute(f"select pg_terminate_backend({pid})"))
            await woken.beyond(before)
            await until(lambda: _another(about, pid), "another session is idle")
            before = woken.calls
            await other.submit([new_task()])
            await woken.beyond(before)
            stop()

    with caplog.at_level(logging.WARNING):
        asyncio.run(use())
    said = [record.getMessage().split()[0] for record in caplog.records if record.name == listener.__name__]
    assert said == ["wakeups.lost", "wakeups.back"]


async def _another(about: Topic, pid: int) -> bool:
    return [found for found in await holders(about) if found != pid] != []


def test_a_listener_that_gets_no_answer_gives_its_session_up(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """1. Somebody has the lock alone, so that to ask for it has no answer. 2. The listener gives up, comes back, asks
    again, in vain. 3. Once the lock is free, it gets it.
    """
    monkeypatch.setattr(listener, "TICK_SECONDS", 0.05)
    monkeypatch.setattr(listener, "ANSWER_SECONDS", 0.5)
    about = topic("work", schema)

    async def use() -> None:
        async with opened(schema) as store:
            woken = Counter()
            ours = listener_of(store)
            stop = ours.listen(woken)
            await woken.beyond(0)
            async with ear(about) as blocker:
                await blocker.conn.fetchval("select pg_advisory_lock($1, $2)", *about.lock)
                ours.idle()
                await woken.beyond(1)
            await until(lambda: _somebody(about), "the lock is held in the end")
            stop()

    asyncio.run(use())


async def _somebody(about: Topic) -> bool:
    return bool(await holders(about))


def test_closing_leaves_no_session_no_task_and_no_thread(schema: str) -> None:
    sessions = "select count(*) from pg_stat_activity where application_name = 'holdfast'"
    threads = threading.enumerate()

    async def use() -> None:
        before = await postgres_server.administer(lambda conn: conn.fetchval(sessions))
        store = handle(schema)
        woken = Counter()
        for wakeup in (*store.wakeups, *store.endings):
            wakeup.listen(woken)
            wakeup.idle()
        await woken.beyond(3)
        await store.submit([new_task()])
        assert await postgres_server.administer(lambda conn: conn.fetchval(sessions)) > before
        await store.close()
        assert asyncio.all_tasks() == {asyncio.current_task()}

        async def gone() -> bool:
            return bool(await postgres_server.administer(lambda conn: conn.fetchval(sessions)) == before)

        await until(gone, "every session is closed")

    asyncio.run(use())
    assert threading.enumerate() == threads


def test_closing_from_another_event_loop_is_not_taken_for_a_loss(schema: str, caplog: pytest.LogCaptureFixture) -> None:
    """1. plain code waits, so its loop listens; 2. async code closes the app; 3. that loop hears its connection go."""
    app = Holdfast(url_of(schema))
    with pytest.raises(TimeoutError):
        app.using(delay=3600).enqueue("x").result(timeout=1)
    with caplog.at_level(logging.WARNING):
        asyncio.run(app.aclose())
        assert app.tasks.count()["queued"] == 1  # through the same loop: what it had to say it has said
    app.close()
    assert "wakeups.lost" not in caplog.text


def test_a_connection_is_closed_when_nobody_has_listened_for_a_while(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "TICK_SECONDS", 0.01)

    async def use() -> None:
        async with opened(schema) as store:
            ours = listener_of(store)
            for _ in range(2):  # and it is opened again for the next
                woken = Counter()
                stop = ours.listen(woken)
                await woken.beyond(0)
                conn = ours._conn
                stop()

                async def closed(conn: Any = conn) -> bool:
                    return bool(conn.is_closed())

                await until(closed, "it is closed")

    asyncio.run(use())


# A pooler in between


def test_a_pooler_that_swallows_notifications_is_noticed_and_named(
    schema: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(listener, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(listener, "SWALLOWED_SECONDS", 0.01)
    about = topic("work", schema)

    async def use() -> None:
        async with swallowing(postgres_server.server().url) as url:
            store = PostgresStore(parsed(url, {"schema": schema}), SYSTEM_CLOCK)
            (found,) = [finding for finding in await store.check() if finding[0] == "wake-ups"]
            assert found == ("wake-ups", False, listener.HINT)
            ours = listener_of(store)
            stop = ours.listen(lambda: None)
            ours.idle()

            async def tried_again() -> bool:
                return ours.proofs > 2

            await until(tried_again, "it tries again, now and then")
            assert await holders(about) == []
            stop()
            await store.close()

    with caplog.at_level(logging.WARNING):
        asyncio.run(use())
    (said,) = [record.getMessage() for record in caplog.records if record.name == listener.__name__]
    assert said.startswith("wakeups.swallowed")
    assert "pooler=transaction" in said


def test_a_store_without_a_pooler_is_found_to_hear(schema: str) -> None:
    async def use() -> None:
        async with opened(schema) as store:
            assert ("wake-ups", True, "a session hears what another one tells") in await store.check()
        async with opened(schema, pooler="transaction") as store:
            assert ("wake-ups", True, "a pooler lets nobody listen; workers poll") in await store.check()

    asyncio.run(use())


# Whole processes


def test_a_worker_of_another_process_is_woken(schema: str) -> None:
    with Holdfast(url_of(schema)) as app, child("work", url_of(schema)):
        wait_until(lambda: holders_apart(topic("work", schema)), "the worker is idle")
        for number in range(5):
            handle = app.enqueue("twice", number)
            wait_until(lambda handle=handle: handle.task().status == "completed", "the worker was told")  # type: ignore[misc]


def test_a_handle_is_told_of_the_end_by_another_process(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "FIRST_PAUSE_SECONDS", NEVER_SECONDS)
    with Holdfast(url_of(schema)) as app, child("work", url_of(schema)):
        wait_until(lambda: holders_apart(topic("work", schema)), "the worker is idle")
        assert [app.enqueue("twice", number).result(timeout=PATIENCE_SECONDS) for number in range(5)] == [0, 2, 4, 6, 8]


def test_a_worker_whose_listening_session_was_ended_works_on(schema: str) -> None:
    about = topic("work", schema)
    with Holdfast(url_of(schema)) as app, child("work", url_of(schema)):
        wait_until(lambda: holders_apart(about), "the worker is idle")
        (pid,) = holders_apart(about)
        postgres_server.run_apart(lambda conn: conn.execute(f"select pg_terminate_backend({pid})"))
        assert app.enqueue("twice", 4).result(timeout=PATIENCE_SECONDS) == 8


def test_wakeups_survive_a_fork(schema: str) -> None:
    with Holdfast(url_of(schema)) as app, child("fork", url_of(schema)) as forked:
        assert forked.stdout is not None
        assert [forked.stdout.readline() for _ in range(3)] == ["before: 2\n", "child: 4\n", "child ended: 0\n"]
        assert app.enqueue("twice", 4).result(timeout=PATIENCE_SECONDS) == 8


def test_a_worker_behind_a_pooler_that_swallows_notifications_polls(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "ANSWER_SECONDS", 0.2)

    async def use() -> None:
        async with swallowing(postgres_server.server().url) as url:
            app = Holdfast(f"{url}&schema={schema}")

            @app.task(name="twice")
            async def twice(number: int) -> int:
                return 2 * number

            def work() -> int:
                with Crew(app), Holdfast(url_of(schema)) as other:
                    return int(other.enqueue("twice", 3).result(timeout=PATIENCE_SECONDS))

            assert await asyncio.to_thread(work) == 6
            await asyncio.to_thread(app.close)

    asyncio.run(use())
