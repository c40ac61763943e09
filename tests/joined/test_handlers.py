"""C7.6 with a real worker: what a handler writes and its completion are kept together, or neither is."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from holdfast import Context, Fixed, Handle, Holdfast, Snooze
from holdfast.errors import HoldfastError, InvalidTask, LeaseLost
from holdfast.events.facts import HandlerStuck, LeaseWasLost, TaskSettled
from tests import postgres_server
from tests.joined import kinds
from tests.joined.kinds import AWAITED, PLAIN, AsyncWork, Place
from tests.runtime import support
from tests.runtime.support import Crew, code_of, ended, wait_until, work_off


class Shop:
    """An app and a table `orders` in its database, to which handlers add rows and the tests look from outside."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.app = Holdfast(place.url, **place.options)
        self.app.queues.list()
        self.on_sqlite = not place.options
        self.table = "orders" if self.on_sqlite else f"{place.options['schema']}.orders"
        self.insert = f"insert into {self.table} (n) values (1)"
        self._look(f"create table {self.table} (n integer)")

    def orders(self) -> int:
        return len(self._look(f"select n from {self.table}"))

    def _look(self, sql: str) -> list[Any]:
        if not self.on_sqlite:
            return postgres_server.run_apart(lambda conn: conn.fetch(sql))
        with closing(sqlite3.connect(kinds.sqlite_file(self.place))) as connection, connection:
            return connection.execute(sql).fetchall()

    def task(self, function: Callable[..., Any], **options: Any) -> Any:
        return self.app.task(**{"name": "order", "takes_context": True, "backoff": Fixed(0), **options})(function)


@pytest.fixture(params=["sqlite", "postgres"])
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    made = Shop(kinds.place_of(request.param, tmp_path))
    with made.app:
        yield made


def test_writes_and_completion_commit_together(shop: Shop) -> None:
    async def order(ctx: Context) -> str:
        ctx.emit("order.made", {"no": 1})
        ctx.follow_up(shop.app.s("next"))
        async with ctx.transaction() as tx:
            await tx.connection.execute(shop.insert)
            await tx.complete({"no": 1})
        return "not this"

    handle = shop.task(order).enqueue()
    (told,) = [fact for fact in work_off(shop.app) if isinstance(fact, TaskSettled) and fact.claim.name == "order"]
    assert told.settled.status == "completed"
    assert (handle.task().result, handle.task().attempt, shop.orders()) == ({"no": 1}, 1, 1)
    assert support.kinds(handle) == ["task.enqueued", "task.running", "order.made", "task.completed"]
    assert [task.name for task in shop.app.tasks.list(status="queued")] == ["next"]


def test_outputs_commit_with_the_transaction_or_not_at_all(shop: Shop) -> None:
    """The first attempt rolls back what it has completed, the second writes after its completion, which is refused."""

    async def order(ctx: Context) -> str:
        ctx.output("orders", {f"attempt-{ctx.attempt}": dict(await ctx.ainput("prices"))})
        async with ctx.transaction() as tx:
            await tx.connection.execute(shop.insert)
            await tx.complete("done")
            if ctx.attempt == 1:
                raise ValueError
        try:
            ctx.output("orders", {"late": 1})
        except InvalidTask as refused:
            refusals.append(str(refused))
        return "not this"

    def price(ctx: Context) -> None:
        ctx.output("prices", {"a": 3})

    refusals: list[str] = []
    shop.task(price, name="price").enqueue()
    work_off(shop.app)
    handle = shop.task(order).using(inputs={"prices": 1}).enqueue()
    work_off(shop.app)
    assert (handle.task().result, handle.task().attempt, shop.orders()) == ("done", 2, 1)
    assert [one.version for one in shop.app.datasets.versions("orders")] == [1]
    assert shop.app.datasets.get("orders").rows() == [("attempt-2", {"a": 3})]
    assert len(refusals) == 1
    assert "before the completion" in refusals[0]


