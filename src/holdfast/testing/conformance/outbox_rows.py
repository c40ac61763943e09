"""C12.3: rows of the outbox come with their change, and say what its event says.

Of wake-ups there is more in wakes.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

from holdfast.errors import IdempotencyConflict, LeaseLost
from holdfast.model.backoff import Fixed
from holdfast.model.event import Event
from holdfast.model.outbox import Effect, OutboxRow, OutboxState
from holdfast.model.outcome import Completed, Emitted, ErrorInfo, Failed, Released, Snoozed
from holdfast.model.query import Retention
from holdfast.model.schedule import NewSchedule, Timing
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change
from holdfast.testing.conformance.checks import equal, identical, present, that
from holdfast.testing.conformance.joined import transaction
from holdfast.testing.conformance.outbox_words import HOOK, case, deliver_all, hook, kinds, rows, same_rows
from holdfast.testing.conformance.subject import Subject, guessed, new_task
from holdfast.testing.conformance.workflow_words import DEAD, advance, chord, drawn_run, end, settle_all

HOSTILE = {"text": "a\x00b 'é𝄞", "n": [2**70, -0.0, 1e16], "deep": {"k": [[]]}}


@case("C12.3", "C3.3")
async def a_row_says_what_its_event_says(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    task_id = await subject.submit(queue="mail", run_id="r")
    subject.clock.advance(3)
    lease = (await subject.claim(task_id)).lease
    await subject.settle(lease, Completed(), emitted=(Emitted("invoice.sent", HOSTILE),))
    events = await subject.events(task_id)
    for row, event in zip(await rows(subject), events, strict=True):
        expected = OutboxRow(
            id=row.id,
            sink=HOOK,
            effect=Effect.ROUTE,
            task_id=task_id,
            queue="mail",
            state=OutboxState.PENDING,
            event=event,
            created_at=event.ts,
            due_at=event.ts,
            tries=0,
            last_error=None,
        )
        equal(row, expected, "pending, due at once, with the store's own event")
        that(identical(present(row.event, "the event").payload, event.payload), "exactly as the store shows it")


async def _life(subject: Subject) -> AsyncIterator[str]:
    """Every way in which a task can be changed; says which one it was."""
    task_id = await subject.submit(max_attempts=0, backoff=Fixed(0.0))
    yield "submitted"
    lease = (await subject.claim(task_id)).lease
    yield "claimed"
    await subject.progress(lease)
    yield "reported"
    await subject.settle(lease, Failed(ErrorInfo("it broke"), retry_after_seconds=0.0))
    yield "failed"
    await subject.settle((await subject.claim()).lease, Snoozed(0.0))
    yield "snoozed"
    await subject.settle((await subject.claim()).lease, Released())
    yield "released"
    await subject.claim()
    await subject.expire(task_id)
    await subject.reap()
    yield "reaped"
    await subject.claim()
    await subject.expire(task_id)
    await subject.claim(task_id)
    yield "reaped by a claim"
    await subject.amend(Change.RELEASE, task_id)
    yield "released by force"
    lease = (await subject.claim()).lease
    await subject.amend(Change.CANCEL, task_id)
    yield "asked to cancel"
    await subject.settle(lease, Released())
    yield "canceled"
    await subject.amend(Change.REQUEUE, task_id)
    yield "requeued"
    await subject.settle((await subject.claim()).lease, DEAD)
    yield "dead"
    await subject.amend(Change.REQUEUE, task_id)
    yield "requeued from the dead"
    follow_up = new_task(queue="mail")
    lease = (await subject.claim()).lease
    await subject.settle(lease, Completed(), emitted=(Emitted("invoice.sent", HOSTILE),), follow_ups=(follow_up,))
    yield "completed"


def _per_task(events: Sequence[Event]) -> dict[str, list[Event]]:
    told: dict[str, list[Event]] = {}
    for event in events:
        told.setdefault(event.task_id, []).append(event)
    return told


async def told_is_what_happened(subject: Subject, what: str) -> None:
    """Rows and the store's events agree, task by task. Between tasks the order is each store's own."""
    told = [present(row.event, "the event") for row in await rows(subject, HOOK)]
    equal(_per_task(told), _per_task(await subject.events()), f"told as recorded: {what}")


@case("C12.3", "C3.3", "C11.1")
async def every_change_is_told_with_its_event(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    async for what in _life(subject):
        await told_is_what_happened(subject, what)


@case("C12.3", "C10.2", needs=("workflows",))
async def what_an_end_means_for_others_is_told(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    tasks = await drawn_run(subject, a=[], b=["a"], c=["b"], d=["a"])
    await end(subject, tasks["a"])
    await told_is_what_happened(subject, "promoted")
    await end(subject, tasks["b"], DEAD)
    await told_is_what_happened(subject, "canceled because of another")
    await subject.amend(Change.REQUEUE, tasks["b"])
    await told_is_what_happened(subject, "rearmed")
    members, last = chord(150, run_id="wide")
    await subject.submit_all(*members, last)
    await settle_all(subject, await subject.claim_many())
    await advance(subject)
    await told_is_what_happened(subject, "a chord")


@case("C12.3", "C10.8", needs=("schedules",))
async def what_a_schedule_fires_is_told(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    made = await subject.store.declare_schedule(
        NewSchedule(name="nightly", timing=Timing(every=60.0), task=new_task(id=""), declared=True)
    )
    upto = subject.clock.now() + timedelta(minutes=1)
    for _ in range(2):
        await subject.store.fire("nightly", last_fired_at=made.last_fired_at, upto=upto, tasks=[new_task()])
    equal(kinds(await rows(subject)), ["task.enqueued"], "once: the second was too late")
    await told_is_what_happened(subject, "fired")


@case("C12.3", "C8.3", "C8.5")
async def rows_outlive_their_task(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    deleted, pruned = [await subject.run_to(TaskStatus.COMPLETED) for _ in range(2)]
    events = {task_id: await subject.events(task_id) for task_id in (deleted, pruned)}
    await subject.amend(Change.DELETE, deleted)
    await subject.store.prune(Retention(completed=timedelta(0)), limit=10)
    equal(await subject.store.get(pruned), None, "both tasks are gone")
    told = [present(row.event, "the event") for row in await deliver_all(subject)]
    equal([one for one in told if one.task_id == pruned], events[pruned], "what was told of one that was pruned")
    last = [one for one in told if one.task_id == deleted]
    equal(last[:-1], events[deleted], "of one that was deleted")
    equal((last[-1].kind, last[-1].payload["attempt"]), ("task.deleted", 1), "and that it was")


@case("C12.3", "C7", "C4.2")
async def what_changes_nothing_tells_nothing(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    first = new_task(idempotency_key="k")
    await subject.submit_all(first)
    lease = (await subject.claim(first.id)).lease
    emitted, follow_ups = (Emitted("invoice.sent", {}),), (new_task(),)
    async with same_rows(subject):
        await subject.submit_all(first, new_task(idempotency_key="k"))
        await subject.refuses(
            subject.submit_all(new_task(), new_task(idempotency_key="k", name="x")), IdempotencyConflict
        )
        await subject.refuses(subject.settle(guessed(lease), Completed(), emitted=emitted), LeaseLost)
        await subject.extend(lease)
        await subject.reap()
    await subject.settle(lease, Completed(), emitted=emitted, follow_ups=follow_ups)
    async with same_rows(subject):
        await subject.settle(lease, Completed(), emitted=emitted, follow_ups=follow_ups)
        await subject.refuses(subject.settle(lease, Released(), emitted=emitted), LeaseLost)
    lease = (await subject.claim(follow_ups[0].id)).lease
    await subject.expire(lease.task_id)
    async with same_rows(subject):
        await subject.refuses(subject.settle(lease, Completed(), emitted=emitted), LeaseLost)


@case("C12.3")
async def only_sinks_that_are_known_then_are_told(subject: Subject) -> None:
    task_id = await subject.submit()
    equal(await rows(subject), [], "nobody was to be told")
    await subject.store.declare_sink(hook())
    equal(await rows(subject), [], "what lies before is not told")
    await subject.claim(task_id)
    equal(kinds(await rows(subject)), ["task.running"], "what comes after is")


@case("C12.3")
async def a_sink_is_told_only_of_its_kinds_and_queues(subject: Subject) -> None:
    await subject.store.declare_sink(hook("kinds", kinds=("task.completed", "invoice.sent", "task.complete%")))
    await subject.store.declare_sink(hook("queues", queues=("mail", "nowhere")))
    await subject.store.declare_sink(hook("both", kinds=("task.running",), queues=("mail",)))
    await subject.store.declare_sink(hook("all"))
    for queue in ("mail", "other"):
        lease = (await subject.claim(await subject.submit(queue=queue))).lease
        await subject.settle(lease, Completed(), emitted=(Emitted("invoice.sent", {}),))
    whole = ["task.enqueued", "task.running", "invoice.sent", "task.completed"]
    equal(kinds(await rows(subject, "all")), whole * 2, "who asks for nothing hears everything")
    equal(kinds(await rows(subject, "kinds")), ["invoice.sent", "task.completed"] * 2, "these kinds")
    equal(kinds(await rows(subject, "queues")), whole, "of this queue")
    equal([(row.queue, *kinds([row])) for row in await rows(subject, "both")], [("mail", "task.running")], "both")


@case("C12.3", "C4.4", "C7.6", needs=("joined_transactions",))
async def rows_come_and_go_with_the_callers_transaction(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    async with same_rows(subject), transaction(subject, commit=False) as joined:
        await joined.asubmit([new_task()])
    new = new_task()
    async with transaction(subject, commit=True) as joined:
        await joined.asubmit([new])
    equal([(row.task_id, *kinds([row])) for row in await rows(subject)], [(new.id, "task.enqueued")], "told")
    await told_is_what_happened(subject, "joined")
