"""Section 7: the end of an attempt, what is recorded with it, and who may not record one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast import ids
from holdfast.errors import DatasetNotFound, HoldfastError, IdempotencyConflict, InvalidTask, LeaseLost, TaskNotFound
from holdfast.model.backoff import Backoff, Delays, Exponential, Fixed, Linear
from holdfast.model.claim import Lease
from holdfast.model.outcome import Completed, Emitted, ErrorInfo, Failed, Outcome, Released, Settlement, Snoozed
from holdfast.model.output import Pin
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change, Settled
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import equal, present, that
from holdfast.testing.conformance.promise import OUTCOMES
from holdfast.testing.conformance.registry import case, register
from holdfast.testing.conformance.subject import Subject, guessed, new_task

BROKE = Failed(ErrorInfo("it broke", "Broken"))
HOPELESS = Failed(ErrorInfo("no such account", "NoAccount"), unrecoverable=True)


# The fence


@case("C7")
async def a_settle_is_refused_unless_task_attempt_and_token_are_current(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    other = (await subject.claim(await subject.submit())).lease
    strangers = [
        guessed(lease),
        Lease(lease.task_id, lease.attempt + 1, lease.token),
        Lease(lease.task_id, lease.attempt - 1, lease.token),
        Lease(other.task_id, lease.attempt, lease.token),
        Lease(lease.task_id, lease.attempt, ""),
    ]
    for stranger in strangers:
        for outcome in OUTCOMES:
            await subject.refuses(subject.settle(stranger, outcome), LeaseLost)
    await subject.settle(lease, Completed())


@case("C7", "C7.1", "C0.2")
async def a_stale_settle_leaves_nothing_behind(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    await subject.expire(lease.task_id)
    follow_up, emitted = new_task(), Emitted("invoice.sent", {"no": 7})
    for stale in (lease, guessed(lease)):
        settled = subject.settle(stale, Completed(), emitted=(emitted,), follow_ups=(follow_up,))
        await subject.refuses(settled, LeaseLost)
    equal(await subject.store.get(follow_up.id), None, "no follow-up")


@case("C7", "C0.2")
async def a_late_settle_after_another_claim_is_refused(subject: Subject) -> None:
    """1. A's lease expires. 2. B claims the task. 3. A comes back and settles. 4. B settles."""
    task_id = await subject.submit()
    late = (await subject.claim(task_id, worker_id="a")).lease
    await subject.expire(task_id)
    current = (await subject.claim(task_id, worker_id="b")).lease
    for outcome in OUTCOMES:
        await subject.refuses(subject.settle(late, outcome), LeaseLost)
    await subject.settle(current, Completed('"b"'))
    await subject.refuses(subject.settle(late, Completed('"a"')), LeaseLost)
    equal((await subject.get(task_id)).result, "b", "the result is that of the lease's owner")


