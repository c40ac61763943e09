"""Section 8: what a person or a program may do to tasks that it does not own."""

from __future__ import annotations

from datetime import timedelta

from holdfast import ids
from holdfast.errors import HoldfastError, InvalidTask, LeaseLost, TaskNotFound
from holdfast.model.backoff import Fixed
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Settlement
from holdfast.model.query import Retention
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Amended, Change, Settled
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import accepted, equal, that
from holdfast.testing.conformance.promise import OUTCOMES
from holdfast.testing.conformance.registry import case, register
from holdfast.testing.conformance.subject import OPERATOR, Subject, claim_request, new_task

BROKE = Failed(ErrorInfo("it broke"))
DAY = timedelta(days=1)
ENDED = (TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELED)


# Requeue


@case("C8.1")
async def a_requeued_dead_letter_has_a_fresh_budget(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=2, backoff=Fixed(0.0))
    for _ in range(2):
        await subject.settle((await subject.claim(task_id)).lease, BROKE)
    subject.clock.advance(100)
    equal(await subject.amend(Change.REQUEUE, task_id), Amended(task_id, TaskStatus.QUEUED, changed=True), "queued")
    task = await subject.get(task_id)
    equal((task.failures, task.attempt, task.finished_at), (0, 2, None), "the budget is new, attempts go on")
    equal(task.run_at, subject.clock.now(), "it can run at once")
    statuses = [(await subject.settle((await subject.claim(task_id)).lease, BROKE)).status for _ in range(2)]
    equal(statuses, [TaskStatus.QUEUED, TaskStatus.FAILED], "and has all of its attempts again")
    equal((await subject.get(task_id)).attempt, 4, "counted on")


@case("C8.1")
async def a_requeue_clears_a_cancel_request(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit(max_attempts=1))).lease
    await subject.amend(Change.CANCEL, lease.task_id)
    await subject.settle(lease, BROKE)
    await subject.amend(Change.REQUEUE, lease.task_id)
    equal((await subject.get(lease.task_id)).cancel_requested_at, None, "nobody asks any more")
    settled = await subject.settle((await subject.claim(lease.task_id)).lease, BROKE)
    equal(settled.status, TaskStatus.FAILED, "so a failure is a failure again")


@case("C8.1")
async def many_are_requeued_in_one_call_each_for_itself(subject: Subject) -> None:
    failed = await subject.run_to(TaskStatus.FAILED)
    completed = await subject.run_to(TaskStatus.COMPLETED)
    canceled = await subject.run_to(TaskStatus.CANCELED)
    unknown = ids.task_id()
    answers = await subject.store.amend(Change.REQUEUE, [failed, completed, unknown, canceled], actor=OPERATOR)
    shown = [answer.status if isinstance(answer, Amended) else answer.code for answer in answers]
    queued = TaskStatus.QUEUED
    equal(shown, [queued, "task_completed", "task_not_found", queued], "one answer each, in order")
    equal(await subject.store.amend(Change.REQUEUE, [], actor=OPERATOR), [], "none for none")


@case("C8.1", "C11.2")
async def a_requeue_names_its_actor_and_reason(subject: Subject) -> None:
    task_id = await subject.run_to(TaskStatus.FAILED)
    await subject.amend(Change.REQUEUE, task_id)
    last = (await subject.events(task_id))[-1]
    equal((last.kind, last.actor, last.payload["reason"]), ("task.requeued", OPERATOR, "requeue"), "its event")


# Cancel


@case("C8.2")
async def what_does_not_run_is_canceled_at_once(subject: Subject) -> None:
    for status in (TaskStatus.WAITING, TaskStatus.QUEUED):
        task_id = await subject.run_to(status)
        canceled = Amended(task_id, TaskStatus.CANCELED, changed=True)
        equal(await subject.amend(Change.CANCEL, task_id), canceled, f"canceled while {status.value}")
        task = await subject.get(task_id)
        equal((task.status, task.finished_at), (TaskStatus.CANCELED, subject.clock.now()), "it has ended")
        last = (await subject.events(task_id))[-1]
        equal((last.kind, last.actor), ("task.canceled", OPERATOR), "its event")


