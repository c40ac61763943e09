"""C12.3: rows are told in order, each by one relay at a time, however many there are."""

from __future__ import annotations

from typing import Any

from holdfast.model.outbox import Delivery
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.task import TaskStatus
from holdfast.policy.relaying import BASE_SECONDS
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import accepted, equal, that
from holdfast.testing.conformance.outbox_words import (
    HOLD_SECONDS,
    HOOK,
    RELAY,
    case,
    deliver_all,
    delivered,
    hook,
    kinds,
    record,
    refused_by_sink,
    rows,
    same_rows,
    take,
)
from holdfast.testing.conformance.subject import Subject, claim_request, new_task


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
