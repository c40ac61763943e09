"""What comes late to NATS decides nothing: a worker that was paused, a batch that was held up, a wrong clock."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from holdfast import Holdfast, ids
from holdfast.errors import LeaseLost, StoreUnavailable
from holdfast.model.claim import Claim, Extended
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.task import Submitted
from holdfast.model.transition import Change, Settled
from holdfast.stores.nats.store import NatsStore
from tests.acceptance.crash_worker import Orders
from tests.acceptance.processes import killed_at_the_end, ledger_of, start_worker, wait_until_stopped_with
from tests.faults.checks import check_whole
from tests.faults.nats_support import opened, place
from tests.jetstream_admin import connected
from tests.nats_link import NatsProxy, Publish, commits
from tests.runtime.support import kinds, wait_until
from tests.stores.postgres_support import new_task, request

LEASE_SECONDS = 1.0


def test_a_worker_that_was_paused_past_its_lease_is_refused(tmp_path: Path) -> None:
    """1. It stops right before its settle. 2. Another runs and ends the task. 3. It goes on, and settles: too late."""
    ledger, go, refusals = tmp_path / "ledger", tmp_path / "go", tmp_path / "refusals"
    with place() as url, Holdfast(url) as app:
        paused = Orders(url=url, ledger=str(ledger), lease=LEASE_SECONDS, stop_until=str(go), refusals=str(refusals))
        other = Orders(url=url, ledger=str(ledger), lease=LEASE_SECONDS)
        task = app.using(max_attempts=0).enqueue("work", 1)
        with killed_at_the_end(start_worker(paused, log=tmp_path / "log")) as first:
            wait_until_stopped_with(first, lambda: True)
            with killed_at_the_end(start_worker(other, log=tmp_path / "log")):
                wait_until(lambda: task.task().status == "completed", "the other to end it")
                before = task.task(), kinds(task)
                go.touch()
                first.send_signal(signal.SIGCONT)
                wait_until(lambda: refusals.exists(), "the late settle to be refused")
        assert refusals.read_text().split() == [LeaseLost.code]
        assert (task.task(), kinds(task)) == before
        assert (task.task().attempt, task.task().result) == (2, 2)
        assert ledger_of(ledger)[task.id] == [1, 2]
        assert kinds(task)[-2:] == ["task.running", "task.completed"]
        assert kinds(task).count("task.completed") == 1


# A batch that was held up on its way, and arrives when its connection is gone


class Late:
    """What a handle writes does not arrive, and breaks its connection; later it does, as it was sent."""

    def __init__(self, url: str, proxy: NatsProxy) -> None:
        self._url = url
        self._proxy = proxy
        self._held: list[Publish] = []
        proxy.at = self._hold

    def _hold(self, publish: Publish) -> bool:
        if b"\r\nNats-Batch-Id:" in publish.headers:
            self._held.append(publish)
        return commits(publish)

    async def arrives(self, call: Callable[[], Awaitable[object]], meanwhile: Callable[[], Awaitable[None]]) -> bool:
        """1. A verb writes, and fails. 2. Others act. 3. What it wrote arrives. Was it taken?"""
        self._held.clear()
        self._proxy.arm("before")
        with pytest.raises(StoreUnavailable):
            await call()
        held, self._proxy.at = list(self._held), lambda _: False
        await meanwhile()
        batch = ids.token()  # the server gives up one whose connection is gone
        async with connected(self._url) as client:
            for publish in held[:-1]:
                await client.publish(publish.subject.decode(), publish.body, headers=headers_of(publish, batch))
            last = held[-1]
            reply = await client.request(last.subject.decode(), last.body, 10, headers=headers_of(last, batch))
        return "error" not in json.loads(reply.data)


def headers_of(publish: Publish, batch: str) -> dict[str, str]:
    lines = publish.headers.decode().split("\r\n")[1:]
    named = {name: value.strip() for name, _, value in (line.partition(":") for line in lines) if name}
    return named | {"Nats-Batch-Id": batch}


@contextlib.asynccontextmanager
async def staged() -> AsyncIterator[tuple[Late, NatsStore, NatsStore]]:
    with place() as url, NatsProxy(url) as proxy:
        async with opened(proxy.url) as store, opened(url) as others:
            await store.reap(limit=1, actor="nobody")
            await others.reap(limit=1, actor="nobody")
            yield Late(url, proxy), store, others


def test_a_submit_that_arrives_late_is_made_once() -> None:
    """It was reported as failed, and another handle has made it meanwhile, with the same ids and keys."""

    async def use() -> None:
        async with staged() as (late, store, others):
            tasks = [new_task(idempotency_key=ids.token()) for _ in range(3)]
            made = [Submitted(new.id, created=True) for new in tasks]

            async def meanwhile() -> None:
                assert await others.submit(tasks) == made
                (claim,) = (await others.claim(request())).claims
                await others.settle([Settlement(claim.lease, Completed("1"))])

            assert not await late.arrives(lambda: store.submit(tasks), meanwhile)
            assert await store.submit(tasks) == made
            while claims := (await store.claim(request(limit=10))).claims:
                await store.settle([Settlement(claim.lease, Completed("1")) for claim in claims])
            await check_whole(others, [new.id for new in tasks])

    asyncio.run(use())


def test_a_claim_that_arrives_late_takes_nothing_from_another() -> None:
    async def use() -> None:
        async with staged() as (late, store, others):
            new = new_task()
            await others.submit([new])
            held: list[Claim] = []

            async def meanwhile() -> None:
                held.extend((await others.claim(request(worker_id="other"))).claims)

            await store.reap(limit=1, actor="nobody")
            assert not await late.arrives(lambda: store.claim(request(worker_id="late")), meanwhile)
            assert (await store.claim(request(worker_id="late"))).claims == []
            (told,) = await others.settle([Settlement(held[0].lease, Completed("1"))])
            assert isinstance(told, Settled)
            await check_whole(others, [new.id])

    asyncio.run(use())


def test_a_settle_that_arrives_late_does_not_undo_what_was_decided_since() -> None:
    """Reported as failed; the task was taken from it, and given to another; the late batch must not end it."""

    async def use() -> None:
        async with staged() as (late, store, others):
            new = new_task()
            await others.submit([new])
            (claim,) = (await store.claim(request())).claims
            held: list[Claim] = []

            async def meanwhile() -> None:
                await others.amend(Change.RELEASE, [new.id], actor="operator")
                held.extend((await others.claim(request(worker_id="other"))).claims)

            assert not await late.arrives(
                lambda: store.settle([Settlement(claim.lease, Completed('"old"'))]), meanwhile
            )
            (told,) = await store.settle([Settlement(claim.lease, Completed('"old"'))])
            assert isinstance(told, LeaseLost)
            await others.settle([Settlement(held[0].lease, Completed('"new"'))])
            (task,) = await check_whole(others, [new.id])
            assert (task.result, task.attempt) == ("new", 2)

    asyncio.run(use())


def test_a_settle_that_arrives_late_to_an_unchanged_task_stands_once() -> None:
    async def use() -> None:
        async with staged() as (late, store, others):
            new = new_task()
            await others.submit([new])
            (claim,) = (await store.claim(request())).claims
            end = [Settlement(claim.lease, Completed("1"))]

            async def meanwhile() -> None:
                task = await others.get(new.id)
                assert task is not None
                assert task.status == "running"

            assert await late.arrives(lambda: store.settle(end), meanwhile)
            (told,) = await store.settle(end)
            assert isinstance(told, Settled)
            await check_whole(others, [new.id])

    asyncio.run(use())


# A client whose clock is wrong


def skew(patch: pytest.MonkeyPatch, seconds: float) -> None:
    """This process's wall clock."""
    nanos, now = time.time_ns, time.time
    patch.setattr(time, "time_ns", lambda: nanos() + round(seconds * 1e9))
    patch.setattr(time, "time", lambda: now() + seconds)


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_leases_and_due_times_go_by_the_servers_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    async def use(url: str) -> None:
        async with opened(url) as right:
            await right.submit([new_task(id="now"), new_task(id="later", delay_seconds=60.0)])
            with monkeypatch.context() as patch:
                skew(patch, seconds)
                async with opened(url) as wrong:
                    assert abs(await wrong.now() - await right.now()).total_seconds() < 60
                    (claim,) = (await wrong.claim(request(limit=10, lease_seconds=60.0))).claims
                    assert claim.task_id == "now", "the other is not due"
                    assert await wrong.reap(limit=10, actor="wrong") == []
                    assert await right.reap(limit=10, actor="right") == [], "its lease holds"
                    (told,) = await wrong.extend([claim.lease])
                    assert isinstance(told, Extended)
                    assert abs((told.expires_at - await right.now()).total_seconds() - 60) < 30
                    await wrong.submit([new_task(id="soon")])
                    (soon,) = (await right.claim(request(limit=10))).claims
                    assert soon.task_id == "soon"
                    assert abs(soon.claimed_at - await right.now()).total_seconds() < 60

    with place() as url:
        asyncio.run(use(url))
