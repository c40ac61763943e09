"""Texts that are no text, from clients whom nobody has checked: reads find nothing, writes are refused, each alone."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import HoldfastError, InvalidTask
from holdfast.model.claim import Claimed, Lease
from holdfast.model.outbox import Delivery, Effect, NewSink
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.query import TaskFilter, WorkerInfo
from holdfast.model.schedule import NewSchedule, Timing
from holdfast.model.token import NewToken, Scope
from holdfast.model.transition import Change
from holdfast.stores.memory.state import MemoryState
from holdfast.stores.memory.store import MemoryStore
from holdfast.stores.protocol import Store
from tests import postgres_server
from tests.stores import postgres_support
from tests.stores.sqlite_support import handle, new_task, opened, request

ODD = "a\ud800b"
HUGE = 2**70
LEASE = Lease(ODD, HUGE, ODD)
TIMING = Timing(every=60.0)
WORKER = WorkerInfo(id=ODD, host="here", pid=1, queues=None, concurrency=1, version="1")

Act = Callable[[Store], Awaitable[Any]]

READS: dict[str, tuple[Act, Any]] = {
    "get": (lambda store: store.get(ODD), None),
    "find": (lambda store: store.find(ODD), None),
    "ended": (lambda store: store.ended([ODD], limit=5), {ODD: None}),
    "page": (lambda store: store.page(TaskFilter(queue=ODD, name=ODD, run_id=ODD)), []),
    "events": (lambda store: store.events(ODD, after=HUGE, limit=5), []),
    "run": (lambda store: store.run(ODD), None),
    "run_lives": (lambda store: store.run_lives(ODD), False),
    "parents": (lambda store: store.parents(ODD, after=HUGE, limit=5), []),
    "steps": (lambda store: store.steps(ODD), []),
    "pinned": (lambda store: store.pinned(ODD), {}),
    "dataset_versions": (lambda store: store.dataset_versions(ODD, limit=5, before=HUGE), []),
    "dataset_version": (lambda store: store.dataset_version(ODD, HUGE), None),
    "token": (lambda store: store.token(ODD), None),
    "outbox": (lambda store: store.outbox(sink=ODD, state=None, limit=5, after=-HUGE), []),
    "take_outbox": (lambda store: store.take_outbox([ODD], limit=5, hold="h", hold_seconds=1.0), []),
    "record_deliveries": (lambda store: store.record_deliveries([Delivery(row_id=HUGE, hold=ODD)]), None),
    "requeue_outbox": (lambda store: store.requeue_outbox([HUGE, -HUGE]), 0),
    "delete_sink": (lambda store: store.delete_sink(ODD), False),
    "revoke_token": (lambda store: store.revoke_token(ODD), False),
    "leave": (lambda store: store.leave(ODD), None),
}
NOT_FOUND: dict[str, Act] = {
    "extend": lambda store: store.extend([LEASE]),
    "settle": lambda store: store.settle([Settlement(LEASE, Completed())]),
    "amend": lambda store: store.amend(Change.CANCEL, [ODD], actor="operator"),
}
WRITES: dict[str, Act] = {
    "submit, id": lambda store: store.submit([new_task(id=ODD)]),
    "submit, name": lambda store: store.submit([new_task(), new_task(name=ODD)]),
    "submit, many": lambda store: store.submit([*(new_task() for _ in range(300)), new_task(name=ODD)]),
    "submit, key": lambda store: store.submit([new_task(idempotency_key=ODD)]),
    "claim_id": lambda store: store.claim(request(claim_id=ODD)),
    "worker_id": lambda store: store.claim(request(worker_id=ODD)),
    "pause": lambda store: store.pause(ODD, paused=True),
    "limit": lambda store: store.limit(ODD, {"max_running": 1}),
    "enroll": lambda store: store.enroll(WORKER),
    "declare_sink": lambda store: store.declare_sink(NewSink(name=ODD, url="https://x", effect=Effect.ROUTE)),
    "add_token": lambda store: store.add_token(NewToken(id="t", name=ODD, scopes=(Scope.READ,), digest="d")),
    "declare_schedule": lambda store: store.declare_schedule(NewSchedule(name=ODD, timing=TIMING, task=new_task())),
}


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Store]:
    if request.param == "memory":
        return lambda: MemoryStore(MemoryState(SYSTEM_CLOCK))
    if request.param == "postgres":
        schema = postgres_server.fresh_schema()
        return lambda: postgres_support.handle(schema)
    return lambda: handle(tmp_path / "tasks.db", synchronous="normal")


def done(make: Callable[[], Store], act: Act) -> Any:
    """What it answers, or raises, beside one queued task, which stays alone."""

    async def use() -> Any:
        store = make()
        await store.submit([new_task()])
        try:
            return await act(store)
        except Exception as refused:
            return refused
        finally:
            assert len(await store.page(TaskFilter())) == 1
            await store.close()

    return asyncio.run(use())


@pytest.mark.parametrize("name", READS)
def test_a_read_finds_nothing(make: Callable[[], Store], name: str) -> None:
    act, nothing = READS[name]
    assert done(make, act) == nothing


@pytest.mark.parametrize("name", NOT_FOUND)
def test_a_task_of_that_name_is_not_found(make: Callable[[], Store], name: str) -> None:
    (answer,) = done(make, NOT_FOUND[name])
    assert isinstance(answer, HoldfastError)
    assert answer.code == "task_not_found"


@pytest.mark.parametrize("name", WRITES)
def test_a_write_is_refused(make: Callable[[], Store], name: str) -> None:
    assert type(done(make, WRITES[name])) is InvalidTask


def test_who_shares_a_transaction_with_a_refused_call_notices_nothing(tmp_path: Path) -> None:
    async def use() -> list[Any]:
        async with opened(tmp_path / "tasks.db", synchronous="normal") as store:
            odd = [store.claim(request(claim_id=ODD)) for _ in range(3)]
            return await asyncio.gather(*odd, *[store.claim(request()) for _ in range(3)], return_exceptions=True)

    answers = asyncio.run(use())
    assert [type(answer) for answer in answers] == [InvalidTask] * 3 + [Claimed] * 3


def test_who_submits_beside_a_refused_call_notices_nothing() -> None:
    async def use() -> list[Any]:
        async with postgres_support.opened() as store:
            many = [new_task(name=name) for name in ("a", "b", ODD) for _ in range(300)]
            batches = [[new_task()], [new_task(name=ODD)], [new_task()], many[:600], many, [new_task(name="\x00")]]
            answers = await asyncio.gather(*map(store.submit, batches), return_exceptions=True)
            assert len(await store.submit(many[:600])) == 600
            return answers

    assert [type(answer) for answer in asyncio.run(use())] == [list, InvalidTask, list, list, InvalidTask, InvalidTask]


def test_a_joined_submit_is_refused_and_the_transaction_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "tasks.db"

    async def use() -> int:
        async with opened(path) as store:
            await store.submit([new_task()])
            joining = await store.joining()
            with closing(sqlite3.connect(path, isolation_level=None)) as conn:
                conn.execute("BEGIN IMMEDIATE")
                with pytest.raises(InvalidTask):
                    joining.into(conn).submit([new_task(), new_task(name=ODD)])
                joining.into(conn).submit([new_task()])
                conn.execute("COMMIT")
            return len(await store.page(TaskFilter()))

    assert asyncio.run(use()) == 2


def test_a_joined_submit_to_postgresql_is_refused_and_the_transaction_goes_on() -> None:
    async def use() -> int:
        async with postgres_support.opened() as store, postgres_support.somebody_else(store) as conn:
            joining = await store.joining()
            async with conn.transaction():
                with pytest.raises(InvalidTask):
                    await joining.into(conn).asubmit([new_task(), new_task(name=ODD)])
                await joining.into(conn).asubmit([new_task()])
            return len(await store.page(TaskFilter()))

    assert asyncio.run(use()) == 1