def test_a_plain_function_writes_outputs_in_its_own_connections_transaction(tmp_path: Path) -> None:
    place = kinds.sqlite_place(tmp_path)
    shop = Shop(place)

    def order(ctx: Context) -> None:
        ctx.output("orders", {"a": ctx.input("prices")[0][1]}, mode="replace")
        with closing(sqlite3.connect(kinds.sqlite_file(place))) as connection, connection:
            connection.execute(shop.insert)
            ctx.complete_in(connection)

    def price(ctx: Context) -> None:
        ctx.output("prices", {"a": 3})

    with shop.app:
        shop.task(price, name="price").enqueue()
        work_off(shop.app)
        shop.task(order).using(inputs={"prices": 1}).enqueue()
        work_off(shop.app)
        assert (shop.orders(), shop.app.datasets.get("orders").rows()) == (1, [("a", 3)])


def test_a_plain_function_on_sqlite_has_a_sqlite3_connection(tmp_path: Path) -> None:
    shop = Shop(kinds.sqlite_place(tmp_path))

    def order(ctx: Context) -> None:
        with ctx.transaction() as tx:
            assert isinstance(tx.connection, sqlite3.Connection)
            tx.connection.execute(shop.insert)
            tx.complete(7)

    with shop.app:
        handle = shop.task(order).enqueue()
        work_off(shop.app)
        assert (handle.result(timeout=5), shop.orders()) == (7, 1)


