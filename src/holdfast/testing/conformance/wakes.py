"""C12.4: every task that becomes claimable is announced when it is due, and again while nobody claims it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta

from holdfast.model.outbox import Effect, NewSink, OutboxRow, OutboxState
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Outcome, Released, Snoozed
from holdfast.model.query import Retention
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change
from holdfast.policy.relaying import BASE_SECONDS, REPEAT_CAP_SECONDS, REPEAT_SECONDS, REST_SECONDS
from holdfast.testing.conformance.checks import equal, that
from holdfast.testing.conformance.outbox_words import (
    case,
    deliver_all,
    delivered,
    hook,
    only_sink,
    record,
    refused_by_sink,
    rows,
    same_rows,
    take,
)
from holdfast.testing.conformance.subject import Subject, new_task
from holdfast.testing.conformance.workflow_words import DEAD, drawn_run, end

WAKER = "sqs"


def waker(name: str = WAKER, queues: tuple[str, ...] | None = None) -> NewSink:
    return NewSink(name=name, url="sqs://eu-central-1/tasks", effect=Effect.WAKE, queues=queues)


async def announced(subject: Subject) -> dict[str, datetime]:
    """By task: when it is announced next. There is never more than one row per task."""
    found = await rows(subject, WAKER)
    equal(len({row.task_id for row in found}), len(found), "one wake-up per task")
    return {row.task_id: row.due_at for row in found}


async def woken(subject: Subject, hold: str = "relay-1") -> list[str]:
    """The tasks that are announced now; their rows stay held."""
    return [row.task_id for row in await take(subject, WAKER, hold=hold)]


@case("C12.4", "C12.3")
async def a_submitted_task_is_announced_when_it_is_due(subject: Subject) -> None:
    await subject.store.declare_sink(waker())
    now = subject.clock.now()
    past, soon, later = (
        await subject.submit(queue="mail", run_at=now - timedelta(hours=1)),
        await subject.submit(delay_seconds=60.0),
        await subject.submit(run_at=now + timedelta(hours=1)),
    )
    row = (await rows(subject))[0]
    expected = OutboxRow(
        id=row.id,
        sink=WAKER,
        effect=Effect.WAKE,
        task_id=past,
        queue="mail",
        state=OutboxState.PENDING,
        event=None,
        created_at=now,
        due_at=now,
        tries=0,
        last_error=None,
    )
    equal(row, expected, "a hint that carries the task's id and queue, and no event")
    minute, hour = now + timedelta(minutes=1), now + timedelta(hours=1)
    equal(await announced(subject), {past: now, soon: minute, later: hour}, "each when it is due")
    equal((await only_sink(subject)).pending, 1, "what is not due does not wait")
    for task_id, seconds in ((past, 0), (soon, 60), (later, 3540)):
        subject.clock.advance(seconds)
        that(task_id in await woken(subject), "it is told then")


@case("C12.4", "C9.5")
async def a_wake_up_is_only_for_its_queues(subject: Subject) -> None:
    await subject.store.declare_sink(waker("some", queues=("mail", "nowhere")))
    await subject.store.declare_sink(waker("all"))
    mail, other = await subject.submit(queue="mail"), await subject.submit(queue="other")
    equal([row.task_id for row in await rows(subject, "some")], [mail], "of this queue")
    equal([row.task_id for row in await rows(subject, "all")], [mail, other], "of all")


@case("C12.4", "C12.3")
async def wake_ups_and_events_go_to_those_who_asked_for_them(subject: Subject) -> None:
    await subject.store.declare_sink(waker())
    await subject.store.declare_sink(hook())
    await subject.run_to(TaskStatus.COMPLETED)
    equal([row.effect for row in await rows(subject, "hook")], [Effect.ROUTE] * 3, "events")
    equal([row.effect for row in await rows(subject, WAKER)], [Effect.WAKE], "a wake-up")


async def _settled(subject: Subject, task_id: str, outcome: Outcome) -> None:
    await subject.settle((await subject.claim(task_id)).lease, outcome)


async def _failed(subject: Subject, task_id: str) -> None:
    await _settled(subject, task_id, Failed(ErrorInfo("it broke"), retry_after_seconds=90.0))


async def _snoozed(subject: Subject, task_id: str) -> None:
    await _settled(subject, task_id, Snoozed(45.0))


async def _released(subject: Subject, task_id: str) -> None:
    await _settled(subject, task_id, Released())


async def _reaped(subject: Subject, task_id: str) -> None:
    await subject.claim(task_id)
    await subject.expire(task_id)
    await subject.reap()


async def _released_by_force(subject: Subject, task_id: str) -> None:
    await subject.claim(task_id)
    await subject.amend(Change.RELEASE, task_id)


async def _requeued(subject: Subject, task_id: str) -> None:
    await _settled(subject, task_id, DEAD)
    subject.clock.advance(5)
    await subject.amend(Change.REQUEUE, task_id)


async def _canceled_and_requeued(subject: Subject, task_id: str) -> None:
    await subject.amend(Change.CANCEL, task_id)
    subject.clock.advance(5)
    await subject.amend(Change.REQUEUE, task_id)


WAYS_BACK: tuple[Callable[[Subject, str], Awaitable[None]], ...] = (
    _failed,
    _snoozed,
    _released,
    _reaped,
    _released_by_force,
    _requeued,
    _canceled_and_requeued,
)


@case("C12.4")
async def a_task_that_is_queued_again_is_announced_again(subject: Subject) -> None:
    await subject.store.declare_sink(waker())
    for way in WAYS_BACK:
        for told in (False, True):
            task_id = await subject.submit(queue=f"{way.__name__} {told}")
            if told:
                await deliver_all(subject, WAKER)
            await way(subject, task_id)
            due_at = max((await subject.get(task_id)).run_at, subject.clock.now())
            equal((await announced(subject))[task_id], due_at, f"when it is due again: {way.__name__}")
            subject.clock.advance_to(due_at)
            that(task_id in await woken(subject), "and then it is told")
            await _settled(subject, task_id, Completed())


@case("C12.4", "C10.2", needs=("workflows",))
async def a_waiting_task_is_announced_when_it_is_promoted(subject: Subject) -> None:
    await subject.store.declare_sink(waker())
    tasks = await drawn_run(subject, a=[], b=["a"], c=["b"])
    equal(set(await announced(subject)), {tasks["a"]}, "who waits for others is not announced")
    subject.clock.advance(5)
    await end(subject, tasks["a"])
    equal(await woken(subject), [tasks["b"]], "with the promotion")
    await end(subject, tasks["b"], DEAD)
    subject.clock.advance(60)
    equal(await woken(subject), [], "nobody is left to be woken")
    await subject.amend(Change.REQUEUE, tasks["b"])
    equal(set(await announced(subject)), {tasks["b"]}, "a rearmed task waits again")


@case("C12.4")
async def follow_ups_are_announced(subject: Subject) -> None:
    await subject.store.declare_sink(waker())
    lease = (await subject.claim(await subject.submit())).lease
    follow_up = new_task(delay_seconds=30.0)
    await subject.settle(lease, Completed(), follow_ups=(follow_up,))
    equal((await announced(subject))[follow_up.id], subject.clock.now() + timedelta(seconds=30), "when they are due")


@case("C12.4", "C12.1")
async def an_unclaimed_task_is_announced_again_and_again(subject: Subject) -> None:
    await subject.store.declare_sink(waker())
    task_id = await subject.submit()
    pause = REPEAT_SECONDS
    for told in range(7):
        equal(await woken(subject), [task_id], "it is due")
        await record(subject, *map(delivered, await rows(subject)))
        equal([(row.told, row.repeats) for row in await rows(subject)], [(told + 1, True)], "told, and to be repeated")
        equal(await announced(subject), {task_id: subject.clock.now() + timedelta(seconds=pause)}, "then again")
        equal((await only_sink(subject)).pending, 0, "nothing waits meanwhile")
        subject.clock.advance(pause - 1)
        equal(await woken(subject), [], "not before")
        subject.clock.advance(1)
        pause = min(REPEAT_CAP_SECONDS, 2 * pause)
    equal(pause, REPEAT_CAP_SECONDS, "rarer and rarer, up to a bound")


@case("C12.4")
async def one_that_is_queued_again_is_announced_as_often_as_a_new_one(subject: Subject) -> None:
    await subject.store.declare_sink(waker())
    task_id = await subject.submit()
    for _ in range(3):
        await deliver_all(subject, WAKER)
        subject.clock.advance(REPEAT_CAP_SECONDS)
    await _released(subject, task_id)
    equal(len(await deliver_all(subject, WAKER)), 1, "at once")
    due_at = subject.clock.now() + timedelta(seconds=REPEAT_SECONDS)
    equal(await announced(subject), {task_id: due_at}, "and after the first pause, not the fourth")


@case("C12.4", "C12.1")
async def nobody_is_woken_for_a_task_that_is_not_queued(subject: Subject) -> None:
    await subject.store.declare_sink(waker())
    for status in (TaskStatus.RUNNING, TaskStatus.COMPLETED, TaskStatus.FAILED):
        await subject.run_to(status)
    await subject.amend(Change.CANCEL, await subject.submit())
    await subject.amend(Change.DELETE, await subject.run_to(TaskStatus.COMPLETED))
    pruned = await subject.run_to(TaskStatus.CANCELED)
    await subject.store.prune(Retention(completed=None, canceled=timedelta(0)), limit=10)
    equal(await subject.store.get(pruned), None, "it is gone")
    claimed = await subject.submit()
    equal(await woken(subject), [claimed], "only for what can be claimed")
    equal(set(await announced(subject)), {claimed}, "the others are dropped")
    await record(subject, *map(delivered, await rows(subject)))
    await subject.claim(claimed)
    subject.clock.advance(REPEAT_SECONDS)
    equal(await woken(subject), [], "one that was claimed meanwhile is not repeated")
    equal(await announced(subject), {}, "and dropped")


@case("C12.4")
async def what_is_dropped_does_not_use_up_the_limit_for_ever(subject: Subject) -> None:
    await subject.store.declare_sink(waker())
    await subject.submit_all(*(new_task() for _ in range(30)))
    await subject.claim_many()
    last = await subject.submit()
    for _ in range(31):
        taken = await take(subject, WAKER, limit=1)
        if taken:
            break
    equal([row.task_id for row in taken], [last], "it comes through")


@case("C12.4", "C12.3")
async def a_wake_up_that_is_under_way_does_not_stand_for_the_next(subject: Subject) -> None:
    """1. A relay takes the wake-up. 2. The task is claimed and given back. 3. The relay says that it has told."""
    await subject.store.declare_sink(waker())
    task_id = await subject.submit()
    old = (await take(subject, WAKER))[0]
    await _released(subject, task_id)
    async with same_rows(subject):
        await record(subject, delivered(old))
    equal(await woken(subject, "relay-2"), [task_id], "it is announced anew, although the old hold is not over")


@case("C12.4", "C12.3")
async def a_wake_up_waits_while_its_sink_cannot_be_reached(subject: Subject) -> None:
    await subject.store.declare_sink(waker())
    await subject.submit()
    row = (await take(subject, WAKER))[0]
    await record(subject, refused_by_sink(row, error="no route to host", blame=False))
    equal((await only_sink(subject)).pending, 1, "whoever looks sees that it waits")
    subject.clock.advance(REST_SECONDS)
    await record(subject, *map(delivered, await take(subject, WAKER)))
    equal([(row.tries, row.last_error) for row in await rows(subject)], [(0, None)], "it is told: all is well again")
    equal((await only_sink(subject)).pending, 0, "nothing waits")


@case("C12.4", "C12.3")
async def a_wake_up_that_fails_is_tried_again_and_renewed(subject: Subject) -> None:
    await subject.store.declare_sink(waker())
    task_id = await subject.submit()
    row = (await take(subject, WAKER))[0]
    await record(subject, refused_by_sink(row))
    equal(await announced(subject), {task_id: subject.clock.now() + timedelta(seconds=BASE_SECONDS)}, "soon")
    equal([row.tries for row in await rows(subject)], [1], "it counts")
    equal((await only_sink(subject)).pending, 1, "and waits")
    subject.clock.advance(BASE_SECONDS)
    row = (await take(subject, WAKER))[0]
    await record(subject, refused_by_sink(row, final=True))
    equal([row.state for row in await rows(subject)], [OutboxState.DEAD], "given up")
    await _released(subject, task_id)
    equal([(row.state, row.tries) for row in await rows(subject)], [(OutboxState.PENDING, 0)], "a new one takes over")
    equal(await woken(subject), [task_id], "and is told")
