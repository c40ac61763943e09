"""C12.3: sinks are kept as they were declared, and show what waits for them."""

from __future__ import annotations

from holdfast.model.outbox import Effect, NewSink, OutboxRow, OutboxState
from holdfast.testing.conformance.checks import equal, that
from holdfast.testing.conformance.outbox_words import (
    case,
    dead_row,
    deliver_all,
    hook,
    kinds,
    only_sink,
    record,
    refused_by_sink,
    rows,
    same_rows,
    take,
)
from holdfast.testing.conformance.queues import ODD_NAMES
from holdfast.testing.conformance.subject import Subject, new_task

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
