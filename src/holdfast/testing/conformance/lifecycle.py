"""Section 3: only the drawn transitions exist, and none without its event."""

from __future__ import annotations

from itertools import pairwise

from holdfast.model.backoff import Fixed
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Settlement
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import equal, that
from holdfast.testing.conformance.lives import random_life
from holdfast.testing.conformance.registry import case
from holdfast.testing.conformance.subject import EVERYTHING, Subject, claim_request, new_task
from holdfast.testing.fold import Folded, fold, stages

WAITING, QUEUED, RUNNING = TaskStatus.WAITING, TaskStatus.QUEUED, TaskStatus.RUNNING
COMPLETED, FAILED, CANCELED = TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELED

DRAWN: set[tuple[TaskStatus | None, TaskStatus | None]] = {
    (None, WAITING),
    (None, QUEUED),
    (WAITING, QUEUED),
    (WAITING, CANCELED),
    (CANCELED, WAITING),
    (QUEUED, RUNNING),
    (QUEUED, CANCELED),
    (RUNNING, COMPLETED),
    (RUNNING, FAILED),
    (RUNNING, CANCELED),
    (RUNNING, QUEUED),
    (FAILED, QUEUED),
    (CANCELED, QUEUED),
    (COMPLETED, None),
    (FAILED, None),
    (CANCELED, None),
}


@case("C3.1")
async def only_the_drawn_transitions_exist(subject: Subject) -> None:
    for seed in range(4):
        touched = {task_id async for task_id in random_life(subject, seed)}
        for task_id in touched:
            statuses = [None, *(stage.status for stage in stages(await subject.events(task_id)))]
            moves = {(one, other) for one, other in pairwise(statuses) if one is not other}
            equal(moves - DRAWN, set(), f"the life of {task_id} (seed {seed}) goes only the drawn ways")


@case("C3.2")
async def a_queued_task_that_is_not_due_is_shown_as_scheduled_or_retrying(subject: Subject) -> None:
    task_id = await subject.submit(delay_seconds=5, backoff=Fixed(5.0))
    now = subject.clock.now
    equal((await subject.get(task_id)).shown_as(now()), "scheduled", "before it is due")
    subject.clock.advance(5)
    equal((await subject.get(task_id)).shown_as(now()), "queued", "once it is due")
    lease = (await subject.claim(task_id)).lease
    equal((await subject.get(task_id)).shown_as(now()), "running", "while it runs")
    await subject.settle(lease, Failed(ErrorInfo("it broke")))
    equal((await subject.get(task_id)).shown_as(now()), "retrying", "while it backs off")
    subject.clock.advance(5)
    equal((await subject.get(task_id)).shown_as(now()), "queued", "once it is due again")


@case("C3.3", "C11.3")
async def after_every_act_the_events_tell_what_the_record_shows(subject: Subject) -> None:
    async for task_id in random_life(subject, 11):
        task = await subject.get(task_id)
        told = fold(await subject.events(task_id))
        equal(told, Folded(task.status, task.attempt, task.failures), "record and events agree")


@case("C3.3")
async def a_reader_never_sees_a_record_without_its_event(subject: Subject) -> None:
    """1. A writer takes tasks through their lives. 2. A reader reads events, record, events of each.

    3. Where both readings of the events agree, nothing was written in between: the record must agree too.
    """
    tasks = [new_task(max_attempts=1) for _ in range(12)]
    await subject.submit_all(*tasks)

    async def write(store: Store) -> int:
        for new in tasks:
            claimed = await store.claim(claim_request(task_id=new.id))
            await store.settle([Settlement(claimed.claims[0].lease, Failed(ErrorInfo("it broke")))])
            await store.amend(Change.REQUEUE, [new.id], actor="writer")
            claimed = await store.claim(claim_request(task_id=new.id))
            await store.settle([Settlement(claimed.claims[0].lease, Completed())])
        return 0

    async def read(store: Store) -> int:
        torn = 0
        for new in tasks * 3:
            before = await store.events(new.id, after=0, limit=EVERYTHING)
            task = await store.get(new.id)
            after = await store.events(new.id, after=0, limit=EVERYTHING)
            shown = None if task is None else Folded(task.status, task.attempt, task.failures)
            torn += before == after and fold(before) != shown
        return torn

    equal(await subject.race([write, read, read]), [0, 0, 0], "never one without the other")
    that(all(task.status is COMPLETED for task in (await subject.snapshot()).tasks), "all lives have ended")
