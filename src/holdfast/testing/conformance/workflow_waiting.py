"""C10.1, C10.2: who waits for whom, and that the last end queues what waited, once."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise
from typing import Any

from holdfast.errors import InvalidTask
from holdfast.model.claim import Claim
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.task import Submitted
from holdfast.policy.workflow import BUCKETS_FROM
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import accepted, equal
from holdfast.testing.conformance.subject import Subject, new_task
from holdfast.testing.conformance.workflow_words import (
    COMPLETED,
    QUEUED,
    WAITING,
    case,
    chord,
    drawn,
    drawn_run,
    end,
    settle_all,
    states,
    submit,
    with_fields,
)


@case("C10.1", "C10.2", "C7.1")
async def a_chain_goes_on_with_each_settle(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=["a"], c=["b"])
    equal([claim.name for claim in await subject.claim_many()], ["a"], "only the first can be claimed")
    subject.clock.advance(100)
    await subject.reap()
    for name, later in pairwise("abc"):
        await end(subject, tasks[name])
        equal((await subject.get(tasks[later])).status, QUEUED, f"{later} is queued in the step that ended {name}")
    await end(subject, tasks["c"])
    equal(set((await states(subject, tasks)).values()), {COMPLETED}, "all are completed")
    kinds = await subject.kinds(tasks["c"])
    equal(kinds, ["task.enqueued", "task.ready", "task.running", "task.completed"], "its life")


@case("C10.1", "C5.2")
async def a_promoted_task_is_due_when_it_is_promoted_plus_its_delay(subject: Subject) -> None:
    later = subject.clock.now() + timedelta(hours=3)
    tasks = drawn("run", a=[], now=["a"], delayed=["a"], given=["a"], past=["a"])
    tasks = with_fields(tasks, ["delayed"], delay_seconds=60.0)
    tasks = with_fields(tasks, ["given"], run_at=later)
    tasks = with_fields(tasks, ["past"], run_at=subject.clock.now() - timedelta(hours=1))
    named = await submit(subject, tasks)
    lease = (await subject.claim(named["a"], lease_seconds=7200.0)).lease
    subject.clock.advance(3600)
    await subject.settle(lease, Completed())
    now = subject.clock.now()
    due = {name: (await subject.get(task_id)).run_at for name, task_id in named.items() if name != "a"}
    expected = {"now": now, "delayed": now + timedelta(seconds=60), "given": later, "past": now}
    equal(due, expected, "a delay is counted from the promotion; a time that was given holds")


@case("C10.1")
async def parents_are_told_in_the_order_in_which_they_are_named(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=[], c=[], d=["c", "a", "b", "a"])
    for name in "bca":
        await end(subject, tasks[name], Completed(f'"{name}"'))
    told = await subject.store.parents(tasks["d"], after=0, limit=10)
    equal([parent.result for parent in told], ['"c"', '"a"', '"b"', '"a"'], "their results in that order")
    equal({(parent.status, parent.error) for parent in told}, {(COMPLETED, None)}, "all completed")
    equal([parent.name for parent in await subject.store.parents(tasks["d"], after=1, limit=2)], ["a", "b"], "a page")
    equal(await subject.store.parents(tasks["a"], after=0, limit=10), [], "who has none")
    equal((await subject.get(tasks["d"])).parents, [tasks[name] for name in "caba"], "the record names them so")
    equal((await subject.get(tasks["d"])).status, QUEUED, "one named twice counts twice and ends once")


@case("C10.2", "C10.5")
async def a_finalizer_is_queued_once_when_the_last_member_ends(subject: Subject) -> None:
    for number in (1, 2, BUCKETS_FROM - 1, BUCKETS_FROM, 150):
        members, last = chord(number, run_id=f"run-{number}")
        await subject.submit_all(*members, last)
        claims = await subject.claim_many()
        await settle_all(subject, claims[1:])
        equal((await subject.get(last.id)).status, WAITING, f"one of {number} is still running")
        await settle_all(subject, claims[:1])
        equal((await subject.get(last.id)).status, QUEUED, f"the last of {number} has ended")
        told = await subject.store.parents(last.id, after=0, limit=1000)
        equal([parent.task_id for parent in told], [new.id for new in members], "results in the members' order")
        equal((await subject.get(last.id)).parents, [new.id for new in members], "all of them are named")
        await end(subject, last.id)
        equal((await subject.kinds(last.id)).count("task.ready"), 1, "once")
        await settle_all(subject, claims)  # the replies were lost
        equal((await subject.get(last.id)).status, COMPLETED, "settles that are sent again change nothing")


@case("C10.2")
async def members_that_end_at_the_same_moment_queue_the_finalizer_once(subject: Subject) -> None:
    """1. Every member but eight has ended. 2. Eight handles settle one each, let go at once. 3. One was the last."""
    members, last = chord(80)
    await subject.submit_all(*members, last)
    claims = await subject.claim_many()
    await settle_all(subject, claims[8:])

    def act(claim: Claim) -> Any:
        async def settle(store: Store) -> list[Any]:
            return await store.settle([Settlement(claim.lease, Completed())])

        return settle

    for answer in accepted(await subject.race([act(claim) for claim in claims[:8]])):
        accepted(answer)
    equal((await subject.kinds(last.id)).count("task.ready"), 1, "queued once")
    equal([claim.task_id for claim in await subject.claim_many()], [last.id], "and can be claimed")


@case("C10.2", "C4.2")
async def a_workflow_submitted_again_changes_nothing(subject: Subject) -> None:
    tasks = drawn("run", a=[], b=["a"], c=["a", "b"])
    first = await subject.submit_all(*tasks.values())
    equal(first, [Submitted(new.id, created=True) for new in tasks.values()], "all are new")
    await end(subject, tasks["a"].id)
    async with subject.unchanged():
        equal(await subject.submit_all(*tasks.values()), first, "the same answer after a lost reply")


@case("C10.2", "C4.2")
async def a_workflow_of_which_a_key_is_known_is_not_stored(subject: Subject) -> None:
    for keyed in "abc":
        first = with_fields(drawn(f"run-{keyed}", a=[], b=["a"], c=["b"]), [keyed], idempotency_key=keyed)
        named = await submit(subject, first)
        again = with_fields(drawn(f"again-{keyed}", a=[], b=["a"], c=["b"]), [keyed], idempotency_key=keyed)
        async with subject.unchanged():
            answers = dict(zip(again, await subject.submit_all(*again.values()), strict=True))
            equal([answer.created for answer in answers.values()], [False] * 3, "nothing of it is new")
            equal(answers[keyed].id, named[keyed], "the key's task is named")


@case("C10.1", "C4.5")
async def a_parent_stands_before_its_child_in_the_same_submit_and_run(subject: Subject) -> None:
    known = await subject.submit(run_id="run")
    tasks = drawn("run", a=[], b=["a"])
    elsewhere = with_fields(tasks, ["a"], run_id="other")
    runless = with_fields(tasks, ["a", "b"], run_id=None)
    odd = with_fields(tasks, ["b"], on_parent_failure="perhaps")
    for refused in (
        [tasks["b"], tasks["a"]],
        [tasks["b"]],
        [new_task(run_id="run", parents=(known,))],
        list(elsewhere.values()),
        list(runless.values()),
        list(odd.values()),
        [new_task(fail_fast="all")],
    ):
        await subject.refuses(subject.submit_all(*refused), InvalidTask)
    itself = new_task(run_id="run")
    circle = with_fields({"a": itself}, ["a"], parents=(itself.id,))
    await subject.refuses(subject.submit_all(*circle.values()), InvalidTask)


@case("C10.1", "C4.2")
async def a_child_cannot_come_after_its_parent(subject: Subject) -> None:
    tasks = drawn("run", a=[], b=["a"])
    await subject.submit_all(tasks["a"])
    await subject.refuses(subject.submit_all(*tasks.values()), InvalidTask)


@case("C10.2", "C7.1")
async def a_workflow_can_be_a_follow_up(subject: Subject) -> None:
    task_id = await subject.submit()
    tasks = drawn("run", a=[], b=["a"])
    lease = (await subject.claim(task_id)).lease
    await subject.settle(lease, Completed(), follow_ups=tuple(tasks.values()))
    await end(subject, tasks["a"].id)
    equal((await subject.get(tasks["b"].id)).status, QUEUED, "it goes its way")
    bad = drawn("other", a=[], b=["a"])
    lease = (await subject.claim(tasks["b"].id)).lease
    await subject.refuses(subject.settle(lease, Completed(), follow_ups=(bad["b"],)), InvalidTask)
