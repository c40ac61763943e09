"""Section 4: what an acknowledged submit means, and what the same submit again means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import msgspec

from holdfast.errors import IdempotencyConflict, InvalidTask
from holdfast.model.backoff import Fixed
from holdfast.model.outcome import Completed
from holdfast.model.query import Retention
from holdfast.model.task import NewTask, Submitted, TaskStatus
from holdfast.model.transition import Change
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import accepted, equal, present, that
from holdfast.testing.conformance.registry import case, register
from holdfast.testing.conformance.subject import END, Subject, claim_request, new_task, with_parent


@case("C4.1")
async def an_acknowledged_submit_is_seen_through_every_handle(subject: Subject) -> None:
    other = await subject.another_handle()
    task_id = await subject.submit(payload='"here"')
    equal(present(await other.get(task_id), "the task").payload, "here", "the other handle sees the task")


@case("C4.1", "C0.2", needs=("durable",))
async def an_acknowledged_submit_is_there_after_the_store_was_closed(subject: Subject) -> None:
    task_ids = [await subject.submit() for _ in range(3)]
    claim = await subject.claim(task_ids[0])
    before = await subject.snapshot()
    await subject.close_handles()
    await subject.another_handle()
    equal(await subject.snapshot(), before, "everything is as it was")
    await subject.settle(claim.lease, Completed())


# The same key again


def _known_key_case(status: TaskStatus) -> None:
    async def prove(subject: Subject) -> None:
        first = await subject.run_to(status, idempotency_key="order-7")
        async with subject.unchanged():
            again = new_task(idempotency_key="order-7", payload='"another"', queue="another", priority=9)
            answers = await subject.submit_all(again)
        equal(answers, [Submitted(first, created=False)], "the existing task's id")
        equal(await subject.store.get(again.id), None, "no second record")

    register(f"a_known_key_answers_with_its_task_when_{status.value}", ("C4.2",), prove)


for _status in TaskStatus:
    _known_key_case(_status)


@case("C4.2")
async def a_key_of_another_name_is_a_conflict(subject: Subject) -> None:
    await subject.submit(name="charge", idempotency_key="order-7")
    conflict = new_task(name="refund", idempotency_key="order-7")
    refusal = await subject.refuses(subject.submit_all(new_task(), conflict), IdempotencyConflict)
    that("order-7" in str(refusal) and "charge" in str(refusal), "the refusal names the key and its holder")


@case("C4.2")
async def a_key_counts_within_one_batch(subject: Subject) -> None:
    first, second = new_task(idempotency_key="k"), new_task(idempotency_key="k")
    answers = await subject.submit_all(first, second)
    equal(answers, [Submitted(first.id, created=True), Submitted(first.id, created=False)], "the first one holds it")
    clash = new_task(name="other", idempotency_key="j")
    await subject.refuses(subject.submit_all(new_task(idempotency_key="j"), clash), IdempotencyConflict)


@case("C4.2")
async def sixteen_submitters_of_one_key_make_one_task(subject: Subject) -> None:
    """1. Sixteen threads hold a handle each. 2. All submit the same key at once. 3. One creates; all get its id."""
    tasks = [new_task(idempotency_key="race") for _ in range(16)]

    def submit_one(new: NewTask) -> Callable[[Store], Awaitable[list[Submitted]]]:
        return lambda store: store.submit([new])

    answers = [answer for (answer,) in accepted(await subject.race([submit_one(new) for new in tasks]))]
    equal(len({answer.id for answer in answers}), 1, "all are told the same id")
    equal([answer.created for answer in answers].count(True), 1, "one submit created it")
    equal([task.id for task in (await subject.snapshot()).tasks], [answers[0].id], "one record exists")
    equal(await subject.kinds(answers[0].id), ["task.enqueued"], "and was enqueued once")


@case("C4.2")
async def a_key_is_free_again_once_its_task_is_deleted(subject: Subject) -> None:
    first = await subject.run_to(TaskStatus.COMPLETED, idempotency_key="k")
    await subject.amend(Change.DELETE, first)
    second = new_task(name="other", idempotency_key="k")
    equal(await subject.submit_all(second), [Submitted(second.id, created=True)], "the key makes a new task")
    equal(present(await subject.store.find("k"), "the key's task").id, second.id, "which now holds it")


@case("C4.2", "C8.5")
async def a_key_is_free_again_once_its_task_is_pruned(subject: Subject) -> None:
    await subject.run_to(TaskStatus.COMPLETED, idempotency_key="k")
    subject.clock.advance(8 * 24 * 3600)
    equal(await subject.store.prune(Retention(), limit=10), 1, "the old task is pruned")
    second = new_task(idempotency_key="k")
    equal(await subject.submit_all(second), [Submitted(second.id, created=True)], "the key makes a new task")


# The same id again


def _same_id_case(status: TaskStatus) -> None:
    async def prove(subject: Subject) -> None:
        fields: dict[str, Any] = {"idempotency_key": "k", "payload": "[1]", "delay_seconds": 0.0}
        tasks = with_parent(**fields) if status is TaskStatus.WAITING else (new_task(**fields),)
        first = await subject.submit_all(*tasks)
        await _bring_to(subject, tasks[-1].id, status)
        subject.clock.advance(1)
        async with subject.unchanged():
            equal(await subject.submit_all(*tasks), first, "it answers as the first time")

    register(f"the_same_submit_again_changes_nothing_when_{status.value}", ("C4.2",), prove)


async def _bring_to(subject: Subject, task_id: str, status: TaskStatus) -> None:
    if status in (TaskStatus.WAITING, TaskStatus.QUEUED):
        return
    lease = (await subject.claim(task_id)).lease
    if status is not TaskStatus.RUNNING:
        await subject.settle(lease, END[status])


for _status in TaskStatus:
    _same_id_case(_status)


@case("C4.2")
async def the_same_submit_at_once_makes_one_task(subject: Subject) -> None:
    """1. A submit hangs. 2. Its client sends it again, on other connections. 3. All of them arrive together."""
    new = new_task()

    async def act(store: Store) -> list[Submitted]:
        return await store.submit([new])

    equal(await subject.race([act] * 8), [[Submitted(new.id, created=True)]] * 8, "all answer as the first")
    equal(await subject.kinds(new.id), ["task.enqueued"], "it was enqueued once")


@case("C4.2")
async def a_refused_duplicate_sent_again_answers_as_the_first_time(subject: Subject) -> None:
    holder = await subject.submit(idempotency_key="k")
    duplicate = new_task(idempotency_key="k")
    for _ in range(2):
        equal(await subject.submit_all(duplicate), [Submitted(holder, created=False)], "the holder's id, each time")


@case("C4.2", "C4.3")
async def the_same_id_counts_within_one_batch(subject: Subject) -> None:
    new = new_task()
    answers = await subject.submit_all(new, new_task(), new)
    equal([answer.created for answer in answers], [True] * 3, "each answers as the first")
    equal(await subject.kinds(new.id), ["task.enqueued"], "it was enqueued once")
    other = new_task()
    clash = new_task(id=other.id, payload='"other"')
    await subject.refuses(subject.submit_all(other, clash), InvalidTask)


@case("C4.2")
async def the_same_id_with_other_content_is_refused(subject: Subject) -> None:
    new = new_task(idempotency_key="k", backoff=Fixed(1.0))
    await subject.submit_all(new)
    others: dict[str, Any] = {
        "name": "other",
        "queue": "other",
        "payload": '"other"',
        "priority": 1,
        "max_attempts": 1,
        "backoff": Fixed(2.0),
        "timeout": 1.0,
        "lease": 1.0,
        "idempotency_key": "other",
        "concurrency_key": "other",
        "run_id": "other",
        "meta": '{"other":1}',
    }
    base = {"id": new.id, "idempotency_key": "k", "backoff": Fixed(1.0)}
    for field, value in others.items():
        refusal = await subject.refuses(subject.submit_all(new_task(), new_task(**base | {field: value})), InvalidTask)
        that(new.id in str(refusal), "the refusal names the task")


# Many at once


@case("C4.3")
async def a_batch_is_stored_all_or_none(subject: Subject) -> None:
    taken = await subject.submit(name="charge", idempotency_key="taken")
    good = [new_task() for _ in range(50)]
    clash = new_task(name="refund", idempotency_key="taken")
    await subject.refuses(subject.submit_all(*good[:25], clash, *good[25:]), IdempotencyConflict)
    await subject.refuses(subject.submit_all(*good, new_task(id=taken, name="other")), InvalidTask)
    equal([answer.created for answer in await subject.submit_all(*good)], [True] * 50, "without the bad one all are")


@case("C4.3", "C5.2")
async def a_batch_keeps_its_order(subject: Subject) -> None:
    batch = [new_task() for _ in range(40)]
    shuffled = batch[20:] + batch[:20]
    await subject.submit_all(*shuffled)
    claims = await subject.claim_many(15) + await subject.claim_many()
    equal([claim.task_id for claim in claims], [new.id for new in shuffled], "claimed in the order of the call")


@case("C4.3")
async def an_empty_batch_is_nothing(subject: Subject) -> None:
    async with subject.unchanged():
        equal(await subject.submit_all(), [], "no answers")


@case("C4.3", "C4.2")
async def a_batch_answers_one_by_one_in_order(subject: Subject) -> None:
    known = new_task()
    await subject.submit_all(known)
    holder = await subject.submit(idempotency_key="k")
    fresh, keyed = new_task(), new_task(idempotency_key="k")
    expected = [Submitted(holder, created=False), Submitted(fresh.id, created=True), Submitted(known.id, created=True)]
    equal(await subject.submit_all(keyed, fresh, known), expected, "each its own answer")


@case("C4.1", "C5.1")
async def a_delay_counts_from_the_stores_now(subject: Subject) -> None:
    subject.clock.advance(100)
    task = await subject.get(await subject.submit(delay_seconds=2.5))
    equal((task.run_at - subject.clock.now()).total_seconds(), 2.5, "run_at is now plus the delay")


@case("C4.3", "C2", "C11.1")
async def a_large_batch_is_kept_like_a_small_one(subject: Subject) -> None:
    """The same kinds of tasks, each submitted alone and then many times over in one call."""
    now = subject.clock.now()
    kinds: list[dict[str, Any]] = [
        {"payload": '"\\u0000 \U0001f600"', "meta": '{"m":1}', "run_id": "r"},
        {"queue": "mail", "priority": 3, "max_attempts": 0, "backoff": Fixed(5.0), "timeout": 7.0, "lease": 90.0},
        {"delay_seconds": 70.5, "concurrency_key": "tenant"},
        {"run_at": now - timedelta(hours=1), "priority": -3},
    ]
    alone = [await subject.get(await subject.submit(**fields)) for fields in kinds]
    many = [new_task(**kinds[n % len(kinds)]) for n in range(1000)]
    equal(await subject.submit_all(*many), [Submitted(new.id, created=True) for new in many], "all are new")
    equal(
        await subject.submit_all(*many), [Submitted(new.id, created=True) for new in many], "again after a lost reply"
    )
    for n, new in enumerate(many):
        expected = msgspec.structs.replace(alone[n % len(kinds)], id=new.id)
        equal(await subject.get(new.id), expected, "the same record")
        equal([event.kind for event in await subject.events(new.id)], ["task.enqueued"], "with its event")
    first = [new.id for new in many if new.queue == "mail"]
    claims = (await subject.store.claim(claim_request(limit=len(first) + 1))).claims
    equal([claim.task_id for claim in claims], [alone[1].id, *first], "in the order given")
    counts = {info.name: info.counts for info in await subject.store.queues()}
    equal(counts["default"], {"queued": 753}, "counted")