@case("C7")
async def a_reaped_attempt_cannot_be_settled(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    await subject.expire(lease.task_id)
    await subject.reap()
    for outcome in OUTCOMES:
        await subject.refuses(subject.settle(lease, outcome), LeaseLost)


# The same settle again


def _replay_case(name: str, outcome: Outcome, *, cancel_first: bool) -> None:
    async def prove(subject: Subject) -> None:
        lease = (await subject.claim(await subject.submit())).lease
        if cancel_first:
            await subject.amend(Change.CANCEL, lease.task_id)
        follow_ups, emitted = (new_task(),), (Emitted("custom", {"n": 1}),)
        first = await subject.settle(lease, outcome, emitted=emitted, follow_ups=follow_ups)
        subject.clock.advance(100)
        async with subject.unchanged():
            for store in (subject.store, await subject.another_handle()):
                again = await store.settle([Settlement(lease, outcome, emitted, follow_ups)])
                equal(again, [first], "it answers as the first time")
        for other in OUTCOMES:
            if other.kind != outcome.kind:
                await subject.refuses(subject.settle(lease, other), LeaseLost)
        await subject.refuses(subject.settle(guessed(lease), outcome), LeaseLost)
        await subject.refuses(subject.settle(Lease(lease.task_id, 2, lease.token), outcome), LeaseLost)

    register(name, ("C7", "C8.2") if cancel_first else ("C7",), prove)


for _outcome in OUTCOMES:
    _replay_case(f"a_settle_as_{_outcome.kind}_can_be_repeated", _outcome, cancel_first=False)
    _replay_case(f"a_settle_as_{_outcome.kind}_after_a_cancel_can_be_repeated", _outcome, cancel_first=True)


@case("C7")
async def a_repeated_settle_answers_as_the_first_time_also_after_a_requeue(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    first = await subject.settle(lease, HOPELESS)
    await subject.amend(Change.REQUEUE, lease.task_id)
    async with subject.unchanged():
        equal(await subject.settle(lease, HOPELESS), first, "it answers as the first time")
    await subject.claim(lease.task_id)
    await subject.refuses(subject.settle(lease, HOPELESS), LeaseLost)


@case("C7")
async def the_same_settle_sent_at_once_is_recorded_once(subject: Subject) -> None:
    """1. A settle hangs. 2. The worker sends it again, on other connections. 3. All of them arrive together."""
    leases = [(await subject.claim(await subject.submit())).lease for _ in range(5)]
    settlements = [Settlement(lease, BROKE) for lease in leases]

    async def act(store: Store) -> list[Settled | HoldfastError]:
        return await store.settle(settlements)

    answers = await subject.race([act] * 6)
    equal(answers, [[Settled(lease.task_id, 1, TaskStatus.QUEUED) for lease in leases]] * 6, "all are told the same")
    for lease in leases:
        equal((await subject.get(lease.task_id)).failures, 1, "one failure is counted")


@case("C7")
async def different_settles_of_one_attempt_at_once_give_one_end(subject: Subject) -> None:
    """1. One attempt is settled in five ways at the same moment. 2. One is recorded; the others are refused."""
    lease = (await subject.claim(await subject.submit())).lease

    def act_of(outcome: Outcome) -> Any:
        async def act(store: Store) -> object:
            return (await store.settle([Settlement(lease, outcome)]))[0]

        return act

    answers = await subject.race([act_of(outcome) for outcome in OUTCOMES])
    equal([type(answer) for answer in answers].count(Settled), 1, "one end")
    equal([type(answer) for answer in answers].count(LeaseLost), 4, "the others are told that they lost it")


@case("C7")
async def many_attempts_are_settled_in_one_call_each_for_itself(subject: Subject) -> None:
    await subject.submit_all(*(new_task() for _ in range(4)))
    one, two, three, four = (claim.lease for claim in await subject.claim_many())
    unknown = Lease(ids.task_id(), 1, ids.token())
    settlements = [
        Settlement(one, Completed()),
        Settlement(guessed(two), Completed()),
        Settlement(three, BROKE),
        Settlement(unknown, Completed()),
        Settlement(one, Completed()),
        Settlement(four, Released()),
    ]
    answers = await subject.store.settle(settlements)
    shown = [answer.status if isinstance(answer, Settled) else type(answer) for answer in answers]
    completed, queued = TaskStatus.COMPLETED, TaskStatus.QUEUED
    equal(shown, [completed, LeaseLost, queued, TaskNotFound, completed, queued], "one answer each, in order")
    equal((await subject.get(two.task_id)).status, TaskStatus.RUNNING, "the refused one runs on")
    equal(await subject.store.settle([]), [], "none for none")


# Complete


@case("C7.1")
async def complete_records_result_end_and_event(subject: Subject) -> None:
    task_id = await subject.submit()
    lease = (await subject.claim(task_id, worker_id="worker-9")).lease
    subject.clock.advance(4)
    equal(await subject.settle(lease, Completed('{"ok":true}')), Settled(task_id, 1, TaskStatus.COMPLETED), "settled")
    task = await subject.get(task_id)
    equal(
        (task.status, task.result, task.finished_at), (TaskStatus.COMPLETED, {"ok": True}, subject.clock.now()), "end"
    )
    equal((task.claimed_by, task.lease_expires_at), (None, None), "the lease is cleared")
    last = (await subject.events(task_id))[-1]
    equal((last.kind, last.actor, last.payload["attempt"]), ("task.completed", "worker-9", 1), "its event")


@case("C7.1")
async def emitted_events_are_recorded_with_any_settle_and_before_its_own(subject: Subject) -> None:
    for outcome in OUTCOMES:
        lease = (await subject.claim(await subject.submit())).lease
        emitted = (Emitted("invoice.sent", {"no": 7}), Emitted("invoice.paid", {"no": 8}))
        await subject.settle(lease, outcome, emitted=emitted)
        events = (await subject.events(lease.task_id))[2:4]
        equal([event.kind for event in events], ["invoice.sent", "invoice.paid"], "in order, before the settle's own")
        equal([event.payload["no"] for event in events], [7, 8], "with their data")
        equal({event.actor for event in events}, {"worker-1"}, "told by the worker")


@case("C7.1")
async def follow_ups_are_enqueued_with_the_completion(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    first, second = new_task(name="first", priority=-1), new_task(name="second", delay_seconds=60)
    await subject.settle(lease, Completed(), follow_ups=(first, second))
    equal((await subject.claim()).task_id, first.id, "the first can run")
    equal((await subject.get(second.id)).run_at, subject.clock.now() + timedelta(seconds=60), "the second is scheduled")
    equal(await subject.kinds(second.id), ["task.enqueued"], "each with its event")


@case("C7.1")
async def follow_ups_are_enqueued_with_a_completion_or_not_at_all(subject: Subject) -> None:
    for outcome in OUTCOMES[1:]:
        lease = (await subject.claim(await subject.submit())).lease
        follow_up = new_task()
        await subject.settle(lease, outcome, follow_ups=(follow_up,))
        equal(await subject.store.get(follow_up.id), None, f"none after {outcome.kind}")


@case("C7.1", "C3.3")
async def a_completion_whose_follow_up_is_refused_is_refused_whole(subject: Subject) -> None:
    await subject.submit(name="charge", idempotency_key="k", delay_seconds=60)
    lease = (await subject.claim(await subject.submit())).lease
    clash = new_task(name="refund", idempotency_key="k")
    emitted = (Emitted("invoice.sent", {}),)
    settled = subject.settle(lease, Completed(), emitted=emitted, follow_ups=(new_task(), clash))
    await subject.refuses(settled, IdempotencyConflict)
    equal((await subject.settle(lease, Completed())).status, TaskStatus.COMPLETED, "without it, it is recorded")


@case("C7.1", "C4.2")
async def a_follow_up_with_a_known_key_is_the_existing_task(subject: Subject) -> None:
    known = await subject.submit(idempotency_key="k", delay_seconds=60)
    lease = (await subject.claim(await subject.submit())).lease
    follow_up = new_task(idempotency_key="k")
    await subject.settle(lease, Completed(), follow_ups=(follow_up,))
    equal(await subject.store.get(follow_up.id), None, "no second task")
    equal(present(await subject.store.find("k"), "the key's task").id, known, "the key keeps its task")


# Fail


@case("C7.2")
async def a_retryable_failure_goes_back_to_the_queue(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=2, backoff=Fixed(7.0))
    lease = (await subject.claim(task_id)).lease
    equal(await subject.settle(lease, BROKE), Settled(task_id, 1, TaskStatus.QUEUED), "settled")
    task = await subject.get(task_id)
    equal((task.status, task.failures, task.attempt), (TaskStatus.QUEUED, 1, 1), "queued, one failure")
    equal(task.run_at, subject.clock.now() + timedelta(seconds=7), "after its backoff")
    equal((task.claimed_by, task.lease_expires_at, task.finished_at), (None, None, None), "the lease is cleared")
    equal(present(task.last_error, "last_error")["terminal"], False, "not terminal")
    equal((await subject.kinds(task_id))[-2:], ["task.failed", "task.requeued"], "both events")


@case("C7.2", "C7.3")
async def exactly_max_attempts_failures_make_a_dead_letter(subject: Subject) -> None:
    for budget in (1, 2, 5):
        task_id = await subject.submit(max_attempts=budget, backoff=Fixed(0.0))
        statuses = [(await subject.settle((await subject.claim(task_id)).lease, BROKE)).status for _ in range(budget)]
        expected = [TaskStatus.QUEUED] * (budget - 1) + [TaskStatus.FAILED]
        equal(statuses, expected, f"a budget of {budget}")
        equal((await subject.get(task_id)).failures, budget, "all are counted")


@case("C7.2")
async def a_budget_of_nought_is_unlimited(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=0, backoff=Fixed(0.0))
    for number in range(1, 31):
        settled = await subject.settle((await subject.claim(task_id)).lease, BROKE)
        equal(settled, Settled(task_id, number, TaskStatus.QUEUED), "again and again")
    equal((await subject.get(task_id)).failures, 30, "all are counted")


@case("C7.3")
async def an_unrecoverable_failure_is_a_dead_letter_at_once(subject: Subject) -> None:
    for budget in (0, 5):
        task_id = await subject.submit(max_attempts=budget)
        await subject.settle((await subject.claim(task_id)).lease, HOPELESS)
        task = await subject.get(task_id)
        equal((task.status, task.failures), (TaskStatus.FAILED, 1), "failed, one failure")
        equal((task.finished_at, task.claimed_by, task.lease_expires_at), (subject.clock.now(), None, None), "ended")
        equal(present(task.last_error, "last_error")["terminal"], True, "terminal")
        equal((await subject.kinds(task_id))[-1], "task.failed", "one event")


@case("C7.2")
async def a_failure_may_bring_its_own_delay(subject: Subject) -> None:
    task_id = await subject.submit(backoff=Fixed(7.0))
    lease = (await subject.claim(task_id)).lease
    await subject.settle(lease, Failed(ErrorInfo("slow down"), retry_after_seconds=0.25))
    equal((await subject.get(task_id)).run_at - subject.clock.now(), timedelta(seconds=0.25), "instead of the backoff")


@case("C7.7")
async def a_timeout_is_a_retryable_failure(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=2, timeout=5.0, backoff=Fixed(0.0))
    timed_out = Failed(ErrorInfo("ran for longer than 5 s", "timeout"))
    statuses = [(await subject.settle((await subject.claim(task_id)).lease, timed_out)).status for _ in range(2)]
    equal(statuses, [TaskStatus.QUEUED, TaskStatus.FAILED], "it is tried again, within the budget")
    equal(present((await subject.get(task_id)).last_error, "last_error")["code"], "timeout", "with its code")


# Snooze, release


@case("C7.4")
async def a_snooze_costs_nothing(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=2)
    await subject.settle((await subject.claim(task_id)).lease, BROKE)
    subject.clock.advance(60)
    for _ in range(5):
        settled = await subject.settle((await subject.claim(task_id)).lease, Snoozed(30.0))
        equal(settled.status, TaskStatus.QUEUED, "back to the queue")
        task = await subject.get(task_id)
        equal((task.failures, task.run_at), (1, subject.clock.now() + timedelta(seconds=30)), "later, nothing counted")
        equal((task.claimed_by, task.lease_expires_at), (None, None), "the lease is cleared")
        subject.clock.advance(30)
    equal((await subject.kinds(task_id))[-1], "task.snoozed", "its event")


@case("C7.4")
async def a_release_leaves_run_at_and_failures_as_they_are(subject: Subject) -> None:
    task_id = await subject.submit()
    run_at = (await subject.get(task_id)).run_at
    subject.clock.advance(10)
    for attempt in (1, 2, 3):
        await subject.settle((await subject.claim(task_id)).lease, Released())
        task = await subject.get(task_id)
        equal((task.status, task.attempt), (TaskStatus.QUEUED, attempt), "back to the queue")
        equal((task.failures, task.run_at, task.claimed_by), (0, run_at, None), "as if never claimed")
    equal((await subject.kinds(task_id))[-1], "task.released", "its event")


# Backoff


async def _delays(subject: Subject, backoff: Backoff, count: int) -> list[float]:
    task_id = await subject.submit(max_attempts=0, backoff=backoff)
    delays = []
    for _ in range(count):
        await subject.settle((await subject.claim(task_id)).lease, BROKE)
        run_at = (await subject.get(task_id)).run_at
        delays.append((run_at - subject.clock.now()).total_seconds())
        subject.clock.advance_to(run_at)
    return delays


@case("C7.5")
async def the_default_backoff_doubles_up_to_its_cap_and_is_spread(subject: Subject) -> None:
    plain = [1.5, 3, 6, 12, 24, 48, 60, 60]
    for wanted, got in zip(plain, await _delays(subject, Exponential(), len(plain)), strict=True):
        that(0.7 * wanted - 0.001 <= got <= 1.3 * wanted + 0.001, f"{got} s is {wanted} s, give or take 30 %")
        equal(round(got * 1000) / 1000, got, "whole milliseconds")


@case("C7.5")
async def every_backoff_travels_with_its_task(subject: Subject) -> None:
    expected: list[tuple[Backoff, list[float]]] = [
        (Exponential(base=2.0, cap=10.0, jitter=0.0), [2, 4, 8, 10, 10]),
        (Fixed(3.0), [3, 3, 3, 3, 3]),
        (Linear(4.0, cap=13.0), [4, 8, 12, 13, 13]),
        (Delays(1, 5, 30), [1, 5, 30, 30, 30]),
        (Fixed(0.0), [0, 0, 0, 0, 0]),
    ]
    for backoff, delays in expected:
        equal(await _delays(subject, backoff, 5), delays, f"{backoff}")


@case("C7.5", "C11.2")
async def the_event_and_the_record_tell_the_same_delay(subject: Subject) -> None:
    task_id = await subject.submit(backoff=Exponential())
    await subject.settle((await subject.claim(task_id)).lease, BROKE)
    delay_ms = round((await subject.get(task_id)).run_at.timestamp() * 1000) - round(
        subject.clock.now().timestamp() * 1000
    )
    failed = (await subject.events(task_id))[-2]
    equal(failed.payload["backoff_ms"], delay_ms, "backoff_ms of the event")
    equal(present((await subject.get(task_id)).last_error, "last_error")["backoff_ms"], delay_ms, "and of last_error")


@case("C7.1")
async def follow_ups_that_cannot_be_refuse_their_settlement_alone(subject: Subject) -> None:
    leases = [(await subject.claim(await subject.submit())).lease for _ in range(3)]
    orphan = new_task(run_id="r", parents=(ids.task_id(),))
    unread = new_task(inputs=(Pin("nothing", 2**40),))
    stale = guessed(leases[0])
    answers = await subject.store.settle(
        [
            Settlement(leases[0], Completed(), follow_ups=(orphan,)),
            Settlement(leases[1], Completed(), follow_ups=(unread,)),
            Settlement(stale, Completed(), follow_ups=(orphan,)),
            Settlement(leases[2], Completed()),
        ]
    )
    expected = (InvalidTask, DatasetNotFound, LeaseLost, Settled)
    equal(tuple(type(answer) for answer in answers), expected, "each for itself")
    for task_id in (orphan.id, unread.id):
        equal(await subject.store.get(task_id), None, "what was refused is not there")
    for lease in leases[:2]:
        await subject.settle(lease, Completed())
