"""Every worker rescues what others left behind and forgets what is old (C6.5, C6.7, C8.5)."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta

import pytest

from holdfast import Holdfast, Retention, ids
from holdfast.events.facts import Evicted, Reaped
from holdfast.maintenance import pruner, reaper
from holdfast.model.claim import Claim, ClaimRequest
from holdfast.model.query import WorkerInfo
from tests.runtime.support import Crew, ended, wait_until, work_off


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(pruner, "INTERVAL_SECONDS", 0.05)


def claim_and_vanish(app: Holdfast, *, lease: float) -> Claim:
    """A worker that enrols, claims one task and is never heard of again: its thread ends."""
    claims: list[Claim] = []

    async def main() -> None:
        store = app.connections.factory()
        await store.enroll(WorkerInfo(id="ghost", host="h", pid=1, queues=None, concurrency=1, version="1"))
        request = ClaimRequest(worker_id="ghost", claim_id=ids.token(), lease_seconds=lease)
        claims.extend((await store.claim(request)).claims)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    thread.join()
    return claims[0]


def test_an_expired_attempt_runs_again_and_counts_as_a_failure(any_app: Holdfast) -> None:
    @any_app.task(name="left")
    async def left() -> int:
        return 1

    handle = left.enqueue()
    claim_and_vanish(any_app, lease=0.2)
    with Crew(any_app) as crew:
        record = ended(handle)
        if not any_app.url.startswith("http"):  # there it is the dispatcher who rescues
            assert crew.wait_for(Reaped).settled[0].task_id == handle.id
    assert (record.status, record.attempt, record.failures) == ("completed", 2, 1)
    failure = next(event for event in handle.events() if event.kind == "task.failed")
    assert failure.payload["error"]["code"] == "lease_expired"
    assert failure.payload["backoff_ms"] == 0


def test_the_work_of_a_worker_that_is_known_to_be_gone_does_not_wait_for_its_lease(app: Holdfast) -> None:
    @app.task(name="left")
    async def left() -> int:
        return 1

    handle = left.enqueue()
    claim_and_vanish(app, lease=3600)
    with Crew(app) as crew:
        record = ended(handle)
        assert "ghost" in crew.wait_for(Evicted).worker_ids
    assert (record.status, record.attempt, record.failures) == ("completed", 2, 1)
    assert app.workers.list() == []


def test_old_tasks_are_forgotten_and_dead_letters_are_kept() -> None:
    with Holdfast("memory://", retention=Retention(completed=timedelta(0), canceled=timedelta(0))) as app:

        @app.task(name="good")
        async def good() -> None: ...

        @app.task(name="bad", max_attempts=1)
        async def bad() -> None:
            raise ValueError

        app.enqueue_many([good.s() for _ in range(3)] + [bad.s()])
        good.using(delay=60).enqueue().cancel()
        live = good.using(delay=60).enqueue()
        with Crew(app):
            wait_until(lambda: sorted(task.name for task in app.tasks.list()) == ["bad", "good"])
        assert live.task().status == "queued"
        assert app.dlq.list()[0].name == "bad"


def test_retention_keeps_what_is_young_by_default(app: Holdfast) -> None:
    @app.task(name="good")
    async def good() -> None: ...

    good.enqueue()
    work_off(app)
    with Crew(app, queues=["elsewhere"]):
        assert app.tasks.count()["completed"] == 1


def test_workers_are_listed_while_they_work(any_app: Holdfast) -> None:
    @any_app.task(name="good")
    async def good() -> None: ...

    with Crew(any_app, worker_id="w-1", queues=["mail"], concurrency=3):
        wait_until(lambda: any_app.workers.list())
        (info,) = any_app.workers.list()
        assert (info.id, info.queues, info.concurrency, info.names) == ("w-1", ["mail"], 3, ["good"])
        assert info.started_at is not None
    assert any_app.workers.list() == []
