"""Section 10 of the contract: who waits for whom, what an end means for others, what a run is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec

from holdfast import ids
from holdfast.errors import InvalidTask, TaskNotReady
from holdfast.model.claim import Claim
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Settlement
from holdfast.model.query import Retention, TaskFilter
from holdfast.model.task import NewTask, Submitted, TaskStatus
from holdfast.model.transition import Change, Settled
from holdfast.model.workflow import RunInfo
from holdfast.policy.workflow import BUCKETS_FROM, INLINE_EACH
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import accepted, equal, present, that
from holdfast.testing.conformance.registry import Proof, register
from holdfast.testing.conformance.registry import case as plain_case
from holdfast.testing.conformance.subject import OPERATOR, REAPER, Subject, new_task

NEEDS = ("workflows",)
DEAD = Failed(ErrorInfo("no such account", "NoAccount"), unrecoverable=True)
WAITING, QUEUED, RUNNING = TaskStatus.WAITING, TaskStatus.QUEUED, TaskStatus.RUNNING
COMPLETED, FAILED, CANCELED = TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELED


def case(*clauses: str) -> Callable[[Proof], Proof]:
    return plain_case(*clauses, needs=NEEDS)


# Workflows in few words


def drawn(run_id: str, **edges: Sequence[str]) -> dict[str, NewTask]:
    """Tasks by name, each with the names of its parents."""
    names = dict(zip(edges, ids.task_ids(len(edges)), strict=True))
    return {
        name: new_task(id=names[name], name=name, run_id=run_id, parents=tuple(names[one] for one in parents))
        for name, parents in edges.items()
    }


def with_fields(tasks: dict[str, NewTask], names: Iterable[str], **fields: Any) -> dict[str, NewTask]:
    return tasks | {name: msgspec.structs.replace(tasks[name], **fields) for name in names}


async def submit(subject: Subject, tasks: dict[str, NewTask]) -> dict[str, str]:
    """Their ids by name."""
    await subject.submit_all(*tasks.values())
    return {name: new.id for name, new in tasks.items()}


async def drawn_run(subject: Subject, **edges: Sequence[str]) -> dict[str, str]:
    return await submit(subject, drawn("run", **edges))


async def end(subject: Subject, task_id: str, outcome: Any = Completed()) -> Settled:  # noqa: B008  it is frozen
    return await subject.settle((await subject.claim(task_id)).lease, outcome)


async def advance(subject: Subject, limit: int = 1000) -> int:
    """Until nothing is left; how many steps it took."""
    steps = 0
    while await subject.store.advance(limit=limit, actor=REAPER):
        steps += 1
    return steps


async def states(subject: Subject, tasks: dict[str, str]) -> dict[str, TaskStatus]:
    return {name: (await subject.get(task_id)).status for name, task_id in tasks.items()}


async def shown(subject: Subject, run_id: str = "run") -> RunInfo:
    return present(await subject.store.run(run_id), "the run")


def chord(members: int, *, run_id: str = "run", **fields: Any) -> tuple[list[NewTask], NewTask]:
    *names, last = ids.task_ids(members + 1)
    tasks = [new_task(id=name, name="member", run_id=run_id) for name in names]
    return tasks, new_task(id=last, name="finalizer", run_id=run_id, parents=tuple(names), **fields)


async def settle_all(subject: Subject, claims: Sequence[Claim]) -> None:
    accepted(await subject.store.settle([Settlement(claim.lease, Completed('"r"')) for claim in claims]))


# Waiting and promotion


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


# Failure


def _end_cases() -> None:
    """Whatever ends a task without a result, what waits for it is canceled because of it, all the way down."""

    async def dies(subject: Subject, task_id: str) -> None:
        await end(subject, task_id, DEAD)

    async def is_canceled(subject: Subject, task_id: str) -> None:
        await subject.amend(Change.CANCEL, task_id)

    async def ends_canceled(subject: Subject, task_id: str) -> None:
        lease = (await subject.claim(task_id)).lease
        await subject.amend(Change.CANCEL, task_id)
        await subject.settle(lease, Failed(ErrorInfo("stopped")))

    async def is_reaped(subject: Subject, task_id: str) -> None:
        await subject.claim(task_id)
        await subject.expire(task_id)
        await subject.reap()

    async def is_reaped_by_an_operator(subject: Subject, task_id: str) -> None:
        await subject.claim(task_id)
        await subject.expire(task_id)
        await subject.amend(Change.RELEASE, task_id)

    ways = {
        "dies": (dies, FAILED),
        "is_canceled": (is_canceled, CANCELED),
        "ends_canceled": (ends_canceled, CANCELED),
        "is_reaped": (is_reaped, FAILED),
        "is_reaped_by_an_operator": (is_reaped_by_an_operator, FAILED),
    }
    for name, (way, ended) in ways.items():

        async def prove(subject: Subject, way: Any = way, ended: TaskStatus = ended) -> None:
            tasks = drawn("run", a=[], b=["a"], c=["b"], other=[], d=["c", "other"], beside=["other"])
            named = await submit(subject, with_fields(tasks, ["a"], max_attempts=1))
            await way(subject, named["a"])
            expected = {"a": ended, "b": CANCELED, "c": CANCELED, "d": CANCELED, "other": QUEUED, "beside": WAITING}
            equal(await states(subject, named), expected, "what depends on it is canceled, nothing else")
            for child in "bcd":
                task = await subject.get(named[child])
                equal(task.canceled_because, named["a"], f"{child} names the task that ended")
                equal(task.finished_at, subject.clock.now(), "and when")
                event = (await subject.events(task.id))[-1]
                equal((event.kind, event.payload["because"]), ("task.canceled", named["a"]), "so does its event")
            equal((await subject.get(named["a"])).canceled_because, None, "itself names nobody")

        register(f"what_waits_for_a_task_that_{name}_is_canceled", ("C10.3",), prove, NEEDS)


_end_cases()


@case("C10.3")
async def a_retry_cancels_nothing(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=["a"])
    await end(subject, tasks["a"], Failed(ErrorInfo("again"), retry_after_seconds=0.0))
    equal(await states(subject, tasks), {"a": QUEUED, "b": WAITING}, "b goes on waiting")
    await end(subject, tasks["a"])
    equal((await subject.get(tasks["b"])).status, QUEUED, "until a completes")


@case("C10.3")
async def members_that_run_go_on_when_another_fails(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=[], c=["a", "b"])
    lease = (await subject.claim(tasks["b"])).lease
    await end(subject, tasks["a"], DEAD)
    that(not (await subject.extend(lease)).cancel_requested, "b is not asked to stop")
    await subject.settle(lease, Completed())
    equal(await states(subject, tasks), {"a": FAILED, "b": COMPLETED, "c": CANCELED}, "b completes")


@case("C10.3")
async def a_child_that_runs_anyway_gets_the_failure(subject: Subject) -> None:
    tasks = with_fields(drawn("run", a=[], b=[], c=["b"], d=["a", "c"]), ["d"], on_parent_failure="run")
    named = await submit(subject, tasks)
    await end(subject, named["a"], DEAD)
    equal((await subject.get(named["d"])).status, WAITING, "it waits for the others")
    await subject.amend(Change.CANCEL, named["b"])
    expected = {"a": FAILED, "b": CANCELED, "c": CANCELED, "d": QUEUED}
    equal(await states(subject, named), expected, "then it runs, with whatever ends there were")
    failed, canceled = await subject.store.parents(named["d"], after=0, limit=10)
    equal((failed.status, failed.result), (FAILED, None), "the first has failed")
    equal(present(failed.error, "its error")["code"], "NoAccount", "and says why")
    equal((canceled.status, canceled.result, canceled.error), (CANCELED, None, None), "the second was canceled")


@case("C10.3", "C10.4")
async def a_parent_that_ends_twice_is_counted_once(subject: Subject) -> None:
    """1. a fails, and counts for d, which runs anyway. 2. It is requeued and ends again. 3. b has yet to end."""
    tasks = with_fields(drawn("run", a=[], b=[], d=["a", "b"]), ["d"], on_parent_failure="run")
    named = await submit(subject, tasks)
    for outcome in (DEAD, DEAD, Completed()):
        await end(subject, named["a"], outcome)
        equal((await subject.get(named["d"])).status, WAITING, "b has yet to end")
        if outcome is DEAD:
            await subject.amend(Change.REQUEUE, named["a"])
    await end(subject, named["b"])
    equal((await subject.kinds(named["d"])).count("task.ready"), 1, "then it is queued, once")


# Fail fast


@case("C10.3")
async def a_member_that_fails_takes_the_others_with_it_where_that_was_asked(subject: Subject) -> None:
    tasks = drawn("run", a=[], b=[], c=[], d=["c"], e=["d"], beside=[], after=["beside"])
    named = await submit(subject, with_fields(tasks, "abcd", fail_fast="all"))
    running = (await subject.claim(named["b"])).lease
    await end(subject, named["a"], DEAD)
    await advance(subject)
    expected = {"a": FAILED, "b": RUNNING, "c": CANCELED, "d": CANCELED, "e": CANCELED, "beside": QUEUED}
    equal(await states(subject, named), expected | {"after": WAITING}, "what is live of the same name is canceled")
    for name in "cde":
        equal((await subject.get(named[name])).canceled_because, named["a"], f"{name} names the task that failed")
    that((await subject.extend(running)).cancel_requested, "what runs is asked")
    await subject.settle(running, Failed(ErrorInfo("stopped")))
    task = await subject.get(named["b"])
    equal((task.status, task.canceled_because), (CANCELED, named["a"]), "and ends canceled because of it")


@case("C10.3")
async def a_member_that_completes_although_asked_is_completed(subject: Subject) -> None:
    tasks = with_fields(drawn("run", a=[], b=[], c=["b"]), "abc", fail_fast="all")
    named = await submit(subject, tasks)
    lease = (await subject.claim(named["b"])).lease
    await end(subject, named["a"], DEAD)
    await advance(subject)
    await subject.settle(lease, Completed())
    equal(await states(subject, named), {"a": FAILED, "b": COMPLETED, "c": CANCELED}, "the rest stays canceled")
    equal((await subject.get(named["b"])).canceled_because, None, "nothing is left of the asking")


@case("C10.4")
async def requeueing_what_failed_fast_brings_the_others_back(subject: Subject) -> None:
    tasks = with_fields(drawn("run", a=[], b=[], c=["a", "b"]), "abc", fail_fast="all")
    named = await submit(subject, tasks)
    await end(subject, named["a"], DEAD)
    await advance(subject)
    equal(await states(subject, named), {"a": FAILED, "b": CANCELED, "c": CANCELED}, "all have ended")
    await subject.amend(Change.REQUEUE, named["a"])
    await advance(subject)
    equal(await states(subject, named), {"a": QUEUED, "b": QUEUED, "c": WAITING}, "all are back where they were")
    event = (await subject.events(named["b"]))[-1]
    equal((event.kind, event.payload["reason"]), ("task.requeued", "rearm"), "b says why")
    await end(subject, named["a"])
    await end(subject, named["b"])
    equal((await subject.get(named["c"])).status, QUEUED, "and go on")


@case("C10.4", "C10.3")
async def a_member_that_was_told_to_stop_does_not_fail_the_others_again(subject: Subject) -> None:
    """1. a fails fast, and b, which runs, is asked to stop. 2. a is requeued. 3. b stops."""
    tasks = drawn("run", a=[], b=[], c=["b"], d=["a"])
    named = await submit(subject, with_fields(tasks, "abcd", fail_fast="all"))
    running = (await subject.claim(named["b"])).lease
    await end(subject, named["a"], DEAD)
    await subject.amend(Change.REQUEUE, named["a"])
    await subject.settle(running, Failed(ErrorInfo("stopped")))
    expected = {"a": QUEUED, "b": CANCELED, "c": CANCELED, "d": WAITING}
    equal(await states(subject, named), expected, "b takes only with it what depends on it")
    equal((await subject.get(named["c"])).canceled_because, named["b"], "which names it")
    await subject.amend(Change.REQUEUE, named["b"])
    equal(await states(subject, named), expected | {"b": QUEUED, "c": WAITING}, "and comes back with it")


@case("C10.3", "C10.4")
async def an_end_that_is_taken_back_in_the_same_call_tells_nobody(subject: Subject) -> None:
    """1. a runs, is asked to stop, and its lease expires. 2. A requeue reaps it, canceled, and queues it again."""
    named = await submit(subject, with_fields(drawn("run", a=[], b=["a"]), ["b"], on_parent_failure="run"))
    await subject.claim(named["a"])
    await subject.amend(Change.CANCEL, named["a"])
    await subject.expire(named["a"])
    await subject.amend(Change.REQUEUE, named["a"])
    equal(await states(subject, named), {"a": QUEUED, "b": WAITING}, "b waits on")
    await end(subject, named["a"])
    equal(await subject.kinds(named["b"]), ["task.enqueued", "task.ready"], "until a has really ended")


@case("C10.3")
async def of_several_ends_in_one_call_those_that_wait_are_told_first(subject: Subject) -> None:
    tasks = drawn("run", root=[], parent=[], child=["parent"])
    tasks = with_fields(with_fields(tasks, ["root", "child"], fail_fast="all"), ["child"], on_parent_failure="run")
    named = await submit(subject, tasks)
    await subject.store.amend(Change.CANCEL, [named["root"], named["parent"]], actor=OPERATOR)
    equal(await subject.kinds(named["child"]), ["task.enqueued", "task.ready", "task.canceled"], "then the others")


# Re-arming


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


# Many dependents


def _fan(number: int) -> tuple[NewTask, list[NewTask]]:
    first, *others = ids.task_ids(number + 1)
    root = new_task(id=first, name="root", run_id="run")
    return root, [new_task(id=one, name="leaf", run_id="run", parents=(first,)) for one in others]


async def _counts(subject: Subject) -> dict[str, int]:
    return (await shown(subject)).counts


@case("C10.5")
async def very_many_dependents_are_advanced_in_bounded_steps(subject: Subject) -> None:
    number = 5 * INLINE_EACH
    root, leaves = _fan(number)
    await subject.submit_all(root, *leaves)
    await end(subject, root.id, Completed('"seed"'))
    that((await _counts(subject)).get("waiting", 0) >= number - INLINE_EACH, "the settle leaves most to be done")
    other = await subject.another_handle()
    that(0 < await other.advance(limit=50, actor=REAPER) <= 50, "any handle goes on, as far as it is asked to")
    that(await advance(subject, limit=50) >= (number - INLINE_EACH) // 50 - 2, "step by step")
    equal(await _counts(subject), {"completed": 1, "queued": number}, "all are queued")
    equal(await subject.store.advance(limit=50, actor=REAPER), 0, "nothing is left")
    kinds = [await subject.kinds(leaf.id) for leaf in leaves]
    equal(set(map(tuple, kinds)), {("task.enqueued", "task.ready")}, "each once")


@case("C10.5", "C10.3", "C10.4")
async def a_failure_of_a_task_with_very_many_dependents_is_told_and_taken_back_in_steps(subject: Subject) -> None:
    number = 3 * INLINE_EACH
    root, leaves = _fan(number)
    await subject.submit_all(root, *leaves)
    await end(subject, root.id, DEAD)
    await advance(subject, limit=40)
    equal(await _counts(subject), {"failed": 1, "canceled": number}, "all are canceled")
    await subject.amend(Change.REQUEUE, root.id)
    await advance(subject, limit=40)
    equal(await _counts(subject), {"queued": 1, "waiting": number}, "all wait again")
    await end(subject, root.id)
    await advance(subject)
    equal(await _counts(subject), {"completed": 1, "queued": number}, "all are queued")


@case("C10.5", "C10.4")
async def a_requeue_overtakes_a_failure_that_is_still_being_told(subject: Subject) -> None:
    number = 3 * INLINE_EACH
    root, leaves = _fan(number)
    await subject.submit_all(root, *leaves)
    await end(subject, root.id, DEAD)
    await subject.store.advance(limit=40, actor=REAPER)
    await subject.amend(Change.REQUEUE, root.id)
    await advance(subject, limit=40)
    equal(await _counts(subject), {"queued": 1, "waiting": number}, "nothing stays canceled")
    await end(subject, root.id, DEAD)
    await subject.amend(Change.REQUEUE, root.id)
    await end(subject, root.id, DEAD)
    await advance(subject)
    equal(await _counts(subject), {"failed": 1, "canceled": number}, "the last word counts")


@case("C10.5", "C10.3")
async def a_long_chain_is_canceled_to_its_end(subject: Subject) -> None:
    number = 1500
    names = ids.task_ids(number)
    links = [new_task(id=names[0], run_id="run")]
    links += [new_task(id=child, run_id="run", parents=(parent,)) for parent, child in pairwise(names)]
    await subject.submit_all(*links)
    await end(subject, names[0], DEAD)
    await advance(subject)
    equal(await _counts(subject), {"failed": 1, "canceled": number - 1}, "all are canceled")
    equal((await subject.get(names[-1])).canceled_because, names[0], "because of the first")
    await subject.amend(Change.REQUEUE, names[0])
    await advance(subject)
    equal(await _counts(subject), {"queued": 1, "waiting": number - 1}, "and wait again")


# Runs


@case("C10.6")
async def a_run_is_what_its_tasks_are(subject: Subject) -> None:
    equal(await subject.store.run("run"), None, "there is no such run")
    that(not await subject.store.run_lives("run"), "which does not live")
    began = subject.clock.now()
    tasks = await drawn_run(subject, a=[], b=["a"], c=["a"])
    info = await shown(subject)
    equal((info.id, info.status, info.counts), ("run", "running", {"queued": 1, "waiting": 2}), "it runs")
    equal((info.created_at, info.finished_at), (began, None), "since then")
    subject.clock.advance(5)
    for name in "abc":
        that(await subject.store.run_lives("run"), "it lives")
        await end(subject, tasks[name])
    info = await shown(subject)
    equal((info.status, info.counts), ("completed", {"completed": 3}), "it is completed")
    equal((info.created_at, info.finished_at), (began, subject.clock.now()), "from its first task to its last end")
    that(not await subject.store.run_lives("run"), "nothing of it can run")


@case("C10.6")
async def a_run_fails_once_nothing_of_it_can_still_run(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=[], c=["a"])
    await end(subject, tasks["a"], DEAD)
    equal((await shown(subject)).status, "running", "b is still to run")
    await end(subject, tasks["b"])
    equal((await shown(subject)).status, "failed", "then it has failed")
    await subject.amend(Change.REQUEUE, tasks["a"])
    equal((await shown(subject)).status, "running", "a requeue brings it back")


@case("C10.6")
async def a_run_is_canceled_where_nothing_failed(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=["a"])
    await subject.amend(Change.CANCEL, tasks["a"])
    equal((await shown(subject)).status, "canceled", "all of it")


@case("C10.6", "C10.3")
async def a_failure_that_the_last_tasks_outlive_is_not_the_runs(subject: Subject) -> None:
    tasks = with_fields(drawn("run", a=[], b=["a"]), ["b"], on_parent_failure="run")
    named = await submit(subject, tasks)
    await end(subject, named["a"], DEAD)
    await end(subject, named["b"])
    info = await shown(subject)
    equal((info.status, info.counts), ("completed", {"failed": 1, "completed": 1}), "b has dealt with it")


@case("C10.6")
async def tasks_with_one_run_id_are_a_run(subject: Subject) -> None:
    first, second = await subject.submit(run_id="mine"), await subject.submit(run_id="mine")
    await end(subject, first)
    equal((await shown(subject, "mine")).counts, {"completed": 1, "queued": 1}, "whoever submitted them")
    await end(subject, second, DEAD)
    equal((await shown(subject, "mine")).status, "failed", "each of them is one of its last")


@case("C10.6")
async def the_last_tasks_of_a_run_are_those_that_nobody_waits_for(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=["a"], c=["a"], d=["b"])
    await subject.submit(run_id="other")
    page = await subject.store.page(TaskFilter(run_id="run", last=True))
    equal([task.id for task in page], [tasks["d"], tasks["c"]], "newest first")


@case("C10.6")
async def runs_are_listed_newest_first(subject: Subject) -> None:
    for name in ("zebra", "apple", "mango"):
        await submit(subject, drawn(name, a=[], b=["a"]))
    await subject.submit(run_id="apple")
    await subject.submit()
    listed = await subject.store.runs(limit=10, after=None)
    equal([run.id for run in listed], ["mango", "apple", "zebra"], "by their first task")
    equal(listed[1].counts, {"queued": 2, "waiting": 1}, "with their counts")
    equal([run.id for run in await subject.store.runs(limit=1, after="mango")], ["apple"], "page by page")
    await subject.refuses(subject.store.runs(limit=1, after="nobody"), InvalidTask)


@case("C8.3", "C8.5", "C10.6")
async def a_live_run_is_kept_whole_and_an_ended_one_goes(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=["a"])
    await end(subject, tasks["a"], Completed('"seed"'))
    subject.clock.advance(timedelta(days=30).total_seconds())
    equal(await subject.store.prune(Retention(), limit=10), 0, "b still needs what a gave")
    await subject.refuses(subject.amend(Change.DELETE, tasks["a"]), InvalidTask)
    await end(subject, tasks["b"])
    await subject.amend(Change.DELETE, tasks["a"])
    equal(await subject.store.parents(tasks["b"], after=0, limit=10), [], "a parent that is gone is missing")
    subject.clock.advance(timedelta(days=8).total_seconds())
    equal(await subject.store.prune(Retention(), limit=10), 1, "then the rest goes")
    equal(await subject.store.run("run"), None, "and with it the run")
