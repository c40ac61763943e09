"""C10.3: what an end without a result means for those that wait for it, and for their group."""

from __future__ import annotations

from typing import Any

from holdfast.model.outcome import Completed, ErrorInfo, Failed
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change
from holdfast.testing.conformance.checks import equal, present, that
from holdfast.testing.conformance.registry import register
from holdfast.testing.conformance.subject import OPERATOR, Subject
from holdfast.testing.conformance.workflow_words import (
    CANCELED,
    COMPLETED,
    DEAD,
    FAILED,
    NEEDS,
    QUEUED,
    RUNNING,
    WAITING,
    advance,
    case,
    drawn,
    drawn_run,
    end,
    states,
    submit,
    with_fields,
)

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