def test_a_handler_that_raises_after_its_completion_has_failed_and_written_nothing(shop: Shop) -> None:
    async def order(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.connection.execute(shop.insert)
            await tx.complete()
            raise ValueError("changed my mind")

    handle = shop.task(order, max_attempts=1).enqueue()
    work_off(shop.app)
    task = handle.task()
    assert (task.status, shop.orders()) == ("failed", 0)
    assert (task.last_error or {})["message"] == "changed my mind"


def test_a_handler_that_hides_its_rollback_has_failed(shop: Shop) -> None:
    async def order(ctx: Context) -> str:
        try:
            async with ctx.transaction() as tx:
                await tx.connection.execute(shop.insert)
                await tx.complete()
                raise ValueError
        except ValueError:
            return "all is well"

    handle = shop.task(order, max_attempts=1).enqueue()
    work_off(shop.app)
    assert (handle.task().status, code_of(handle.task()), shop.orders()) == ("failed", "completion_undone", 0)


def test_a_transaction_without_a_completion_is_rolled_back_and_says_so(shop: Shop) -> None:
    async def order(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.connection.execute(shop.insert)

    handle = shop.task(order, max_attempts=1).enqueue()
    work_off(shop.app)
    assert (handle.task().status, shop.orders()) == ("failed", 0)
    assert "without tx.complete" in (handle.task().last_error or {})["message"]


def test_what_is_not_completed_in_a_transaction_ends_as_ever(shop: Shop) -> None:
    """Snoozed out of the block: rolled back, and not a failure."""

    async def order(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.connection.execute(shop.insert)
            raise Snooze(3600)

    handle = shop.task(order).enqueue()
    work_off(shop.app)
    assert (handle.task().status, handle.task().failures, shop.orders()) == ("queued", 0, 0)


def test_a_lost_lease_is_refused_and_nothing_is_kept_although_the_handler_hides_it(shop: Shop) -> None:
    """1. The handler writes. 2. An operator releases the task by force. 3. The handler completes: LeaseLost."""
    raised: list[BaseException] = []

    async def order(ctx: Context) -> None:
        if ctx.attempt > 1:
            return
        try:
            async with ctx.transaction() as tx:
                if not shop.on_sqlite:  # there a write would keep the operator out until the end
                    await tx.connection.execute(shop.insert)
                    await shop.app.tasks.arelease(ctx.id)
                else:
                    await tx.connection.execute("update holdfast_tasks set token = 'another'")
                try:
                    await tx.complete()
                except LeaseLost as lost:
                    raised.append(lost)
        except HoldfastError as again:
            raised.append(again)
            raise

    handle = shop.task(order).enqueue()
    work_off(shop.app)
    assert [type(error) for error in raised] == [LeaseLost, LeaseLost]
    assert shop.orders() == 0
    assert "completed" in ended(handle).status


def test_tasks_can_be_submitted_in_a_handlers_transaction(shop: Shop) -> None:
    async def order(ctx: Context, commit: bool) -> None:
        async with ctx.transaction() as tx:
            await shop.app.using(connection=tx.connection).aenqueue("next")
            await tx.complete()
            if not commit:
                raise ValueError

    declared = shop.task(order, max_attempts=1)
    declared.enqueue(True)
    declared.enqueue(False)
    work_off(shop.app)
    assert [task.name for task in shop.app.tasks.list(status="queued")] == ["next"]


def test_memory_and_child_processes_and_plain_functions_on_postgres_say_what_to_use_instead() -> None:
    place = kinds.postgres_place()
    for url, options, words in (("memory://", {}, "SQLite or PostgreSQL"), (place.url, place.options, "complete_in")):
        with Holdfast(url, **options) as app:

            @app.task(name="order", takes_context=True, max_attempts=1)
            def order(ctx: Context) -> None:
                with ctx.transaction():
                    pass

            handle = order.enqueue()
            work_off(app)
            assert words in (handle.task().last_error or {})["message"]


@pytest.mark.parametrize("kind", PLAIN)
def test_a_plain_function_completes_in_a_connection_of_its_own(kind: str, tmp_path: Path) -> None:
    shop = Shop(kinds.place_of(kind, tmp_path))

    def order(ctx: Context) -> str:
        def work(connection: Any, run: Callable[[str], Any]) -> None:
            run(shop.insert)
            ctx.complete_in(connection, {"kind": kind})
            if ctx.attempt == 1:
                raise kinds.RolledBack

        PLAIN[kind](shop.place, work)
        return "not this"

    with shop.app:
        handle = shop.task(order).enqueue()
        work_off(shop.app)
        assert (handle.task().result, handle.task().attempt, shop.orders()) == ({"kind": kind}, 2, 1)
        assert support.kinds(handle).count("task.completed") == 1


@pytest.mark.parametrize("kind", AWAITED)
def test_a_coroutine_completes_in_a_connection_of_its_own(kind: str, tmp_path: Path) -> None:
    shop = Shop(kinds.place_of(kind, tmp_path))

    async def order(ctx: Context) -> str:
        async def work(connection: Any, run: Callable[[str], Any]) -> None:
            await run(shop.insert)
            await ctx.acomplete_in(connection, {"kind": kind})
            if ctx.attempt == 1:
                raise kinds.RolledBack

        await AWAITED[kind](shop.place, work)
        return "not this"

    with shop.app:
        handle = shop.task(order).enqueue()
        work_off(shop.app)
        assert (handle.task().result, handle.task().attempt, shop.orders()) == ({"kind": kind}, 2, 1)


@pytest.mark.parametrize("kind", [*PLAIN, *AWAITED])
def test_a_stale_attempt_is_refused_on_every_connection(kind: str, tmp_path: Path) -> None:
    shop, refusals = Shop(kinds.place_of(kind, tmp_path)), list[str]()

    def order(ctx: Context) -> None:
        if ctx.attempt > 1:
            return

        def work(connection: Any, run: Callable[[str], Any]) -> None:
            shop.app.tasks.release(ctx.id)
            run(shop.insert)
            ctx.complete_in(connection)

        async def awork(connection: Any, run: Callable[[str], Any]) -> None:
            await shop.app.tasks.arelease(ctx.id)
            await run(shop.insert)
            await ctx.acomplete_in(connection)

        async def awaited(work: AsyncWork) -> None:
            await AWAITED[kind](shop.place, work)

        try:
            PLAIN[kind](shop.place, work) if kind in PLAIN else asyncio.run(awaited(awork))
        except LeaseLost as lost:
            refusals.append(str(lost))
            raise

    with shop.app:
        handle = shop.task(order).enqueue()
        work_off(shop.app)
        assert len(refusals) == 1
        assert f"attempt 1 of task {handle.id} does not hold its lease" in refusals[0]
        assert (ended(handle).attempt, shop.orders()) == (2, 0)


def test_postgres_itself_forbids_the_commit_of_a_stale_completion_that_was_hidden() -> None:
    shop = Shop(kinds.postgres_place())

    async def order(ctx: Context) -> None:
        if ctx.attempt > 1:
            return
        connection = await asyncpg.connect(shop.place.url)
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute(shop.insert)
        await shop.app.tasks.arelease(ctx.id)
        with pytest.raises(LeaseLost):
            await ctx.acomplete_in(connection)
        await transaction.commit()
        await connection.close()

    with shop.app:
        shop.task(order).enqueue()
        work_off(shop.app)
        assert shop.orders() == 0


def test_a_committed_completion_stands_although_the_handler_raises_afterwards(shop: Shop) -> None:
    async def order(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.connection.execute(shop.insert)
            await tx.complete(1)
        raise ValueError("too late")

    handle = shop.task(order).enqueue()
    told = work_off(shop.app)
    assert (handle.task().status, handle.task().result, shop.orders()) == ("completed", 1, 1)
    assert not [fact for fact in told if isinstance(fact, LeaseWasLost)]


def test_a_cancel_request_that_comes_before_the_commit_rolls_back() -> None:
    """A coroutine is canceled wherever it stands; in its transaction that means neither is kept. On PostgreSQL: with
    one writer nobody can ask for anything meanwhile.
    """
    shop, inside = Shop(kinds.postgres_place()), threading.Event()

    async def order(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.connection.execute(shop.insert)
            inside.set()
            await asyncio.Event().wait()

    handle = shop.task(order, lease=3).enqueue()
    with shop.app, Crew(shop.app):
        assert inside.wait(20)
        handle.cancel()
        assert ended(handle).status == "canceled"
    assert shop.orders() == 0


def test_an_open_completion_holds_up_no_heartbeat_of_others() -> None:
    """1. A handler completes its task and keeps the transaction open. 2. Others run on for many heartbeats."""
    shop, open_, close = Shop(kinds.postgres_place()), threading.Event(), threading.Event()

    async def order(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await tx.connection.execute(shop.insert)
            await tx.complete()
            open_.set()
            await asyncio.to_thread(close.wait)

    @shop.app.task(name="long")
    async def long() -> None:
        await asyncio.to_thread(close.wait)

    def wait_for_a_heartbeat(handle: Handle[Any]) -> None:
        before: Any = handle.task().lease_expires_at
        wait_until(lambda: handle.task().lease_expires_at > before, "a heartbeat", seconds=3)

    with shop.app, Crew(shop.app, lease=1.0) as crew:
        other, ours = long.enqueue(), shop.task(order).enqueue()
        try:
            assert open_.wait(20)
            for _ in range(5):
                wait_for_a_heartbeat(other)
        finally:
            close.set()
        assert (ended(other).status, ended(ours).status) == ("completed", "completed")
        assert (ended(other).attempt, ended(ours).attempt, shop.orders()) == (1, 1, 1)
    assert not crew.of(LeaseWasLost)


def test_a_timeout_in_a_threads_open_completion_leaves_the_verdict_to_the_transaction() -> None:
    """1. A plain function completes and hangs before its commit. 2. Its timeout passes: nobody waits for the record
    that it locks, other tasks are settled. 3. It commits after all, and that counts.
    """
    shop, open_, close = Shop(kinds.postgres_place()), threading.Event(), threading.Event()

    def order(ctx: Context) -> None:
        def work(connection: Any, run: Callable[[str], Any]) -> None:
            run(shop.insert)
            ctx.complete_in(connection, "late")
            open_.set()
            close.wait(20)

        PLAIN["psycopg Connection"](shop.place, work)

    @shop.app.task(name="quick")
    async def quick() -> None: ...

    with shop.app, Crew(shop.app, concurrency=2) as crew:
        handle = shop.task(order, timeout=0.2).enqueue()
        try:
            assert open_.wait(20)
            crew.wait_for(HandlerStuck)
            assert ended(quick.enqueue()).status == "completed"
        finally:
            close.set()
        assert (ended(handle).result, shop.orders()) == ("late", 1)
