"""C10.4: what a failure canceled waits again when the failed task is requeued."""

from __future__ import annotations

from holdfast.errors import TaskNotReady
from holdfast.model.transition import Change
from holdfast.testing.conformance.checks import equal, that
from holdfast.testing.conformance.subject import OPERATOR, Subject
from holdfast.testing.conformance.workflow_words import (
    CANCELED,
    COMPLETED,
    DEAD,
    QUEUED,
    WAITING,
    case,
    chord,
    drawn_run,
    end,
    settle_all,
    states,
)


@case("C10.4", "C8.1")
async def requeueing_a_failed_member_rearms_what_it_had_canceled(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], done=[], b=["a", "done"], c=["b"])
    await end(subject, tasks["done"])
    await end(subject, tasks["a"], DEAD)
    await subject.amend(Change.REQUEUE, tasks["a"])
    expected = {"a": QUEUED, "done": COMPLETED, "b": WAITING, "c": WAITING}
    equal(await states(subject, tasks), expected, "what ran is not run again")
    for name in "bc":
        task = await subject.get(tasks[name])
        equal((task.canceled_because, task.finished_at), (None, None), f"{name} is as before")
        equal(await subject.kinds(task.id), ["task.enqueued", "task.canceled", "task.rearmed"], "its life")
    for name in "abc":
        await end(subject, tasks[name])
    equal(set((await states(subject, tasks)).values()), {COMPLETED}, "and the run completes")


@case("C10.4")
async def a_member_with_another_failed_parent_stays_canceled_until_that_is_requeued(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=[], c=["a", "b"], d=["c"])
    await end(subject, tasks["a"], DEAD)
    await end(subject, tasks["b"], DEAD)
    await subject.amend(Change.REQUEUE, tasks["a"])
    for name in "cd":
        task = await subject.get(tasks[name])
        equal((task.status, task.canceled_because), (CANCELED, tasks["b"]), f"{name} is canceled because of the other")
    await subject.amend(Change.REQUEUE, tasks["b"])
    equal(await states(subject, tasks), {"a": QUEUED, "b": QUEUED, "c": WAITING, "d": WAITING}, "now it waits again")
    await end(subject, tasks["b"])
    equal((await subject.get(tasks["c"])).status, WAITING, "for both")
    await end(subject, tasks["a"])
    equal((await subject.get(tasks["c"])).status, QUEUED, "and goes on")


@case("C10.4")
async def what_a_person_canceled_is_not_rearmed(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=["a"], c=["b"])
    await subject.amend(Change.CANCEL, tasks["b"])
    await end(subject, tasks["a"], DEAD)
    await subject.amend(Change.REQUEUE, tasks["a"])
    equal(await states(subject, tasks), {"a": QUEUED, "b": CANCELED, "c": CANCELED}, "b stays, and c because of it")
    equal((await subject.get(tasks["c"])).canceled_because, tasks["b"], "which c names")
    await subject.amend(Change.REQUEUE, tasks["b"])
    equal(
        await states(subject, tasks), {"a": QUEUED, "b": WAITING, "c": WAITING}, "until b is requeued: parents are open"
    )
    await end(subject, tasks["a"])
    equal((await subject.get(tasks["b"])).status, QUEUED, "and go on")


@case("C8.1", "C10.4")
async def a_canceled_task_is_not_requeued_before_the_parent_that_failed(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=["a"])
    await end(subject, tasks["a"], DEAD)
    refusal = await subject.refuses(subject.amend(Change.REQUEUE, tasks["b"]), TaskNotReady)
    that(tasks["a"] in str(refusal), "the refusal names the parent")
    both = [tasks["b"], tasks["a"]]
    first, second = await subject.store.amend(Change.REQUEUE, both, actor=OPERATOR)
    that(isinstance(first, TaskNotReady) and not isinstance(second, Exception), "one by one")
    equal(await states(subject, tasks), {"a": QUEUED, "b": WAITING}, "the parent brings it along")


@case("C8.1", "C10.4")
async def a_task_that_was_canceled_while_its_parents_ended_is_requeued_at_once(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=["a"])
    await subject.amend(Change.CANCEL, tasks["b"])
    await end(subject, tasks["a"])
    equal((await subject.get(tasks["b"])).status, CANCELED, "the end of a parent does not undo it")
    await subject.amend(Change.REQUEUE, tasks["b"])
    equal((await subject.get(tasks["b"])).status, QUEUED, "nothing is left to wait for")


@case("C10.4", "C10.2")
async def a_dead_member_that_completes_after_all_queues_the_finalizer(subject: Subject) -> None:
    members, last = chord(70)
    await subject.submit_all(*members, last)
    claims = await subject.claim_many()
    await subject.settle(claims[3].lease, DEAD)
    await settle_all(subject, claims[:3] + claims[4:])
    equal((await subject.get(last.id)).status, CANCELED, "one member is dead")
    await subject.amend(Change.REQUEUE, claims[3].task_id)
    equal((await subject.get(last.id)).status, WAITING, "it is back")
    await end(subject, claims[3].task_id)
    equal((await subject.get(last.id)).status, QUEUED, "and was the only one to wait for")
    equal((await subject.kinds(last.id)).count("task.ready"), 1, "once")
