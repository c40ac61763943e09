"""C12.3: rows of the outbox come with their change and are told in order, until they are delivered or dead.

Of wake-ups there is more in wakes.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

from holdfast.errors import IdempotencyConflict, LeaseLost
from holdfast.model.backoff import Fixed
from holdfast.model.event import Event
from holdfast.model.outbox import Delivery, Effect, NewSink, OutboxRow, OutboxState, Sink
from holdfast.model.outcome import Completed, Emitted, ErrorInfo, Failed, Released, Settlement, Snoozed
from holdfast.model.query import Retention
from holdfast.model.schedule import NewSchedule, Timing
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change
from holdfast.policy.relaying import BASE_SECONDS, CAP_SECONDS, LONGEST_DELAY_SECONDS, REST_SECONDS, TRIES
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import accepted, equal, identical, present, that
from holdfast.testing.conformance.joined import transaction
from holdfast.testing.conformance.queues import ODD_NAMES
from holdfast.testing.conformance.registry import Proof
from holdfast.testing.conformance.registry import case as plain_case
from holdfast.testing.conformance.subject import EVERYTHING, Subject, claim_request, guessed, new_task
from holdfast.testing.conformance.workflows import DEAD, advance, chord, drawn_run, end, settle_all

HOOK = "hook"
RELAY = "relay-1"
HOLD_SECONDS = 30.0
HOSTILE = {"text": "a\x00b 'é𝄞", "n": [2**70, -0.0, 1e16], "deep": {"k": [[]]}}


def case(*clauses: str, needs: tuple[str, ...] = ()) -> Callable[[Proof], Proof]:
    return plain_case(*clauses, needs=("outbox", *needs))


# Sinks and relays in few words


def hook(name: str = HOOK, **fields: Any) -> NewSink:
    return NewSink(**({"name": name, "url": "https://example.org/told", "effect": Effect.ROUTE} | fields))


async def rows(subject: Subject, sink: str | None = None, state: OutboxState | None = None) -> list[OutboxRow]:
    return await subject.store.outbox(sink=sink, state=state, limit=EVERYTHING, after=0)


async def take(subject: Subject, *sinks: str, limit: int = EVERYTHING, hold: str = RELAY) -> list[OutboxRow]:
    return await subject.store.take_outbox(sinks or (HOOK,), limit=limit, hold=hold, hold_seconds=HOLD_SECONDS)


def delivered(row: OutboxRow, hold: str = RELAY) -> Delivery:
    return Delivery(row_id=row.id, hold=hold)


def refused_by_sink(row: OutboxRow, **fields: Any) -> Delivery:
    given: dict[str, Any] = {"row_id": row.id, "hold": RELAY, "error": "answered 500"}
    return Delivery(**(given | fields))


async def record(subject: Subject, *deliveries: Delivery) -> None:
    await subject.store.record_deliveries(deliveries)


async def deliver_all(subject: Subject, *sinks: str) -> list[OutboxRow]:
    """What is told to these sinks until nothing is due, in the order in which they hear it."""
    told: list[OutboxRow] = []
    while taken := await take(subject, *sinks):
        told += taken
        await record(subject, *map(delivered, taken))
    return told


async def dead_row(subject: Subject, sink: str = HOOK) -> OutboxRow:
    """The first row that is due, given up."""
    row = (await take(subject, sink, limit=1))[0]
    await record(subject, refused_by_sink(row, final=True))
    return row


def kinds(told: Sequence[OutboxRow]) -> list[str]:
    return [present(row.event, "the event that is told").kind for row in told]


@asynccontextmanager
async def same_rows(subject: Subject) -> AsyncIterator[None]:
    """What is done inside writes no row and takes none away."""
    before = await rows(subject)
    yield
    equal(await rows(subject), before, "the outbox is as it was")


async def only_sink(subject: Subject) -> Sink:
    found = await subject.store.sinks()
    equal(len(found), 1, "there is one sink")
    return found[0]


# Sinks


@case("C12.3")
async def a_sink_is_kept_as_it_was_declared(subject: Subject) -> None:
    plain = hook("b")
    rich = hook(
        "a",
        url="http://10.0.0.7:8080/x?y=1",
        kinds=("task.failed", "invoice.sent"),
        queues=("mail", "naïve"),
        secret="s3cret 'é",
        private=True,
    )
    waker = NewSink(name="c", url="sqs://eu-central-1/tasks", effect=Effect.WAKE, queues=("mail",))
    now = subject.clock.now()
    for new in (plain, rich, waker):
        await subject.store.declare_sink(new)
    other = await subject.another_handle()
    equal(await other.targets(), [rich, plain, waker], "relays get all of it, by name, through every handle")
    shown = await other.sinks()
    for sink, new in zip(shown, (rich, plain, waker), strict=True):
        own = (sink.name, sink.url, sink.effect, sink.kinds, sink.queues, sink.private, sink.signed)
        signed = new.secret is not None
        equal(own, (new.name, new.url, new.effect, new.kinds, new.queues, new.private, signed), "people read this")
        equal((sink.created_at, sink.pending, sink.dead, sink.oldest_at), (now, 0, 0, None), "nothing waits yet")
    that("s3cret" not in repr(shown), "a secret is not shown")


@case("C12.3")
async def a_renewed_sink_keeps_what_waits_for_it(subject: Subject) -> None:
    await subject.store.declare_sink(hook(secret="old"))
    created_at = subject.clock.now()
    await subject.submit()
    subject.clock.advance(10)
    again = hook(url="https://example.org/other", kinds=("task.completed",))
    async with same_rows(subject):
        await subject.store.declare_sink(again)
    equal(await subject.store.targets(), [again], "what is new holds")
    sink = await only_sink(subject)
    equal((sink.created_at, sink.signed, sink.pending), (created_at, False, 1), "it is the same sink")
    await subject.claim()
    equal(kinds(await rows(subject)), ["task.enqueued"], "from now on only what it asks for")


@case("C12.3")
async def a_deleted_sink_is_gone_with_all_that_waits_for_it(subject: Subject) -> None:
    for name in ("a", "b"):
        await subject.store.declare_sink(hook(name))
    task_id = await subject.submit()
    late = (await take(subject, "a"))[0]
    await subject.submit()
    await dead_row(subject, "a")
    equal(await subject.store.delete_sink("a"), True, "it was there")
    equal(await subject.store.delete_sink("a"), False, "and is not any more")
    equal([sink.name for sink in await subject.store.sinks()], ["b"], "the other stays")
    equal({row.sink for row in await rows(subject)}, {"b"}, "with what waits for it")
    await record(subject, refused_by_sink(late))
    await subject.claim(task_id)
    equal([row.sink for row in await rows(subject)], ["b"] * 3, "nothing more is written for one that is gone")
    subject.clock.advance(5)
    await subject.store.declare_sink(hook("a"))
    equal(await rows(subject, "a"), [], "one of the same name is a new one")
    equal((await subject.store.sinks())[0].created_at, subject.clock.now(), "since now")


@case("C12.3")
async def names_of_sinks_are_only_names(subject: Subject) -> None:
    for name in ODD_NAMES:
        await subject.store.declare_sink(hook(name, queues=(name,)))
    equal([sink.name for sink in await subject.store.sinks()], sorted(ODD_NAMES), "by name, exactly as given")
    for name in ODD_NAMES:
        task_id = await subject.submit(queue=name)
        equal([(row.sink, row.task_id) for row in await take(subject, *ODD_NAMES)], [(name, task_id)], "that one alone")
        that(await subject.store.delete_sink(name), "it is known by its name")
    equal(await subject.store.sinks(), [], "none is left")


@case("C12.3", needs=("durable",))
async def what_is_to_be_told_outlives_its_process(subject: Subject) -> None:
    await subject.store.declare_sink(hook(secret="s"))
    await subject.submit()
    targets, before = await subject.store.targets(), await rows(subject)
    await subject.close_handles()
    await subject.another_handle()
    equal((await subject.store.targets(), await rows(subject)), (targets, before), "both are still there")
    equal(len(await take(subject)), 1, "and it is still pending")


# Rows come with their change


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


# Taking and telling


@case("C12.3")
async def of_one_task_only_the_first_row_is_taken(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    one, other = await subject.run_to(TaskStatus.COMPLETED), await subject.run_to(TaskStatus.RUNNING)
    told: dict[str, list[str]] = {one: [], other: []}
    for round_ in range(3):
        taken = await take(subject, hold=f"relay-{round_}")
        that(len({row.task_id for row in taken}) == len(taken), "at most one of each task")
        equal(await take(subject, hold="rival"), [], "what follows waits until it is told")
        await record(subject, *(delivered(row, f"relay-{round_}") for row in taken))
        for row in taken:
            told[row.task_id] += kinds([row])
    life = ["task.enqueued", "task.running", "task.completed"]
    equal((told[one], told[other]), (life, life[:2]), "each in order")
    equal(await rows(subject), [], "what is delivered is gone")


@case("C12.3")
async def each_sink_has_its_own_line(subject: Subject) -> None:
    for name in ("a", "b"):
        await subject.store.declare_sink(hook(name))
    await subject.run_to(TaskStatus.COMPLETED)
    await record(subject, refused_by_sink((await take(subject, "a"))[0]))
    life = ["task.enqueued", "task.running", "task.completed"]
    equal(kinds(await deliver_all(subject, "b")), life, "one that fails does not hold the others")
    subject.clock.advance(60)
    equal(kinds(await deliver_all(subject, "a")), life, "and is told all of it later")


@case("C12.3")
async def rows_are_taken_for_the_named_sinks_oldest_first_up_to_a_number(subject: Subject) -> None:
    for name in ("a", "b", "c"):
        await subject.store.declare_sink(hook(name, kinds=("task.enqueued",)))
    tasks = []
    for _ in range(4):
        tasks.append(await subject.submit())
        subject.clock.advance(1)
    equal(await subject.store.take_outbox([], limit=10, hold=RELAY, hold_seconds=1.0), [], "for nobody")
    equal(await take(subject, "nobody"), [], "for one who is not known")
    first = await take(subject, "a", limit=3)
    equal([(row.sink, row.task_id) for row in first], [("a", one) for one in tasks[:3]], "the oldest ones")
    rest = await take(subject, "a", "b", limit=3)
    equal([row.task_id for row in rest], [tasks[0], tasks[1], tasks[2]], "still the oldest, of both")
    equal({row.sink for row in rest}, {"b"}, "without those that are held")
    equal([(row.sink, row.task_id) for row in await take(subject, "a", "b")], [("a", tasks[3]), ("b", tasks[3])], "")
    equal(len(await take(subject, "c")), 4, "the third was not touched")


@case("C12.3")
async def a_row_that_comes_due_earlier_is_taken_before_an_older_one(subject: Subject) -> None:
    await subject.store.declare_sink(hook(kinds=("task.enqueued",)))
    failing, fresh = await subject.submit(), await subject.submit()
    row = (await take(subject, limit=1))[0]
    equal(row.task_id, failing, "the oldest")
    await record(subject, refused_by_sink(row))
    subject.clock.advance(BASE_SECONDS)
    equal([one.task_id for one in await take(subject, limit=1)], [fresh], "who has waited longest since it was due")
    equal([one.task_id for one in await take(subject)], [failing], "then the other")


@case("C12.3")
async def a_taken_row_is_held_until_the_hold_is_over(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    await subject.submit()
    row = (await take(subject))[0]
    subject.clock.advance(HOLD_SECONDS - 1)
    equal(await take(subject, hold="relay-2"), [], "nobody else gets it")
    equal(await take(subject), [], "nor the same relay once more")
    subject.clock.advance(1)
    again = await take(subject, hold="relay-2")
    equal([(one.id, one.tries) for one in again], [(row.id, 0)], "then it is free, and was not tried")
    async with same_rows(subject):
        await record(subject, delivered(row), refused_by_sink(row, final=True))
    await record(subject, delivered(row, "relay-2"))
    equal(await rows(subject), [], "the word of the one who holds it counts")


@case("C12.3")
async def the_word_of_a_slow_relay_counts_while_nobody_else_holds_the_row(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    await subject.submit()
    row = (await take(subject))[0]
    subject.clock.advance(HOLD_SECONDS * 3)
    await record(subject, delivered(row))
    equal(await rows(subject), [], "it was told, and nobody has to repeat it")


@case("C12.3")
async def a_word_that_is_repeated_counts_once(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    for _ in range(2):
        await subject.submit()
    failing, fine = await take(subject)
    for _ in range(2):
        await record(subject, refused_by_sink(failing), delivered(fine))
    left = await rows(subject)
    equal([(row.id, row.tries) for row in left], [(failing.id, 1)], "one try, and the other is gone")
    async with same_rows(subject):
        await record(subject, refused_by_sink(failing, hold="stranger"), Delivery(row_id=10**9, hold=RELAY))
        await record(subject)


@case("C12.3")
async def a_batch_that_fails_in_part_keeps_what_failed(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    await subject.submit_all(*(new_task() for _ in range(6)))
    taken = await take(subject)
    failed = taken[::2]
    await record(subject, *(refused_by_sink(row) if row in failed else delivered(row) for row in taken))
    equal([row.id for row in await rows(subject)], [row.id for row in failed], "those alone are left")


@case("C12.3")
async def many_relays_at_once_never_hold_the_same_row(subject: Subject) -> None:
    """1. Sixty tasks have each two rows. 2. Eight relays take ten at a time, let go at once, until nothing is left."""
    await subject.store.declare_sink(hook())
    await subject.submit_all(*(new_task() for _ in range(60)))
    await subject.claim_many()

    async def relay(store: Store, number: int) -> list[tuple[str, int]]:
        told: list[tuple[str, int]] = []
        while taken := await store.take_outbox([HOOK], limit=10, hold=f"relay-{number}", hold_seconds=HOLD_SECONDS):
            told += [(row.task_id, row.id) for row in taken]
            await store.record_deliveries([delivered(row, f"relay-{number}") for row in taken])
        return told

    def act(number: int) -> Any:
        return lambda store: relay(store, number)

    told = [one for answer in accepted(await subject.race([act(n) for n in range(8)])) for one in answer]
    told += [(row.task_id, row.id) for row in await deliver_all(subject)]
    equal(len(told), 120, "each was told once")
    equal(len(set(told)), 120, "by one relay alone")
    equal(await rows(subject), [], "nothing is left")


@case("C12.3", "C3.3")
async def many_writers_at_once_leave_every_row_in_order(subject: Subject) -> None:
    await subject.store.declare_sink(hook())

    async def live(store: Store) -> None:
        for _ in range(5):
            new = new_task()
            await store.submit([new])
            claim = (await store.claim(claim_request(task_id=new.id))).claims[0]
            accepted(await store.settle([Settlement(claim.lease, Completed())]))

    accepted(await subject.race([live] * 6))
    life = ["task.enqueued", "task.running", "task.completed"]
    told: dict[str, list[str]] = {}
    for row in await deliver_all(subject):
        told.setdefault(row.task_id, []).extend(kinds([row]))
    equal(list(told.values()), [life] * 30, "each task's own, in order")


# What fails


@case("C12.3")
async def a_row_that_is_refused_again_and_again_is_dead(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    task_id = await subject.run_to(TaskStatus.RUNNING)
    other = await subject.submit()
    for tries in range(TRIES - 1):
        row = next(one for one in await take(subject) if one.task_id == task_id)
        await record(subject, refused_by_sink(row, error=f"answered {500 + tries}"))
        row = (await rows(subject))[0]
        delay = min(CAP_SECONDS, BASE_SECONDS * 2**tries)
        equal((row.tries, row.last_error, row.state), (tries + 1, f"answered {500 + tries}", "pending"), "it counts")
        equal(row.due_at, subject.clock.now() + timedelta(seconds=delay), "longer and longer")
        subject.clock.advance(delay - 0.5)
        that(task_id not in {one.task_id for one in await take(subject)}, "not before, and nothing passes it")
        subject.clock.advance(0.5)
    row = next(one for one in await take(subject) if one.task_id == task_id)
    await record(subject, refused_by_sink(row))
    dead = await rows(subject, state=OutboxState.DEAD)
    equal([(one.id, one.tries, kinds([one])) for one in dead], [(row.id, TRIES, ["task.enqueued"])], "given up")
    subject.clock.advance(HOLD_SECONDS)
    later = {one.task_id: kinds([one]) for one in await take(subject)}
    equal(later, {task_id: ["task.running"], other: ["task.enqueued"]}, "it holds back nobody any more")
    sink = await only_sink(subject)
    equal((sink.dead, sink.pending), (1, 2), "and is counted")


@case("C12.3")
async def a_sink_that_cannot_be_reached_costs_no_try(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    await subject.submit()
    for _ in range(TRIES + 5):
        row = (await take(subject))[0]
        await record(subject, refused_by_sink(row, error="no route to host", blame=False))
        row = (await rows(subject))[0]
        equal((row.tries, row.last_error, row.state), (0, "no route to host", "pending"), "it is not the row's fault")
        equal(row.due_at, subject.clock.now() + timedelta(seconds=REST_SECONDS), "soon again")
        equal(await take(subject), [], "not at once")
        sink = await only_sink(subject)
        equal((sink.pending, sink.oldest_at), (1, row.created_at), "and whoever looks sees that it waits")
        subject.clock.advance(REST_SECONDS)


@case("C12.3")
async def a_sink_may_ask_for_time_or_refuse_for_good(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    asked = {90.0: 90.0, 0.0: BASE_SECONDS, 1e9: LONGEST_DELAY_SECONDS}
    for seconds, expected in asked.items():
        await subject.submit()
        row = (await take(subject))[0]
        await record(subject, refused_by_sink(row, delay_seconds=seconds))
        due_at = (await rows(subject))[-1].due_at
        equal(due_at, subject.clock.now() + timedelta(seconds=expected), "as it asked, within bounds")
    await subject.submit()
    row = (await take(subject))[0]
    await record(subject, refused_by_sink(row, error="410 gone", final=True))
    dead = await rows(subject, state=OutboxState.DEAD)
    equal([(one.id, one.last_error, one.tries) for one in dead], [(row.id, "410 gone", 1)], "dead at once")


@case("C12.3")
async def a_dead_row_can_be_requeued(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    await subject.run_to(TaskStatus.RUNNING)
    row = await dead_row(subject)
    pending = (await rows(subject, state=OutboxState.PENDING))[0]
    async with same_rows(subject):
        equal(await subject.store.requeue_outbox([pending.id, 10**9]), 0, "only dead rows")
        equal(await subject.store.requeue_outbox([]), 0, "nothing")
    subject.clock.advance(7)
    equal(await subject.store.requeue_outbox([row.id, row.id]), 1, "one row")
    equal(await subject.store.requeue_outbox([row.id]), 0, "once")
    again = (await rows(subject))[0]
    equal((again.state, again.tries, again.due_at), ("pending", 0, subject.clock.now()), "with all its tries, now")
    equal(kinds(await deliver_all(subject)), ["task.enqueued", "task.running"], "in its old place")


@case("C12.3")
async def a_dead_row_can_be_purged(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    await subject.run_to(TaskStatus.RUNNING)
    row = await dead_row(subject)
    pending = (await rows(subject, state=OutboxState.PENDING))[0]
    equal(await subject.store.purge_outbox([row.id, pending.id, 10**9, row.id]), 1, "only dead rows, each once")
    equal([one.id for one in await rows(subject)], [pending.id], "it is gone")
    equal(await subject.store.purge_outbox([row.id]), 0, "for good")


# What people see


@case("C12.3")
async def the_outbox_is_read_by_sink_state_and_page(subject: Subject) -> None:
    for name in ("a", "b"):
        await subject.store.declare_sink(hook(name))
    await subject.submit_all(*(new_task() for _ in range(3)))
    dead = await dead_row(subject, "a")
    everything = await rows(subject)
    equal([row.id for row in everything], sorted(row.id for row in everything), "by id")
    equal(len(everything), 6, "all of it")
    pages: list[OutboxRow] = []
    while page := await subject.store.outbox(sink=None, state=None, limit=4, after=pages[-1].id if pages else 0):
        pages += page
    equal(pages, everything, "page by page")
    equal(await rows(subject, "a"), [row for row in everything if row.sink == "a"], "of one sink")
    equal([row.id for row in await rows(subject, state=OutboxState.DEAD)], [dead.id], "of one state")
    pending = await rows(subject, "a", OutboxState.PENDING)
    equal(pending, [row for row in everything if row.sink == "a" and row.id != dead.id], "of both")
    equal(await rows(subject, "nobody"), [], "of nobody")


@case("C12.3")
async def a_sink_shows_what_waits_for_it(subject: Subject) -> None:
    await subject.store.declare_sink(hook())
    since = subject.clock.now()
    await subject.submit_all(*(new_task() for _ in range(3)))
    subject.clock.advance(20)
    await subject.submit()
    sink = await only_sink(subject)
    equal((sink.pending, sink.dead, sink.oldest_at), (4, 0, since), "what waits, and since when")
    await dead_row(subject)
    sink = await only_sink(subject)
    equal((sink.pending, sink.dead, sink.oldest_at), (3, 1, since), "what is given up does not wait")
    await deliver_all(subject)
    sink = await only_sink(subject)
    equal((sink.pending, sink.dead, sink.oldest_at), (0, 1, None), "what is delivered neither")
