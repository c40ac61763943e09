"""Section 5: what is claimable, in which order, and what a claim gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from holdfast.clock import iso, to_micros
from holdfast.errors import HoldfastError, TaskAlreadyClaimed, TaskFailed, TaskNotReady
from holdfast.model.claim import Claim, Claimed
from holdfast.model.outcome import Completed, Released
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import accepted, equal, refused, that
from holdfast.testing.conformance.registry import case
from holdfast.testing.conformance.subject import Subject, claim_request, new_task


def names(claims: list[Claim]) -> list[str]:
    return [claim.name for claim in claims]


# What is claimable


@case("C5.1")
async def a_task_is_claimable_from_its_run_at_on(subject: Subject) -> None:
    run_at = subject.clock.now() + timedelta(seconds=10)
    task_id = await subject.submit(run_at=run_at)
    subject.clock.advance(timedelta(seconds=10) - timedelta(microseconds=1))
    equal(await subject.claim_many(), [], "a microsecond too early")
    subject.clock.advance(timedelta(microseconds=1))
    equal((await subject.claim()).task_id, task_id, "due at that very instant")


@case("C5.1")
async def only_queued_tasks_are_claimed(subject: Subject) -> None:
    for status in TaskStatus:
        await subject.run_to(status, name=status.value)
    equal(names(await subject.claim_many()), ["queued"], "nothing else is claimed")


@case("C5.1", "C9.5")
async def a_paused_queue_is_not_claimed_from(subject: Subject) -> None:
    await subject.submit(queue="mail", name="held", priority=9)
    await subject.submit(queue="other", name="free")
    await subject.store.pause("mail", paused=True)
    equal(names(await subject.claim_many()), ["free"], "the other queue goes on")
    equal(await subject.claim_many(queues=("mail",)), [], "nothing from the paused one")
    await subject.store.pause("mail", paused=False)
    equal(names(await subject.claim_many()), ["held"], "and again once resumed")


@case("C5.1")
async def a_claim_takes_only_from_the_queues_it_names(subject: Subject) -> None:
    for queue in ("a", "b", "c"):
        await subject.submit(queue=queue, name=queue)
    equal(names(await subject.claim_many(queues=("c", "unheard-of"))), ["c"], "one queue")
    equal(sorted(names(await subject.claim_many(queues=("a", "b")))), ["a", "b"], "several queues")
    equal(await subject.claim_many(queues=()), [], "no queue, no task")


@case("C5.1", "C5.4")
async def a_claim_takes_at_most_its_limit(subject: Subject) -> None:
    await subject.submit_all(*(new_task() for _ in range(7)))
    equal([len(await subject.claim_many(3)) for _ in range(4)], [3, 3, 1, 0], "three at a time")


@case("C5.1")
async def a_short_claim_says_when_the_next_task_falls_due(subject: Subject) -> None:
    equal((await subject.ask(limit=5)).next_due_at, None, "nothing is scheduled")
    soon, later = (subject.clock.now() + timedelta(seconds=seconds) for seconds in (5, 50))
    await subject.submit(queue="a", run_at=later)
    await subject.submit(queue="b", run_at=soon)
    await subject.submit(queue="b")
    answer = await subject.ask(limit=5)
    equal((len(answer.claims), answer.next_due_at), (1, soon), "the earliest of all queues")
    equal((await subject.ask(limit=5, queues=("a",))).next_due_at, later, "the earliest of those asked for")
    await subject.submit()
    equal((await subject.ask(limit=1)).next_due_at, None, "a full claim does not say")


@case("C5.1", "C8.2")
async def a_canceled_task_does_not_fall_due(subject: Subject) -> None:
    soon, later = (subject.clock.now() + timedelta(seconds=seconds) for seconds in (5, 50))
    canceled = await subject.submit(run_at=soon)
    await subject.submit(run_at=later)
    await subject.amend(Change.CANCEL, canceled)
    equal((await subject.ask(limit=5)).next_due_at, later, "the next one that can still run")


# In which order


@case("C5.2")
async def claim_takes_the_highest_priority_first(subject: Subject) -> None:
    for priority in (0, 32767, -32768, 5, -1):
        await subject.submit(priority=priority)
    priorities = [claim.priority for claim in await subject.claim_many(2) + await subject.claim_many()]
    equal(priorities, [32767, 5, 0, -1, -32768], "highest first")


@case("C5.2")
async def equal_priority_goes_by_run_at(subject: Subject) -> None:
    now = subject.clock.now()
    for offset in (3, 1, 2):
        await subject.submit(name=str(offset), run_at=now + timedelta(seconds=offset))
    subject.clock.advance(10)
    equal(names(await subject.claim_many()), ["1", "2", "3"], "earliest due first")


@case("C5.2")
async def equal_run_at_goes_by_submission(subject: Subject) -> None:
    run_at = subject.clock.now()
    submitted = [await subject.submit(run_at=run_at) for _ in range(5)]
    equal([claim.task_id for claim in await subject.claim_many()], submitted, "first submitted, first claimed")


@case("C5.2")
async def order_holds_across_queues(subject: Subject) -> None:
    for number, (queue, priority) in enumerate([("a", 0), ("b", 1), ("a", 1), ("b", 0), ("c", 2)]):
        await subject.submit(name=str(number), queue=queue, priority=priority)
    equal(names(await subject.claim_many()), ["4", "1", "2", "0", "3"], "one order over all queues")


@case("C5.2")
async def a_task_that_arrives_late_with_an_early_run_at_is_not_overlooked(subject: Subject) -> None:
    for number in range(3):
        await subject.submit(name=str(number))
    subject.clock.advance(60)
    await subject.claim_many(1)
    await subject.submit(name="late", run_at=subject.clock.now() - timedelta(hours=1))
    equal(names(await subject.claim_many(1)), ["late"], "it comes before all that fell due after it")


@case("C5.2")
async def a_scheduled_task_of_high_priority_goes_first_once_it_is_due(subject: Subject) -> None:
    await subject.submit(name="now")
    await subject.submit(name="soon", priority=10, delay_seconds=5)
    await subject.submit(name="also now", priority=1)
    subject.clock.advance(5)
    equal(names(await subject.claim_many()), ["soon", "also now", "now"], "priority counts among what is due")


# What it gives


@case("C5.3")
async def a_claim_is_recorded(subject: Subject) -> None:
    task_id = await subject.submit()
    subject.clock.advance(3)
    claim = await subject.claim(worker_id="worker-9", lease_seconds=20.0)
    task, now = await subject.get(task_id), subject.clock.now()
    equal((task.status, task.attempt, task.claimed_by), (TaskStatus.RUNNING, 1, "worker-9"), "running")
    equal((task.started_at, task.claimed_at), (now, now), "since now")
    equal(task.lease_expires_at, now + timedelta(seconds=20), "for the length of the lease")
    equal((claim.lease.task_id, claim.lease.attempt, claim.worker_id), (task_id, 1, "worker-9"), "and so it is told")
    equal(claim.lease_expires_at, task.lease_expires_at, "with the lease's end")
    equal((await subject.events(task_id))[-1].kind, "task.running", "and its event")


@case("C5.3")
async def a_claim_carries_what_the_handler_needs(subject: Subject) -> None:
    new = new_task(queue="mail", payload="[1,2]", priority=4, max_attempts=7, timeout=9.5, run_id="r", meta='{"a":1}')
    await subject.submit_all(new)
    claim = await subject.claim()
    for field in ("name", "queue", "payload", "priority", "max_attempts", "timeout", "run_id", "meta"):
        equal(getattr(claim, field), getattr(new, field), f"{field} as submitted")
    equal((claim.failures, claim.lease_seconds), (0, 60.0), "failures and the length of the lease")
    equal((claim.created_at, claim.claimed_at), (subject.clock.now(),) * 2, "when it was made and claimed")


@case("C5.3")
async def every_attempt_has_a_new_token(subject: Subject) -> None:
    task_id = await subject.submit()
    leases = []
    for _ in range(5):
        leases.append((await subject.claim(task_id)).lease)
        await subject.settle(leases[-1], Released())
    equal([lease.attempt for lease in leases], [1, 2, 3, 4, 5], "attempts count claims")
    equal(len({lease.token for lease in leases}), 5, "no token is used twice")


@case("C5.3")
async def started_at_is_the_first_claim_and_claimed_at_the_latest(subject: Subject) -> None:
    task_id = await subject.submit()
    first = subject.clock.now()
    await subject.settle((await subject.claim(task_id)).lease, Released())
    subject.clock.advance(5)
    await subject.claim(task_id)
    task = await subject.get(task_id)
    equal((task.started_at, task.claimed_at), (first, subject.clock.now()), "first and latest")


@case("C5.3", "C0.2")
async def eight_claimers_at_once_never_share_a_task(subject: Subject) -> None:
    """1. Eight handles ask for tasks at once, in batches, until none are left. 2. Each task has been given out once."""
    submitted = [answer.id for answer in await subject.submit_all(*(new_task() for _ in range(64)))]
    answers = await subject.race([_claim_until_empty(f"worker-{number}") for number in range(8)])
    claims = [claim for answer in accepted(answers) for claim in answer]
    equal(Counter(claim.task_id for claim in claims), Counter(submitted), "each task once")
    for claim in claims:
        equal((await subject.get(claim.task_id)).claimed_by, claim.worker_id, "its record names its one claimer")


def _claim_until_empty(worker_id: str) -> Callable[[Store], Awaitable[list[Claim]]]:
    async def act(store: Store) -> list[Claim]:
        claims: list[Claim] = []
        while got := (await store.claim(claim_request(worker_id=worker_id, limit=3))).claims:
            claims += got
        return claims

    return act


@case("C5.3", "C5.4")
async def eight_claimers_of_one_task_by_id_give_one_lease(subject: Subject) -> None:
    """1. Eight handles are woken for the same task. 2. All claim it at once. 3. One has it, seven are refused."""
    task_id = await subject.submit()

    async def act(store: Store) -> Claimed:
        return await store.claim(claim_request(task_id=task_id))

    answers = await subject.race([act] * 8)
    refusals = [type(answer) for answer in answers if isinstance(answer, HoldfastError)]
    equal(refusals, [TaskAlreadyClaimed] * 7, "seven refusals")
    equal((await subject.get(task_id)).attempt, 1, "one attempt")


# The same claim again, and other claims of the same task


@case("C5.4")
async def the_same_claim_again_gives_the_same_leases(subject: Subject) -> None:
    await subject.submit_all(*(new_task(priority=number % 3) for number in range(6)))
    request = claim_request(limit=4)
    first = await subject.store.claim(request)
    subject.clock.advance(5)
    async with subject.unchanged():
        again = await (await subject.another_handle()).claim(request)
    equal(again.claims, first.claims, "the same leases in the same order")


@case("C5.4")
async def the_same_claim_by_id_again_gives_the_same_lease(subject: Subject) -> None:
    request = claim_request(task_id=await subject.submit())
    first = await subject.store.claim(request)
    async with subject.unchanged():
        equal((await subject.store.claim(request)).claims, first.claims, "the same lease")


@case("C5.4")
async def the_same_claim_sent_at_once_gives_one_set_of_leases(subject: Subject) -> None:
    """1. A claim hangs. 2. Its client sends it again, on other connections. 3. All of them arrive together."""
    await subject.submit_all(*(new_task() for _ in range(9)))
    request = claim_request(limit=3)

    async def act(store: Store) -> list[Claim]:
        return (await store.claim(request)).claims

    answers = await subject.race([act] * 6)
    equal(answers, [answers[0]] * 6, "all get the same leases")
    running = [task for task in (await subject.snapshot()).tasks if task.status is TaskStatus.RUNNING]
    equal(len(running), 3, "and no more than asked for are running")


@case("C5.4")
async def another_claim_of_a_running_task_is_refused_also_by_its_owner(subject: Subject) -> None:
    task_id = await subject.submit()
    await subject.claim(task_id, worker_id="worker-1")
    for worker_id in ("worker-1", "worker-2"):
        refusal = await subject.refuses(subject.claim(task_id, worker_id=worker_id), TaskAlreadyClaimed)
        that(task_id in str(refusal) and "worker-1" in str(refusal), "the refusal names task and owner")


@case("C5.4")
async def a_claim_by_id_of_a_task_that_is_not_due_says_when(subject: Subject) -> None:
    run_at = subject.clock.now() + timedelta(hours=1)
    task_id = await subject.submit(run_at=run_at)
    refusal = await subject.refuses(subject.claim(task_id), TaskNotReady)
    that(iso(to_micros(run_at)) in str(refusal), "the refusal says when it is due")
    subject.clock.advance(3600)
    equal((await subject.claim(task_id)).lease.attempt, 1, "then it is claimed")


@case("C5.4", "C9.5")
async def a_claim_by_id_of_a_held_task_says_why(subject: Subject) -> None:
    task_id = await subject.submit(queue="mail")
    await subject.store.pause("mail", paused=True)
    refusal = await subject.refuses(subject.claim(task_id), TaskNotReady)
    that("paused" in str(refusal) and "mail" in str(refusal), "the refusal names the paused queue")
    waiting = await subject.run_to(TaskStatus.WAITING)
    refusal = await subject.refuses(subject.claim(waiting), TaskNotReady)
    that("parents" in str(refusal), "the refusal says that it waits for parents")


@case("C5.4")
async def a_claim_by_id_takes_that_task_before_better_ones(subject: Subject) -> None:
    await subject.submit(priority=9)
    task_id = await subject.submit(queue="other")
    equal((await subject.claim(task_id)).task_id, task_id, "the one that was named")


@case("C5.4")
async def a_claim_id_that_holds_a_lease_gives_no_other(subject: Subject) -> None:
    first, second = await subject.submit(), await subject.submit()
    one = claim_request(task_id=first)
    granted = (await subject.store.claim(one)).claims
    equal([claim.task_id for claim in granted], [first], "the task named")
    async with subject.unchanged():
        for repeated in (msgspec.structs.replace(one, task_id=second), msgspec.structs.replace(one, task_id=None)):
            equal((await subject.store.claim(repeated)).claims, granted, "what it has, whatever is asked")
    many = claim_request()
    best = (await subject.store.claim(many)).claims
    third = await subject.submit()
    async with subject.unchanged():
        again = await subject.store.claim(msgspec.structs.replace(many, task_id=third))
    equal(([claim.task_id for claim in best], again.claims), ([second], best), "nor by id after a batch")


@case("C5.4", "C5.3")
async def a_settled_claim_does_not_hold_its_claim_id(subject: Subject) -> None:
    first, second = await subject.submit(), await subject.submit()
    request = claim_request()
    claim = (await subject.store.claim(request)).claims[0]
    await subject.settle(claim.lease, Completed())
    again = (await subject.store.claim(request)).claims
    equal((claim.task_id, [one.task_id for one in again]), (first, [second]), "what has ended is not given again")


@case("C5.5", "C6.5")
async def an_expired_task_is_reaped_and_claimed_in_one_step(subject: Subject) -> None:
    task_id = await subject.submit()
    await subject.claim(task_id, worker_id="worker-1")
    await subject.expire(task_id)
    claim = await subject.claim(task_id, worker_id="worker-2")
    equal((claim.lease.attempt, claim.failures), (2, 1), "a second attempt, after one failure")
    events = (await subject.events(task_id))[-3:]
    equal([event.kind for event in events], ["task.failed", "task.requeued", "task.running"], "lost, back, running")
    equal({event.ts for event in events}, {subject.clock.now()}, "at one instant")


@case("C5.5", "C6.5")
async def an_expired_task_whose_budget_is_spent_is_reaped_by_a_claim_and_refused(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=1)
    await subject.claim(task_id)
    await subject.expire(task_id)
    await refused(subject.claim(task_id), TaskFailed)
    equal((await subject.get(task_id)).status, TaskStatus.FAILED, "it is a dead letter now")
    equal((await subject.kinds(task_id))[-1], "task.failed", "with its event")


@case("C5.4", "C6.5")
async def a_reaped_claim_is_not_given_again(subject: Subject) -> None:
    task_id = await subject.submit()
    request = claim_request(task_id=task_id)
    first = (await subject.store.claim(request)).claims[0]
    await subject.expire(task_id)
    await subject.reap()
    second = (await subject.store.claim(request)).claims[0]
    that(second.lease.token != first.lease.token, "a later attempt has a token of its own")
    equal(second.lease.attempt, 2, "and is another attempt")


@case("C5.1", "C8.2")
async def a_canceled_task_is_never_claimed(subject: Subject) -> None:
    task_id = await subject.submit()
    await subject.amend(Change.CANCEL, task_id)
    equal(await subject.claim_many(), [], "nothing to claim")