@case("C8.2")
async def a_running_task_is_asked_first(subject: Subject) -> None:
    claim = await subject.claim(await subject.submit())
    task_id = claim.task_id
    subject.clock.advance(5)
    asked = Amended(task_id, TaskStatus.RUNNING, changed=True)
    equal(await subject.amend(Change.CANCEL, task_id), asked, "asked")
    task = await subject.get(task_id)
    equal((task.status, task.cancel_requested_at), (TaskStatus.RUNNING, subject.clock.now()), "it is asked for")
    equal((task.claimed_by, task.lease_expires_at), (claim.worker_id, claim.lease_expires_at), "the lease goes on")
    equal((await subject.kinds(task_id))[-1], "task.cancel_requested", "its event")
    subject.clock.advance(5)
    async with subject.unchanged():
        equal((await subject.amend(Change.CANCEL, task_id)).changed, False, "asking again changes nothing")


def _asked_case(kind: str, status: TaskStatus) -> None:
    outcome = next(outcome for outcome in OUTCOMES if outcome.kind == kind)

    async def prove(subject: Subject) -> None:
        lease = (await subject.claim(await subject.submit())).lease
        await subject.amend(Change.CANCEL, lease.task_id)
        equal(await subject.settle(lease, outcome), Settled(lease.task_id, 1, status), f"ends {status.value}")
        task = await subject.get(lease.task_id)
        equal((task.status, task.failures, task.finished_at), (status, 0, subject.clock.now()), "and is recorded so")
        equal((await subject.kinds(lease.task_id))[-1], f"task.{status.value}", "its event")

    register(f"a_task_asked_to_cancel_and_{kind}_ends_{status.value}", ("C8.2",), prove)


_asked_case("completed", TaskStatus.COMPLETED)
for _kind in ("failed", "snoozed", "released", "canceled"):
    _asked_case(_kind, TaskStatus.CANCELED)


@case("C8.2")
async def a_cancel_and_a_claim_at_once_leave_one_truth(subject: Subject) -> None:
    """1. A task is queued. 2. A worker claims it while a person cancels it.

    3. Either it is canceled and not claimed, or it runs and is asked to cancel.
    """
    task_ids = [await subject.submit() for _ in range(12)]

    async def cancel(store: Store) -> set[str]:
        answers = await store.amend(Change.CANCEL, task_ids, actor=OPERATOR)
        return {a.task_id for a in answers if isinstance(a, Amended) and a.status is TaskStatus.CANCELED}

    async def claim(store: Store) -> set[str]:
        return {claim.task_id for claim in (await store.claim(claim_request(limit=12))).claims}

    canceled, claimed = accepted(await subject.race([cancel, claim]))
    equal((canceled & claimed, canceled | claimed), (set(), set(task_ids)), "one or the other")
    for task_id in claimed:
        task = await subject.get(task_id)
        that(task.status is TaskStatus.RUNNING and task.cancel_requested_at is not None, "running, and asked")


# Delete


@case("C8.3")
async def an_ended_task_is_deleted_with_its_events(subject: Subject) -> None:
    other = await subject.submit()
    for status in ENDED:
        task_id = await subject.run_to(status, idempotency_key=f"key-{status.value}")
        equal(
            await subject.amend(Change.DELETE, task_id), Amended(task_id, None, changed=True), f"{status.value}: gone"
        )
        equal(await subject.store.get(task_id), None, "no record")
        equal(await subject.store.find(f"key-{status.value}"), None, "no key")
        events = await subject.events(task_id)
        equal([(event.kind, event.actor) for event in events], [("task.deleted", OPERATOR)], "only its end is told")
    equal([task.id for task in (await subject.snapshot()).tasks], [other], "nothing else went")
    equal({info.name: info.counts for info in await subject.store.queues()}, {"default": {"queued": 1}}, "nor counts")


