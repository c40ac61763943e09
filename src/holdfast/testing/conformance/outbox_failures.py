"""C12.3: what a sink refuses is told again, later and later, until it is delivered or dead."""

from __future__ import annotations

from datetime import timedelta

from holdfast.model.outbox import OutboxState
from holdfast.model.task import TaskStatus
from holdfast.policy.relaying import BASE_SECONDS, CAP_SECONDS, LONGEST_DELAY_SECONDS, REST_SECONDS, TRIES
from holdfast.testing.conformance.checks import equal, that
from holdfast.testing.conformance.outbox_words import (
    HOLD_SECONDS,
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
from holdfast.testing.conformance.subject import Subject


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
