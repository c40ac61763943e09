"""Section 11: the log of a task's life."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from holdfast import ids
from holdfast.clock import iso, to_micros
from holdfast.errors import LeaseLost, TaskNotFound
from holdfast.model.backoff import Fixed
from holdfast.model.claim import Lease
from holdfast.model.event import Event
from holdfast.model.outcome import Canceled, Completed, Emitted, ErrorInfo, Failed, Released, Snoozed
from holdfast.model.transition import Change
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import equal, that
from holdfast.testing.conformance.lives import random_life
from holdfast.testing.conformance.registry import case
from holdfast.testing.conformance.subject import EVERYTHING, OPERATOR, Subject, new_task
from holdfast.testing.fold import Folded, fold

# The log


@case("C11.1")
async def the_log_only_grows(subject: Subject) -> None:
    known: list[Event] = []
    async for _ in random_life(subject, 21):
        events = await subject.events()
        equal(events[: len(known)], known, "what was written stays as it is, where it is")
        known = events
    numbers = [event.id for event in known]
    equal(numbers, sorted(set(numbers)), "ids ascend")


@case("C11.1")
async def an_event_has_the_fields_of_the_contract(subject: Subject) -> None:
    task_id = await subject.submit(run_id="run-1")
    subject.clock.advance(2)
    await subject.claim(task_id, worker_id="worker-9")
    enqueued, running = await subject.events(task_id)
    equal((enqueued.task_id, enqueued.run_id, enqueued.kind), (task_id, "run-1", "task.enqueued"), "whose and what")
    equal((running.ts, running.actor), (subject.clock.now(), "worker-9"), "when and by whom")
    that(enqueued.id < running.id, "in order")


@case("C11.1")
async def events_are_read_page_by_page(subject: Subject) -> None:
    async for _ in random_life(subject, 22, steps=25):
        pass
    every = await subject.events()
    paged: list[Event] = []
    while page := await subject.store.events(None, after=paged[-1].id if paged else 0, limit=3):
        that(len(page) <= 3, "a page has at most its limit")
        paged += page
    equal(paged, every, "the pages together are the log")
    for task in (await subject.snapshot()).tasks:
        of_task = [event for event in every if event.task_id == task.id]
        equal(await subject.events(task.id), of_task, "the events of one task, in the same order")
        middle = of_task[len(of_task) // 2]
        later = [event for event in of_task if event.id > middle.id]
        equal(await subject.store.events(task.id, after=middle.id, limit=EVERYTHING), later, "after one of them")


@case("C11.1")
async def who_begins_now_is_told_what_comes(subject: Subject) -> None:
    begins: list[int] = [await subject.store.last_event()]
    for _ in range(3):
        await subject.submit()
        begins.append(await subject.store.last_event())
    every = await subject.events()
    for number, place in enumerate(begins):
        equal(await subject.store.events(None, after=place, limit=EVERYTHING), every[number:], "from there on")


@case("C11.1")
async def a_follower_misses_nothing_that_is_committed_late(subject: Subject) -> None:
    """1. Four writers submit at once, in batches. 2. A follower reads on from the last id that it has seen, all along.

    3. When all is written and read, it has seen every event once.
    """
    written: list[str] = []
    writing = [True] * 4

    def writer(number: int) -> Callable[[Store], Awaitable[list[int]]]:
        async def act(store: Store) -> list[int]:
            try:
                for size in (1, 4, 2, 1, 3):
                    answers = await store.submit([new_task() for _ in range(size)])
                    written.extend(answer.id for answer in answers)
            finally:
                writing[number] = False
            return []

        return act

    async def follow(store: Store) -> list[int]:
        seen: list[Event] = []
        done = False
        while True:
            page = await store.events(None, after=seen[-1].id if seen else 0, limit=5)
            seen += page
            if done and not page:
                return [len([event for event in seen if event.task_id == task_id]) for task_id in written]
            done = not any(writing)

    answers = await subject.race([*(writer(number) for number in range(4)), follow])
    equal(answers[-1], [1] * 44, "each event once")


# Payloads


COMMON = {"ts", "task_id", "run_id", "actor"}


async def _last(subject: Subject, task_id: str, *, back: int = 1) -> Event:
    event = (await subject.events(task_id))[-back]
    told = {"ts": iso(to_micros(event.ts)), "task_id": task_id, "run_id": event.run_id, "actor": event.actor}
    equal({key: event.payload.get(key) for key in COMMON}, told, f"what every payload repeats ({event.kind})")
    return event


async def _payload(subject: Subject, task_id: str, kind: str, expected: dict[str, Any], *, back: int = 1) -> None:
    event = await _last(subject, task_id, back=back)
    own = {key: value for key, value in event.payload.items() if key not in COMMON}
    equal((event.kind, own), (kind, expected), "the event, its own keys")


@case("C11.2")
async def running_and_completed_tell_their_attempt(subject: Subject) -> None:
    task_id = await subject.submit(run_id="r", max_attempts=3)
    lease = (await subject.claim(task_id)).lease
    await _payload(subject, task_id, "task.running", {"attempt": 1, "max_attempts": 3})
    await subject.settle(lease, Completed())
    await _payload(subject, task_id, "task.completed", {"attempt": 1})


@case("C11.2")
async def failed_and_requeued_tell_count_delay_and_error(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=2, backoff=Fixed(1.25))
    error = ErrorInfo("no route", "ConnectTimeout", "a stack that events do not repeat")
    await subject.settle((await subject.claim(task_id)).lease, Failed(error))
    counted = {"attempt": 1, "max_attempts": 2, "failures": 1}
    short = {"message": "no route", "code": "ConnectTimeout"}
    retryable = counted | {"terminal": False, "backoff_ms": 1250, "error": short}
    await _payload(subject, task_id, "task.failed", retryable, back=2)
    available_at = iso(subject.clock.micros() + 1_250_000)
    await _payload(subject, task_id, "task.requeued", counted | {"available_at": available_at, "reason": "retry"})
    subject.clock.advance(2)
    await subject.settle((await subject.claim(task_id)).lease, Failed(ErrorInfo("no code")))
    counted = {"attempt": 2, "max_attempts": 2, "failures": 2}
    await _payload(subject, task_id, "task.failed", counted | {"terminal": True, "error": {"message": "no code"}})


@case("C11.2", "C6.5")
async def a_retry_without_delay_still_tells_its_backoff(subject: Subject) -> None:
    task_id = await subject.submit()
    await subject.claim(task_id)
    await subject.expire(task_id)
    await subject.reap()
    failed = await _last(subject, task_id, back=2)
    equal((failed.kind, failed.payload.get("backoff_ms")), ("task.failed", 0), "absent only when terminal")


@case("C11.2")
async def an_operators_requeue_tells_the_fresh_count(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=1)
    lease = (await subject.claim(task_id)).lease
    await subject.settle(lease, Failed(ErrorInfo("it broke")))
    await subject.amend(Change.REQUEUE, task_id)
    told = {"attempt": 1, "max_attempts": 1, "failures": 0, "available_at": iso(subject.clock.micros())}
    await _payload(subject, task_id, "task.requeued", told | {"reason": "requeue"})
    await subject.claim(task_id)
    await subject.amend(Change.RELEASE, task_id)
    await _payload(subject, task_id, "task.requeued", told | {"attempt": 2, "reason": "operator"})


@case("C11.2")
async def our_own_kinds_tell_their_attempt(subject: Subject) -> None:
    task_id = await subject.submit()
    await subject.settle((await subject.claim(task_id)).lease, Snoozed(2.0))
    available_at = iso(subject.clock.micros() + 2_000_000)
    await _payload(subject, task_id, "task.snoozed", {"attempt": 1, "available_at": available_at})
    subject.clock.advance(2)
    await subject.settle((await subject.claim(task_id)).lease, Released())
    await _payload(subject, task_id, "task.released", {"attempt": 2})
    lease = (await subject.claim(task_id)).lease
    await subject.amend(Change.CANCEL, task_id)
    await _payload(subject, task_id, "task.cancel_requested", {"attempt": 3})
    await subject.settle(lease, Canceled())
    await _payload(subject, task_id, "task.canceled", {"attempt": 3})
    await subject.amend(Change.DELETE, task_id)
    await _payload(subject, task_id, "task.deleted", {"attempt": 3})


@case("C11.2", "C6.2")
async def progress_is_recorded_at_once_and_fenced(subject: Subject) -> None:
    task_id = await subject.submit()
    lease = (await subject.claim(task_id)).lease
    await subject.store.report(lease, "task.progress", {"done": 30, "total": 100, "message": "resizing\x00"})
    await _payload(
        subject, task_id, "task.progress", {"attempt": 1, "done": 30, "total": 100, "message": "resizing\x00"}
    )
    await subject.refuses(subject.progress(Lease(task_id, 1, ids.token())), LeaseLost)
    await subject.refuses(subject.progress(Lease(ids.task_id(), 1, lease.token)), TaskNotFound)


@case("C11.2")
async def an_emitted_event_keeps_its_data(subject: Subject) -> None:
    task_id = await subject.submit()
    lease = (await subject.claim(task_id)).lease
    data = {"no": 7, "big": 2**70, "text": "naïve 😀 \x00", "deep": {"list": [1.5, None, True]}}
    await subject.settle(lease, Completed(), emitted=(Emitted("invoice.sent", data),))
    await _payload(subject, task_id, "invoice.sent", {"attempt": 1} | data, back=2)


# Replay


@case("C11.3")
async def a_life_can_be_replayed_from_its_events(subject: Subject) -> None:
    for seed in range(30, 36):
        touched = {task_id async for task_id in random_life(subject, seed)}
        for task_id in touched:
            task = await subject.get(task_id)
            shown = Folded(task.status, task.attempt, task.failures)
            equal(fold(await subject.events(task_id)), shown, f"the life of {task_id} (seed {seed})")


@case("C11.3", "C8.3")
async def a_deleted_life_folds_to_nothing(subject: Subject) -> None:
    async for task_id in random_life(subject, 41, delete=True):
        if await subject.store.get(task_id) is None:
            equal(fold(await subject.events(task_id)).status, None, "gone")
    left = {task.id for task in (await subject.snapshot()).tasks}
    living = {event.task_id for event in await subject.events() if event.kind == "task.enqueued"}
    equal(living, left, "only tasks that exist have a life to replay")
    equal(
        {event.actor for event in await subject.events() if event.kind == "task.deleted"} - {OPERATOR}, set(), "by whom"
    )


@case("C11.1")
async def an_instant_with_microseconds_is_kept(subject: Subject) -> None:
    subject.clock.advance(timedelta(microseconds=1))
    task_id = await subject.submit()
    equal((await subject.events(task_id))[0].ts, subject.clock.now(), "to the microsecond")
