"""Reads: records by id, by key and by page."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from holdfast import ids
from holdfast.errors import InvalidTask
from holdfast.model.query import TaskFilter
from holdfast.model.task import TaskStatus
from holdfast.testing.conformance.checks import equal, present
from holdfast.testing.conformance.queues import ODD_NAMES
from holdfast.testing.conformance.registry import case
from holdfast.testing.conformance.subject import Subject, new_task


async def _page(subject: Subject, **fields: Any) -> list[str]:
    return [task.id for task in await subject.store.page(TaskFilter(**fields))]


@case("C2")
async def an_unknown_task_is_none(subject: Subject) -> None:
    equal(await subject.store.get(ids.task_id()), None, "no such id")
    for odd in ("", "x", "' or 1=1 --", "\x00"):
        equal(await subject.store.get(odd), None, "no such id, whatever it looks like")
        equal(await subject.store.find(odd), None, "no such key")


@case("C2", "C4.2")
async def a_task_is_found_by_its_idempotency_key(subject: Subject) -> None:
    task_id = await subject.submit(idempotency_key="k")
    await subject.submit(idempotency_key="K")
    equal(present(await subject.store.find("k"), "the key's task").id, task_id, "that very key")


@case("C2")
async def of_many_tasks_those_that_have_ended_are_told_in_one_read(subject: Subject) -> None:
    by_status = {status: await subject.run_to(status) for status in TaskStatus}
    unknown = [ids.task_id(), "", "x", "' or 1=1 --", "\x00", "\ud800"]
    found = await subject.store.ended([*by_status.values(), *unknown], limit=100)
    over = {status: task_id for status, task_id in by_status.items() if status.terminal}
    equal(set(found), {*over.values(), *unknown}, "what has ended, and what does not exist; nothing that goes on")
    for status, task_id in over.items():
        equal(found[task_id], await subject.store.get(task_id), f"the record of one that is {status.value}")
    equal([found[task_id] for task_id in unknown], [None] * len(unknown), "no such tasks")
    equal(await subject.store.ended([], limit=1), {}, "nothing was asked")


@case("C2")
async def of_tasks_that_have_ended_no_more_are_told_than_asked_for(subject: Subject) -> None:
    over = [await subject.run_to(TaskStatus.CANCELED) for _ in range(5)]
    left = list(over)
    while left:
        found = await subject.store.ended(left, limit=2)
        equal(len(found), min(2, len(left)), "some of them")
        left = [task_id for task_id in left if task_id not in found]


@case("C2")
async def a_page_shows_the_newest_first_and_goes_on_after_the_last(subject: Subject) -> None:
    batch = [new_task() for _ in range(5)]
    await subject.submit_all(*batch[:3])
    await subject.submit_all(*batch[3:])
    newest_first = [new.id for new in reversed(batch)]
    equal(await _page(subject), newest_first, "newest first")
    paged: list[str] = []
    while page := await _page(subject, limit=2, after=paged[-1] if paged else None):
        paged += page
    equal(paged, newest_first, "page by page")


@case("C2")
async def a_page_shows_only_what_was_asked_for(subject: Subject) -> None:
    wanted = {status: await subject.run_to(status) for status in TaskStatus}
    for status, task_id in wanted.items():
        equal(await _page(subject, status=status, name="probe"), [task_id], f"status {status.value}")
    other = await subject.submit(name="other", queue="mail", run_id="run-1")
    asked: list[dict[str, Any]] = [{"name": "other"}, {"queue": "mail"}, {"run_id": "run-1"}]
    for fields in asked:
        equal(await _page(subject, **fields), [other], f"{fields}")
    equal(await _page(subject, name="other", queue="default"), [], "all conditions hold at once")
    for odd in ODD_NAMES:
        equal(await _page(subject, name=odd) + await _page(subject, queue=odd), [], "a name is not a pattern")


@case("C2")
async def a_page_can_be_asked_for_by_the_end_of_its_tasks(subject: Subject) -> None:
    old = await subject.run_to(TaskStatus.FAILED)
    subject.clock.advance(10)
    await subject.run_to(TaskStatus.FAILED)
    await subject.submit()
    now = subject.clock.now()
    equal(await _page(subject, finished_before=now), [old], "ended before that instant")
    equal(await _page(subject, finished_before=now - timedelta(seconds=10)), [], "not at it")


@case("C2")
async def a_page_after_an_unknown_task_is_refused(subject: Subject) -> None:
    await subject.submit()
    await subject.refuses(_page(subject, after=ids.task_id()), InvalidTask)
