"""Queues: what a store tells about them, and the pause of C9.5."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from holdfast.model.outcome import Completed
from holdfast.model.query import Retention
from holdfast.model.task import TaskStatus
from holdfast.testing.conformance.checks import equal
from holdfast.testing.conformance.lives import random_life
from holdfast.testing.conformance.registry import case
from holdfast.testing.conformance.subject import Subject

ODD_NAMES = ("mail'; drop table tasks; --", 'a"b', "%", "_", "ünï 😀", "../x", "*", ">", "a b", "a/b", "NULL")


@case("C9.5")
async def a_pause_is_stored_and_seen_through_every_handle(subject: Subject) -> None:
    await subject.submit(queue="mail")
    await subject.store.pause("mail", paused=True)
    other = await subject.another_handle()
    equal({info.name: info.paused for info in await other.queues()}, {"mail": True}, "every handle sees it")
    await other.pause("mail", paused=False)
    await other.pause("mail", paused=False)
    equal({info.name: info.paused for info in await subject.store.queues()}, {"mail": False}, "and its end")


@case("C9.5", needs=("durable",))
async def a_pause_outlives_its_process(subject: Subject) -> None:
    await subject.submit(queue="mail")
    await subject.store.pause("mail", paused=True)
    await subject.close_handles()
    await subject.another_handle()
    equal(await subject.claim_many(), [], "still paused")


@case("C9.5")
async def a_queue_can_be_paused_before_its_first_task(subject: Subject) -> None:
    await subject.store.pause("mail", paused=True)
    await subject.submit(queue="mail")
    equal(await subject.claim_many(), [], "its first task is held")


@case("C9.5")
async def a_pause_leaves_running_tasks_alone(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit(queue="mail"))).lease
    await subject.store.pause("mail", paused=True)
    await subject.extend(lease)
    equal((await subject.settle(lease, Completed())).status, TaskStatus.COMPLETED, "they end as ever")


@case("C9.5")
async def counts_per_queue_agree_with_the_records(subject: Subject) -> None:
    async for _ in random_life(subject, 51, delete=True):
        tasks = (await subject.snapshot()).tasks
        counted = {info.name: {k: n for k, n in info.counts.items() if n} for info in await subject.store.queues()}
        equal(counted, {"default": dict(Counter(task.status.value for task in tasks))}, "counted as shown")
    subject.clock.advance(1e7)
    await subject.store.prune(Retention(), limit=1000)
    tasks = (await subject.snapshot()).tasks
    counted = {info.name: {k: n for k, n in info.counts.items() if n} for info in await subject.store.queues()}
    equal(counted, {"default": dict(Counter(task.status.value for task in tasks))}, "also after pruning")


@case("C9.5", "C4.5")
async def names_are_only_names(subject: Subject) -> None:
    for name in ODD_NAMES:
        await subject.submit(queue=name, name=name, idempotency_key=name, concurrency_key=name, run_id=name)
    equal([info.name for info in await subject.store.queues()], sorted(ODD_NAMES), "by name, exactly as given")
    for name in ODD_NAMES:
        claim = await subject.claim(queues=(name,), worker_id=name)
        equal((claim.queue, claim.name, claim.run_id, claim.worker_id), (name,) * 4, "found under its own name alone")
        equal(await subject.claim_many(queues=(name,)), [], "once")


@case("C5.1")
async def the_oldest_due_task_of_each_queue_is_known(subject: Subject) -> None:
    equal(await subject.store.oldest_due(), {}, "nothing is due")
    start = subject.clock.now()
    await subject.submit(queue="later", delay_seconds=60.0)
    await subject.submit(queue="low", priority=-5, concurrency_key="k")
    subject.clock.advance(10)
    await subject.submit(queue="low", priority=7)
    mine = await subject.submit(queue="mine")
    await subject.store.pause("low", paused=True)
    expected = {"low": start, "mine": start + timedelta(seconds=10)}
    equal(await subject.store.oldest_due(), expected, "whatever their priority, also in a queue that is paused")
    await subject.claim(mine)
    subject.clock.advance(60)
    equal(await subject.store.oldest_due(), {"low": start, "later": start + timedelta(seconds=60)}, "as time passes")