@case("C8.3")
async def a_deleted_task_is_unknown_to_every_verb(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    await subject.settle(lease, Completed())
    await subject.amend(Change.DELETE, lease.task_id)
    await subject.refuses(subject.settle(lease, Completed()), TaskNotFound)
    await subject.refuses(subject.extend(lease), TaskNotFound)
    await subject.refuses(subject.claim(lease.task_id), TaskNotFound)
    for change in Change:
        await subject.refuses(subject.amend(change, lease.task_id), TaskNotFound)


@case("C8.3")
async def a_member_of_a_live_run_is_not_deleted(subject: Subject) -> None:
    ended = await subject.run_to(TaskStatus.COMPLETED, run_id="run-1")
    live = await subject.submit(run_id="run-1")
    refusal = await subject.refuses(subject.amend(Change.DELETE, ended), InvalidTask)
    that("run-1" in str(refusal), "the refusal names the run")
    await subject.amend(Change.CANCEL, live)
    equal((await subject.amend(Change.DELETE, ended)).status, None, "once the run has ended it goes")
    equal((await subject.amend(Change.DELETE, live)).status, None, "and so does the other")


# Release by force


@case("C8.4")
async def a_release_by_force_fences_the_owner_off(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=2, backoff=Fixed(0.0))
    await subject.settle((await subject.claim(task_id)).lease, BROKE)
    lease = (await subject.claim(task_id)).lease
    subject.clock.advance(5)
    released = Amended(task_id, TaskStatus.QUEUED, changed=True)
    equal(await subject.amend(Change.RELEASE, task_id), released, "queued again")
    task = await subject.get(task_id)
    equal((task.failures, task.claimed_by, task.lease_expires_at), (1, None, None), "no failure is counted")
    equal(task.run_at, subject.clock.now(), "it can run at once")
    await subject.refuses(subject.extend(lease), LeaseLost)
    for outcome in OUTCOMES:
        await subject.refuses(subject.settle(lease, outcome), LeaseLost)
    last = (await subject.events(task_id))[-1]
    equal((last.kind, last.actor, last.payload["reason"]), ("task.requeued", OPERATOR, "operator"), "its event")
    equal((await subject.claim(task_id)).lease.attempt, 3, "another worker takes it")


@case("C8.4", "C8.2")
async def a_release_by_force_of_a_task_asked_to_cancel_cancels_it(subject: Subject) -> None:
    task_id = await subject.run_to(TaskStatus.RUNNING)
    await subject.amend(Change.CANCEL, task_id)
    equal((await subject.amend(Change.RELEASE, task_id)).status, TaskStatus.CANCELED, "as was asked")


@case("C8.4")
async def a_settle_and_a_release_by_force_end_an_attempt_once(subject: Subject) -> None:
    """1. An operator releases a task. 2. Its owner completes it at that moment. 3. One of the two is refused."""
    leases = [(await subject.claim(await subject.submit())).lease for _ in range(12)]

    async def settle(store: Store) -> list[object]:
        return [(await store.settle([Settlement(lease, Completed())]))[0] for lease in leases]

    async def release(store: Store) -> list[object]:
        return [(await store.amend(Change.RELEASE, [lease.task_id], actor=OPERATOR))[0] for lease in reversed(leases)]

    settled, released = accepted(await subject.race([settle, release]))
    for lease, mine, theirs in zip(leases, settled, reversed(released), strict=True):
        that(isinstance(mine, HoldfastError) != isinstance(theirs, HoldfastError), "one is refused, not both")
        status = TaskStatus.QUEUED if isinstance(mine, HoldfastError) else TaskStatus.COMPLETED
        equal((await subject.get(lease.task_id)).status, status, "the record agrees with the answers")


# Retention


@case("C8.5")
async def retention_keeps_what_is_young_alive_or_dead_lettered(subject: Subject) -> None:
    tasks = {status: await subject.run_to(status) for status in TaskStatus}
    subject.clock.advance(7 * DAY - timedelta(microseconds=1))
    equal(await subject.store.prune(Retention(), limit=100), 0, "not before seven days")
    subject.clock.advance(timedelta(microseconds=1))
    equal(await subject.store.prune(Retention(), limit=100), 2, "then completed and canceled ones go")
    left = {task.id for task in (await subject.snapshot()).tasks if task.queue != "parents"}
    gone = {tasks[TaskStatus.COMPLETED], tasks[TaskStatus.CANCELED]}
    equal(left, set(tasks.values()) - gone, "dead letters and live tasks stay")
    equal({event.task_id for event in await subject.events()} & set(tasks.values()), left, "events go with their task")


@case("C8.5")
async def retention_is_set_by_kind_of_end(subject: Subject) -> None:
    tasks = {status: await subject.run_to(status) for status in ENDED}
    subject.clock.advance(2 * DAY)
    keep = Retention(completed=None, canceled=3 * DAY, failed=DAY)
    equal(await subject.store.prune(keep, limit=100), 1, "only the dead letter is old enough")
    left = {task.id for task in (await subject.snapshot()).tasks}
    equal(left, {tasks[TaskStatus.COMPLETED], tasks[TaskStatus.CANCELED]}, "the others stay")
    subject.clock.advance(1000 * DAY)
    equal(await subject.store.prune(keep, limit=100), 1, "later the canceled one")
    equal(await subject.store.prune(keep, limit=100), 0, "None keeps for ever")


@case("C8.5")
async def pruning_goes_in_bounded_batches(subject: Subject) -> None:
    await subject.submit_all(*(new_task() for _ in range(7)))
    await subject.store.settle([Settlement(claim.lease, Completed()) for claim in await subject.claim_many()])
    subject.clock.advance(8 * DAY)
    equal([await subject.store.prune(Retention(), limit=3) for _ in range(4)], [3, 3, 1, 0], "three at a time")
    equal((await subject.snapshot())[:2], ([], []), "nothing is left")


@case("C8.5")
async def pruning_spares_members_of_a_live_run(subject: Subject) -> None:
    ended = [await subject.run_to(TaskStatus.COMPLETED, run_id="run-1") for _ in range(3)]
    live = await subject.submit(run_id="run-1")
    alone = await subject.run_to(TaskStatus.COMPLETED, run_id="run-2")
    subject.clock.advance(8 * DAY)
    equal(await subject.store.prune(Retention(), limit=100), 1, "only the run that has ended")
    equal(await subject.store.get(alone), None, "goes")
    await subject.amend(Change.CANCEL, live)
    equal(await subject.store.prune(Retention(), limit=2), 2, "once the other has ended, its members go")
    equal(await subject.store.prune(Retention(), limit=100), len(ended) - 2, "batch by batch")


@case("C8.5", "C8.1")
async def a_requeued_task_starts_its_retention_anew(subject: Subject) -> None:
    task_id = await subject.run_to(TaskStatus.CANCELED)
    subject.clock.advance(6 * DAY)
    await subject.amend(Change.REQUEUE, task_id)
    subject.clock.advance(6 * DAY)
    equal(await subject.store.prune(Retention(), limit=100), 0, "a live task stays")
    await subject.settle((await subject.claim(task_id)).lease, Completed())
    subject.clock.advance(6 * DAY)
    equal(await subject.store.prune(Retention(), limit=100), 0, "its age counts from its latest end")


@case("C8.5", "C8.3")
async def the_last_word_on_a_deleted_task_is_kept_as_long_as_a_completed_one(subject: Subject) -> None:
    task_id = await subject.run_to(TaskStatus.FAILED)
    await subject.amend(Change.DELETE, task_id)
    subject.clock.advance(7 * DAY - timedelta(microseconds=1))
    await subject.store.prune(Retention(), limit=100)
    equal(await subject.kinds(task_id), ["task.deleted"], "not before seven days")
    subject.clock.advance(timedelta(microseconds=1))
    await subject.store.prune(Retention(completed=None), limit=100)
    equal(await subject.kinds(task_id), ["task.deleted"], "nor where completed tasks are kept for ever")
    equal(await subject.store.prune(Retention(), limit=100), 0, "it does not count as a task")
    equal(await subject.events(), [], "then it goes too")
