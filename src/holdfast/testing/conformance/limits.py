"""Section 9 of the contract: how many may run, how fast they may start, and in which order within a key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from holdfast.clock import iso, to_micros
from holdfast.errors import InvalidTask, TaskNotReady
from holdfast.model.claim import Claim
from holdfast.model.limits import NO_LIMITS, WHOLE_STORE, Limits, Rate
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Outcome, Released, Settlement, Snoozed
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import accepted, equal, present, that
from holdfast.testing.conformance.registry import Proof
from holdfast.testing.conformance.registry import case as plain_case
from holdfast.testing.conformance.subject import Subject, claim_request, new_task

DEAD = Failed(ErrorInfo("no such account"), unrecoverable=True)


def case(*clauses: str) -> Callable[[Proof], Proof]:
    return plain_case(*clauses, needs=("limits",))


async def limit(subject: Subject, queue: str = "default", **changes: Any) -> Limits:
    return await subject.store.limit(queue, changes)


async def fill(subject: Subject, number: int, **fields: Any) -> list[str]:
    tasks = [new_task(**fields) for _ in range(number)]
    await subject.submit_all(*tasks)
    return [new.id for new in tasks]


async def complete(subject: Subject, claims: Sequence[Claim]) -> None:
    accepted(await subject.store.settle([Settlement(claim.lease, Completed()) for claim in claims]))


async def taken(subject: Subject, limit: int = 100, **fields: Any) -> list[str]:
    return [claim.task_id for claim in await subject.claim_many(limit, **fields)]


# What is set


@case("C9.5")
async def limits_are_kept_and_shown(subject: Subject) -> None:
    await subject.submit(queue="mail")
    made = await limit(subject, "mail", max_running=10, rate="100/s", burst=5, max_running_per_key=2)
    expected = Limits(max_running=10, rate=Rate(100, 1.0), burst=5, max_running_per_key=2)
    equal(made, expected, "the answer is what holds now")
    other = await subject.another_handle()
    shown = {info.name: info.limits for info in await other.queues()}
    equal(shown["mail"], expected, "everybody sees it")
    made = await limit(subject, "mail", max_running=3)
    equal(made, Limits(max_running=3, rate=Rate(100, 1.0), burst=5, max_running_per_key=2), "the rest stays")
    made = await limit(subject, "mail", rate=None, burst=None, max_running=None)
    equal(made, Limits(max_running_per_key=2), "None clears")
    equal(await limit(subject, "mail", max_running_per_key=None), NO_LIMITS, "all of them")
    equal({info.name: info.limits for info in await other.queues()}["mail"], NO_LIMITS, "for everybody")
    equal(await limit(subject, "unseen", max_running=1), Limits(max_running=1), "also for a queue without tasks")


@case("C9.5", "C4.5")
async def a_limit_that_makes_no_sense_is_refused(subject: Subject) -> None:
    for changes in (
        {"max_running": 0},
        {"max_running": -1},
        {"max_running": 1.5},
        {"max_running": True},
        {"rate": "fast"},
        {"rate": "0/s"},
        {"rate": 5},
        {"burst": 0},
        {"max_running_per_key": 0},
        {"max_walking": 3},
    ):
        await subject.refuses(subject.store.limit("mail", changes), InvalidTask)
    await subject.refuses(subject.store.limit(WHOLE_STORE, {"max_running_per_key": 1}), InvalidTask)


# max_running


@case("C9.1", "C5.1")
async def no_more_run_than_may(subject: Subject) -> None:
    await limit(subject, max_running=3)
    await fill(subject, 10)
    first = await subject.claim_many(2)
    second = await subject.claim_many(5)
    equal((len(first), len(second)), (2, 1), "three in all")
    equal(await taken(subject), [], "no more")
    await complete(subject, first)
    equal(len(await taken(subject)), 2, "what ends makes room")


@case("C9.1")
async def what_does_not_run_any_more_makes_room(subject: Subject) -> None:
    await limit(subject, max_running=4)
    await fill(subject, 9)
    claims = await subject.claim_many()
    await subject.settle(claims[0].lease, DEAD)
    await subject.settle(claims[1].lease, Snoozed(600))
    await subject.settle(claims[2].lease, Released())
    await subject.amend(Change.RELEASE, claims[3].task_id)
    equal(len(await taken(subject)), 4, "a dead letter, a snooze, a release, by force too")


@case("C9.1", "C6.3")
async def an_expired_lease_makes_room(subject: Subject) -> None:
    await limit(subject, max_running=2)
    tasks = await fill(subject, 4)
    first = await subject.claim_many(lease_seconds=10.0)
    equal(await taken(subject), [], "both places are taken")
    subject.clock.advance(10)
    equal(await taken(subject), tasks[2:], "they are free, although nobody has reaped")
    equal({(await subject.get(claim.task_id)).status for claim in first}, {TaskStatus.RUNNING}, "nor was it done here")


@case("C9.1")
async def a_limit_holds_against_claims_at_the_same_moment(subject: Subject) -> None:
    await limit(subject, max_running=5)
    await fill(subject, 40)

    def act(worker_id: str) -> Any:
        async def claim(store: Store) -> list[Claim]:
            return (await store.claim(claim_request(worker_id=worker_id, limit=4))).claims

        return claim

    for _ in range(3):
        rounds = accepted(await subject.race([act(f"worker-{n}") for n in range(6)]))
        claims = [claim for one in rounds for claim in one]
        equal(len(claims), 5, "five run, whoever asked")
        equal(await taken(subject), [], "no more")
        await complete(subject, claims)


@case("C9.1")
async def a_limit_of_the_whole_store_holds_over_all_queues(subject: Subject) -> None:
    await limit(subject, WHOLE_STORE, max_running=3)
    await limit(subject, "mail", max_running=2)
    await fill(subject, 5, queue="mail")
    await fill(subject, 5, queue="other")
    claims = await subject.claim_many()
    equal(Counter(claim.queue for claim in claims), Counter(mail=2, other=1), "both limits hold")
    await complete(subject, [claim for claim in claims if claim.queue == "mail"][:1])
    equal(len(await taken(subject, queues=("other",))), 1, "one place for anybody")
    await limit(subject, WHOLE_STORE, max_running=None)
    equal(len(await taken(subject)), 4, "until the limit is cleared: mail runs one and may run two")
    names = [info.name for info in await subject.store.queues()]
    that("mail" in names and "other" in names, "queues are listed as ever")


@case("C9.1", "C5.2")
async def claims_over_limited_and_other_queues_keep_the_order(subject: Subject) -> None:
    await limit(subject, "a", max_running=2)
    (a1, a2, a3), (b1,) = await fill(subject, 3, queue="a", priority=5), await fill(subject, 1, queue="b", priority=5)
    (b2,), (a4,) = await fill(subject, 1, queue="b", priority=9), await fill(subject, 1, queue="a", priority=1)
    equal(await taken(subject, 2), [b2, a1], "best first")
    equal(await taken(subject), [a2, b1], "what may run, in order")
    claims = [present(await subject.store.get(one), "it") for one in (a3, a4)]
    equal({task.status for task in claims}, {TaskStatus.QUEUED}, "the rest is held")


@case("C9.1", "C5.4")
async def a_claim_under_limits_sent_again_gets_the_same_leases(subject: Subject) -> None:
    await limit(subject, max_running=3, rate="10/s", burst=2)
    await fill(subject, 5)
    request = claim_request(limit=3)
    first = (await subject.store.claim(request)).claims
    equal(len(first), 2, "as many as may")
    equal((await subject.store.claim(request)).claims, first, "the same again")
    subject.clock.advance(0.1)
    equal(len(await taken(subject)), 1, "which has cost nothing")


# Rates


@case("C9.2")
async def no_more_start_than_the_rate_allows(subject: Subject) -> None:
    await limit(subject, rate="4/s", burst=3)
    await fill(subject, 400)
    starts: list[datetime] = []
    for step in (0, 0.1, 0.2, 0.25, 0.01, 5, 0, 0.249, 0.001, 0.3, 0.3, 0.3, 0.05, 10, 0.5):
        subject.clock.advance(step)
        starts += [subject.clock.now() for _ in await taken(subject)]
    for n, since in enumerate(starts):
        for m, upto in enumerate(starts[n:], start=n):
            span = (upto - since).total_seconds()
            that(m - n + 1 <= 3 + 4 * span, f"{m - n + 1} within {span} s")
    that(len(starts) >= 3 + 3 + 3 + 2, "nor does it hold back what may start")


@case("C9.2")
async def a_rate_says_when_to_ask_again(subject: Subject) -> None:
    await limit(subject, rate="1/10s")
    await fill(subject, 3)
    equal(len(await taken(subject)), 1, "the burst is one")
    subject.clock.advance(4)
    asked = await subject.ask(limit=10)
    equal((asked.claims, asked.next_due_at), ([], subject.clock.now() + timedelta(seconds=6)), "in six seconds")
    (shown,) = await subject.store.queues()
    equal(shown.next_start_at, asked.next_due_at, "people are told the same")
    subject.clock.advance(6)
    (shown,) = await subject.store.queues()
    equal(shown.next_start_at, None, "which is now")
    equal(len(await taken(subject)), 1, "then one may start")
    refusal = await subject.refuses(subject.claim((await subject.get((await _queued(subject))[0])).id), TaskNotReady)
    that(iso(to_micros(subject.clock.now() + timedelta(seconds=10))) in str(refusal), "a refusal says when")


async def _queued(subject: Subject) -> list[str]:
    tasks = (await subject.snapshot()).tasks
    return [task.id for task in tasks if task.status is TaskStatus.QUEUED]


@case("C9.2")
async def an_idle_bucket_holds_no_more_than_the_burst(subject: Subject) -> None:
    await limit(subject, rate="100/s", burst=7)
    await fill(subject, 30)
    subject.clock.advance(3600)
    equal(len(await taken(subject)), 7, "the burst, however long nothing was claimed")


@case("C9.2", "C7.2")
async def every_attempt_counts_for_the_rate(subject: Subject) -> None:
    await limit(subject, rate="1/s")
    task_id = await subject.submit()
    await subject.settle((await subject.claim(task_id)).lease, Failed(ErrorInfo("again"), retry_after_seconds=0.0))
    equal(await taken(subject), [], "the retry waits for the rate too")
    subject.clock.advance(1)
    equal(await taken(subject), [task_id], "then it goes")


# Per key


@case("C9.3")
async def no_more_of_a_key_run_than_may(subject: Subject) -> None:
    await limit(subject, max_running_per_key=2)
    for key in ("x", "y"):
        await fill(subject, 5, concurrency_key=key)
    loose = await fill(subject, 3)
    claims = await subject.claim_many()
    keys = Counter([(await subject.get(claim.task_id)).concurrency_key for claim in claims])
    equal(keys, Counter({"x": 2, "y": 2, None: 3}), "two of each key, and all without one")
    that(set(loose) <= {claim.task_id for claim in claims}, "which no key holds")
    await complete(subject, claims)
    equal(len(await taken(subject)), 4, "what ends makes room")


@case("C9.3")
async def keys_of_other_queues_are_other_keys(subject: Subject) -> None:
    await limit(subject, "a", max_running_per_key=1)
    await fill(subject, 3, queue="a", concurrency_key="x")
    await fill(subject, 3, queue="b", concurrency_key="x")
    equal(Counter(claim.queue for claim in await subject.claim_many()), Counter(a=1, b=3), "only a is limited")


@case("C9.3")
async def the_backlog_of_one_key_does_not_hide_the_others(subject: Subject) -> None:
    await limit(subject, max_running_per_key=2)
    await fill(subject, 1200, concurrency_key="big", priority=1)
    small = [(await fill(subject, 1, concurrency_key=f"small-{n:02}"))[0] for n in range(40)]
    loose = await fill(subject, 5)
    found: set[str] = set()
    for _ in range(60):
        found |= set(await taken(subject, 10))
    that(set(small) <= found, "every other key gets its turn")
    that(set(loose) <= found, "so do tasks without a key")
    equal(len(found), 2 + 40 + 5, "and the big one no more than its share")


@case("C9.3")
async def every_key_progresses_although_there_are_fewer_places_than_keys(subject: Subject) -> None:
    """Backlogs of very different length, filled one after the other, and beside them one without a key."""
    await limit(subject, max_running=6, max_running_per_key=2)
    backlogs = {f"key-{n:02}": 3 + 7 * (n % 7) for n in range(30)}
    for key, number in backlogs.items():
        await fill(subject, number, concurrency_key=key)
    loose = await fill(subject, 40)
    served: Counter[str | None] = Counter()
    for _ in range(30):
        claims = await subject.claim_many(6)
        equal(len(claims), 6, "every place is used")
        served.update([(await subject.get(claim.task_id)).concurrency_key for claim in claims])
        await complete(subject, claims)
    that(min(served[key] for key in backlogs) >= 2, f"every key had its turn again: {sorted(served.values())}")
    that(1 <= served[None] < len(loose), "so had tasks without one, as one among the others")
    that(max(served.values()) <= 18, f"no backlog had more than three times its share: {sorted(served.values())}")


@case("C9.3", "C5.2")
async def a_better_priority_goes_before_a_turn(subject: Subject) -> None:
    await limit(subject, max_running=1, max_running_per_key=1)
    await fill(subject, 2, concurrency_key="x", priority=1)
    await fill(subject, 2, concurrency_key="y")
    order = []
    for _ in range(4):
        (claim,) = await subject.claim_many()
        order.append((await subject.get(claim.task_id)).concurrency_key)
        await complete(subject, [claim])
    equal(order, ["x", "x", "y", "y"], "keys take turns among their equals")


@case("C9.3", "C9.1")
async def queue_and_key_limits_hold_together(subject: Subject) -> None:
    await limit(subject, max_running=5, max_running_per_key=2)
    for key in ("x", "y", "z", "w"):
        await fill(subject, 5, concurrency_key=key)
    claims = await subject.claim_many()
    keys = Counter([(await subject.get(claim.task_id)).concurrency_key for claim in claims])
    equal(len(claims), 5, "five run")
    that(max(keys.values()) == 2, "at most two of a key")


@case("C9.3", "C6.3")
async def an_expired_lease_makes_room_in_its_key(subject: Subject) -> None:
    await limit(subject, max_running_per_key=2)
    tasks = await fill(subject, 4, concurrency_key="x")
    await subject.claim_many(lease_seconds=10.0)
    subject.clock.advance(10)
    equal(await taken(subject), tasks[2:], "two more")


# Order per key


@case("C9.4")
async def tasks_of_a_key_run_one_after_the_other_in_order(subject: Subject) -> None:
    await limit(subject, max_running_per_key=1)
    tasks = [await subject.submit(concurrency_key="x", priority=priority) for priority in (0, 9, 5, -3)]
    for task_id in tasks:
        claims = await subject.claim_many()
        equal([claim.task_id for claim in claims], [task_id], "the oldest, whatever its priority")
        await complete(subject, claims)


@case("C9.4", "C7.2", "C7.4")
async def the_first_of_a_key_blocks_while_it_backs_off(subject: Subject) -> None:
    await limit(subject, max_running_per_key=1)
    first, _ = await fill(subject, 2, concurrency_key="x")
    waits: list[Outcome] = [Failed(ErrorInfo("again"), retry_after_seconds=30.0), Snoozed(30.0)]
    for outcome in waits:
        (claim,) = await subject.claim_many()
        equal(claim.task_id, first, "the first goes first")
        await subject.settle(claim.lease, outcome)
        other = await subject.submit(concurrency_key="y")
        others = await subject.claim_many()
        equal([one.task_id for one in others], [other], "its key waits for it, others flow")
        await complete(subject, others)
        subject.clock.advance(30)
    await subject.settle((await subject.claim(first)).lease, Released())
    equal(await taken(subject), [first], "a released one is first again")


@case("C9.4", "C6.5")
async def a_lost_attempt_of_a_key_is_run_again_before_the_next(subject: Subject) -> None:
    await limit(subject, max_running_per_key=1)
    first, second = await fill(subject, 2, concurrency_key="x")
    await subject.claim_many(lease_seconds=10.0)
    subject.clock.advance(10)
    equal(await taken(subject), [], "its task has not ended, although its lease has")
    await subject.reap()
    equal(await taken(subject), [first], "it goes on")
    that(second in await _queued(subject), "the next waits")


@case("C9.4")
async def a_task_with_a_later_time_of_its_own_blocks_nobody_before_it(subject: Subject) -> None:
    await limit(subject, max_running_per_key=1)
    later = await subject.submit(concurrency_key="x", delay_seconds=60.0)
    now, next_one = await fill(subject, 2, concurrency_key="x")
    claims = await subject.claim_many()
    equal([claim.task_id for claim in claims], [now], "it is not due")
    subject.clock.advance(30)
    await complete(subject, claims)
    equal(await taken(subject, lease_seconds=600.0), [next_one], "nor now")
    subject.clock.advance(60)
    equal(await taken(subject), [], "one runs")
    refusal = await subject.refuses(subject.claim(later), TaskNotReady)
    that("'x'" in str(refusal), "it is held by its key")


@case("C9.4", "C8.1")
async def a_dead_letter_unblocks_and_joins_at_the_end_when_requeued(subject: Subject) -> None:
    await limit(subject, max_running_per_key=1)
    tasks = await fill(subject, 4, concurrency_key="x")
    (claim,) = await subject.claim_many()
    await subject.settle(claim.lease, DEAD)
    (claim,) = await subject.claim_many()
    equal(claim.task_id, tasks[1], "the next goes on")
    subject.clock.advance(1)
    await subject.amend(Change.REQUEUE, tasks[0])
    order = []
    for _ in range(4):
        await complete(subject, [claim])
        order.append(claim.task_id)
        claims = await subject.claim_many()
        if claims:
            (claim,) = claims
    equal(order, [tasks[1], tasks[2], tasks[3], tasks[0]], "the requeued one is the last")


@case("C9.4", "C8.2")
async def a_canceled_task_unblocks_its_key(subject: Subject) -> None:
    await limit(subject, max_running_per_key=1)
    first, second = await fill(subject, 2, concurrency_key="x")
    await subject.settle((await subject.claim(first)).lease, Snoozed(600.0))
    await subject.amend(Change.CANCEL, first)
    equal(await taken(subject), [second], "the next goes on")


@case("C9.4")
async def order_per_key_holds_against_claims_at_the_same_moment(subject: Subject) -> None:
    await limit(subject, max_running_per_key=1)
    order = {key: await fill(subject, 4, concurrency_key=key) for key in "abcdef"}

    def act(worker_id: str) -> Any:
        async def claim(store: Store) -> list[Claim]:
            return (await store.claim(claim_request(worker_id=worker_id, limit=3))).claims

        return claim

    for step in range(4):
        found: list[Claim] = []
        while len(found) < len(order):
            rounds = accepted(await subject.race([act(f"worker-{n}") for n in range(4)]))
            found += [claim for one in rounds for claim in one]
        equal(
            {claim.task_id for claim in found}, {tasks[step] for tasks in order.values()}, "one of each key, in order"
        )
        await complete(subject, found)


# By id, and live


@case("C9.3", "C5.4", "C5.5")
async def a_claim_by_id_of_an_expired_task_takes_the_place_that_it_frees(subject: Subject) -> None:
    for most in (1, 2):
        queue = f"of-{most}"
        await limit(subject, queue, max_running=most, max_running_per_key=most)
        tasks = await fill(subject, most, queue=queue, concurrency_key="x")
        await subject.claim_many(queues=(queue,), lease_seconds=10.0)
        subject.clock.advance(10)
        equal((await subject.claim(tasks[0])).lease.attempt, 2, "it is reaped, and its place is free")


@case("C9.1", "C9.3", "C9.4", "C5.4")
async def a_claim_by_id_says_which_limit_holds_it(subject: Subject) -> None:
    first, second = await fill(subject, 2, queue="a", concurrency_key="x")
    await limit(subject, "a", max_running=1)
    lease = (await subject.claim(first)).lease
    for where, changes, word in (
        ("a", {}, "max_running=1"),
        (WHOLE_STORE, {"max_running": 1}, "whole store"),
        (WHOLE_STORE, {"max_running": None}, "max_running=1"),
        ("a", {"max_running": None, "max_running_per_key": 1}, "max_running_per_key=1"),
        ("a", {"max_running_per_key": None, "max_running": 1}, "max_running=1"),
    ):
        await subject.store.limit(where, changes)
        refusal = await subject.refuses(subject.claim(second), TaskNotReady)
        that(word in str(refusal), f"{word}: {refusal}")
    await limit(subject, "a", max_running=None, max_running_per_key=1)
    await subject.settle(lease, Snoozed(60.0))
    refusal = await subject.refuses(subject.claim(second), TaskNotReady)
    that(first in str(refusal), "the refusal names the task that goes first")
    await limit(subject, "a", max_running_per_key=None)
    equal((await subject.claim(second)).task_id, second, "then nothing holds it")


@case("C9.5")
async def limits_change_while_tasks_run(subject: Subject) -> None:
    await fill(subject, 10, concurrency_key="x")
    claims = await subject.claim_many(4)
    await limit(subject, max_running=3)
    equal(await taken(subject), [], "four run, more than may")
    await complete(subject, claims[:2])
    equal(len(await taken(subject)), 1, "two run, so one more may")
    await limit(subject, max_running=5)
    equal(len(await taken(subject)), 2, "raised")
    await limit(subject, max_running=None, max_running_per_key=1)
    equal(await taken(subject), [], "five of the key run")
    await limit(subject, max_running_per_key=None)
    equal(len(await taken(subject)), 3, "cleared: the rest")


@case("C9.5", "C9.2")
async def a_rate_that_is_raised_holds_nothing_for_as_long_as_the_old_one_did(subject: Subject) -> None:
    await fill(subject, 9)
    await limit(subject, rate="1/h")
    equal(len(await taken(subject)), 1, "one an hour")
    await limit(subject, rate="1/10s", burst=2)
    equal(await taken(subject), [], "the bucket is empty")
    for _ in range(2):
        subject.clock.advance(10)
        equal(len(await taken(subject)), 1, "one every ten seconds")
    await limit(subject, rate=None)
    await limit(subject, rate="1/s", burst=1)
    subject.clock.advance(1)
    equal(len(await taken(subject)), 1, "also with a time without a rate between")


@case("C9.5", "C9.4")
async def order_per_key_knows_what_began_before_it_was_asked_for(subject: Subject) -> None:
    first, second = await fill(subject, 2, concurrency_key="x")
    lease = (await subject.claim(first)).lease
    await limit(subject, max_running_per_key=1)
    equal(await taken(subject), [], "the first still runs")
    await subject.settle(lease, Snoozed(10.0))
    equal(await taken(subject), [], "or backs off")
    subject.clock.advance(10)
    equal(await taken(subject), [first], "and goes on")
    that(second in await _queued(subject), "before the second")
