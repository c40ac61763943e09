"""Workers: who is known, since when, and with how much in hand. Eviction is in lease.py, beside reaping."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.outcome import Completed
from holdfast.model.query import WorkerInfo
from holdfast.testing.conformance.checks import equal
from holdfast.testing.conformance.registry import case
from holdfast.testing.conformance.subject import Subject, new_task, worker_info


@case("C6.7")
async def an_enrolled_worker_is_known_to_every_handle(subject: Subject) -> None:
    worker = WorkerInfo(
        id="worker-1", host="here", pid=7, queues=None, concurrency=3, version="1.2", names=["mail.send", "naïve"]
    )
    await subject.store.enroll(worker)
    shown = await (await subject.another_handle()).workers()
    now = subject.clock.now()
    equal(len(shown), 1, "one worker")
    fields = ("id", "host", "pid", "queues", "concurrency", "version", "names")
    for field in fields:
        equal(getattr(shown[0], field), getattr(worker, field), f"{field} as enrolled")
    equal((shown[0].started_at, shown[0].seen_at, shown[0].running), (now, now, 0), "since now")


@case("C6.7")
async def a_renewed_entry_keeps_its_start(subject: Subject) -> None:
    started = subject.clock.now() + timedelta(seconds=10)
    for _ in range(3):
        subject.clock.advance(timedelta(seconds=10))
        await subject.store.enroll(worker_info())
    (worker,) = await subject.store.workers()
    equal((worker.started_at, worker.seen_at), (started, subject.clock.now()), "started then, seen now")


@case("C6.7")
async def a_worker_shows_how_much_it_runs(subject: Subject) -> None:
    for worker_id in ("worker-1", "worker-2"):
        await subject.store.enroll(worker_info(worker_id))
    await subject.submit_all(*(new_task() for _ in range(5)))
    claims = await subject.claim_many(3, worker_id="worker-1")
    await subject.settle(claims[0].lease, Completed())
    running = {worker.id: worker.running for worker in await subject.store.workers()}
    equal(running, {"worker-1": 2, "worker-2": 0}, "what it holds now")


@case("C6.7")
async def a_worker_that_leaves_is_forgotten(subject: Subject) -> None:
    for worker_id in ("worker-1", "worker-2"):
        await subject.store.enroll(worker_info(worker_id))
    await subject.store.leave("worker-1")
    await subject.store.leave("never heard of")
    equal([worker.id for worker in await subject.store.workers()], ["worker-2"], "the other one stays")
