"""Schedules (C10.8): what is kept of them, and that every firing is submitted once. When is policy/firing.py's.

`fire` is given instants here that no clock has reached: a store takes them as they are.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import msgspec

from holdfast.errors import IdempotencyConflict, ScheduleNotFound
from holdfast.model.backoff import Linear
from holdfast.model.schedule import NewSchedule, Schedule, Timing
from holdfast.model.task import NewTask, TaskStatus
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import equal, refused, that
from holdfast.testing.conformance.queues import ODD_NAMES
from holdfast.testing.conformance.registry import case
from holdfast.testing.conformance.subject import Subject, new_task

NAME = "nightly"
AT_THREE = Timing(cron="0 3 * * *", timezone="Europe/Zurich")
EVERY_MINUTE = Timing(every=60.0)


def new_schedule(
    name: str = NAME, timing: Timing = EVERY_MINUTE, *, declared: bool = True, **fields: Any
) -> NewSchedule:
    return NewSchedule(name=name, timing=timing, task=new_task(**({"id": ""} | fields)), declared=declared)


def task_at(instant: datetime, name: str = NAME) -> NewTask:
    return new_task(run_at=instant, idempotency_key=f"schedule:{name}:{instant.isoformat()}")


async def only(subject: Subject) -> Schedule:
    found = await subject.store.schedules()
    equal(len(found), 1, "there is one schedule")
    return found[0]


async def fired(subject: Subject, schedule: Schedule, upto: datetime, *tasks: NewTask) -> bool:
    return await subject.store.fire(schedule.name, last_fired_at=schedule.last_fired_at, upto=upto, tasks=tasks)


@case("C10.8", needs=("schedules",))
async def a_schedule_is_kept_as_it_was_declared(subject: Subject) -> None:
    timing = Timing(cron="*/5 1-3 * * MON", timezone="Asia/Kathmandu", jitter=0.1, missed="all", missed_most=7)
    rich = new_schedule(
        timing=timing,
        name="tidy",
        payload='{"args":["\\u0000ü",-0.0,18446744073709551616],"kwargs":{}}',
        queue="mail",
        priority=-3,
        max_attempts=0,
        backoff=Linear(step=0.1),
        timeout=1 / 3,
        lease=0.5,
        concurrency_key="k",
        meta='{"a":1}',
    )
    put = new_schedule("put", Timing(every=4 / 3), declared=False)
    now = subject.clock.now()
    answers = [await subject.store.declare_schedule(new) for new in (rich, put)]
    kept = await (await subject.another_handle()).schedules()
    equal(kept, [answers[1], answers[0]], "by name, as it was answered, through every handle")
    for new, schedule, declared_at in ((rich, kept[1], now), (put, kept[0], None)):
        equal((schedule.name, schedule.timing, schedule.task), (new.name, new.timing, new.task), "what was declared")
        equal((schedule.paused, schedule.created_at), (False, now), "it begins now")
        equal((schedule.last_fired_at, schedule.declared_at), (now, declared_at), "nothing before now is its own")


@case("C10.8", needs=("schedules", "durable"))
async def a_schedule_outlives_its_process(subject: Subject) -> None:
    made = await subject.store.declare_schedule(new_schedule())
    await subject.close_handles()
    await subject.another_handle()
    equal(await only(subject), made, "it is still there")


@case("C10.8", needs=("schedules",))
async def a_renewed_schedule_goes_on(subject: Subject) -> None:
    made = await subject.store.declare_schedule(new_schedule(timing=AT_THREE))
    await subject.store.pause_schedule(NAME, paused=True)
    subject.clock.advance(100)
    timing = msgspec.structs.replace(AT_THREE, missed="all", missed_most=3, jitter=9.0)
    again = await subject.store.declare_schedule(new_schedule(timing=timing, queue="other"))
    equal((again.timing, again.task.queue), (timing, "other"), "what is new holds")
    equal((again.created_at, again.last_fired_at), (made.created_at, made.last_fired_at), "nothing is lost by it")
    equal((again.paused, again.declared_at), (True, subject.clock.now()), "paused stays paused")
    equal(await only(subject), again, "as it is kept")


@case("C10.8", needs=("schedules",))
async def a_schedule_with_other_times_begins_anew(subject: Subject) -> None:
    await subject.store.declare_schedule(new_schedule(timing=AT_THREE))
    for timing in (
        Timing(cron="0 4 * * *", timezone="Europe/Zurich"),
        Timing(cron="0 4 * * *", timezone="UTC"),
        Timing(every=60.0),
        Timing(every=61.0),
        AT_THREE,
    ):
        subject.clock.advance(100)
        again = await subject.store.declare_schedule(new_schedule(timing=timing))
        equal(again.last_fired_at, subject.clock.now(), "what lies before is not missed")


@case("C10.8", needs=("schedules",))
async def a_schedule_is_declared_by_code_or_put_by_a_person(subject: Subject) -> None:
    await subject.store.declare_schedule(new_schedule(declared=False))
    made = await subject.store.declare_schedule(new_schedule())
    equal(made.declared_at, subject.clock.now(), "code has it now")
    made = await subject.store.declare_schedule(new_schedule(declared=False))
    equal(made.declared_at, None, "a person has taken it over")


@case("C10.8", needs=("schedules",))
async def a_firing_submits_its_tasks_and_moves_on(subject: Subject) -> None:
    schedule = await subject.store.declare_schedule(new_schedule())
    first, second = (subject.clock.now() + timedelta(minutes=n) for n in (1, 2))
    subject.clock.advance(150)
    tasks = [task_at(first), task_at(second)]
    that(await fired(subject, schedule, second, *tasks), "it was ours to fire")
    equal((await only(subject)).last_fired_at, second, "dealt with up to there")
    for new, instant in zip(tasks, (first, second), strict=True):
        task = await subject.get(new.id)
        equal((task.status, task.run_at), (TaskStatus.QUEUED, instant), "a task like any other")
        equal(await subject.kinds(new.id), ["task.enqueued"], "with its event")
    equal([claim.lease.task_id for claim in await subject.claim_many()], [new.id for new in tasks], "in their order")


@case("C10.8", needs=("schedules",))
async def a_firing_that_is_passed_over_moves_on_alone(subject: Subject) -> None:
    schedule = await subject.store.declare_schedule(new_schedule())
    upto = subject.clock.now() + timedelta(minutes=1)
    async with subject.unchanged():
        that(await fired(subject, schedule, upto), "it was ours to pass over")
    equal((await only(subject)).last_fired_at, upto, "dealt with")


@case("C10.8", needs=("schedules",))
async def a_firing_repeated_after_a_lost_reply_changes_nothing(subject: Subject) -> None:
    schedule = await subject.store.declare_schedule(new_schedule())
    upto = subject.clock.now() + timedelta(minutes=1)
    task = task_at(upto)
    await fired(subject, schedule, upto, task)
    async with subject.unchanged():
        equal(await fired(subject, schedule, upto, task), False, "it has moved on")
        equal(await fired(subject, schedule, upto, task_at(upto)), False, "also for another who comes late")


@case("C10.8", needs=("schedules",))
async def of_many_who_fire_at_once_one_does(subject: Subject) -> None:
    schedule = await subject.store.declare_schedule(new_schedule())
    upto = subject.clock.now() + timedelta(minutes=1)

    async def fire(store: Store) -> bool:
        return await store.fire(NAME, last_fired_at=schedule.last_fired_at, upto=upto, tasks=[task_at(upto)])

    answers = await subject.race([fire] * 8)
    equal(sorted(map(repr, answers)), ["False"] * 7 + ["True"], "one was first")
    equal(len((await subject.snapshot()).tasks), 1, "one task")


@case("C10.8", needs=("schedules",))
async def a_refused_task_leaves_the_firing_undone(subject: Subject) -> None:
    schedule = await subject.store.declare_schedule(new_schedule())
    upto = subject.clock.now() + timedelta(minutes=1)
    taken = task_at(upto)
    await subject.submit(name="other", idempotency_key=taken.idempotency_key)
    await subject.refuses(fired(subject, schedule, upto, new_task(), taken), IdempotencyConflict)
    equal(await only(subject), schedule, "it stands where it stood")


@case("C10.8", needs=("schedules",))
async def a_paused_schedule_does_not_fire(subject: Subject) -> None:
    schedule = await subject.store.declare_schedule(new_schedule())
    other = await subject.another_handle()
    for _ in range(2):
        await other.pause_schedule(NAME, paused=True)
    upto = subject.clock.now() + timedelta(minutes=1)
    async with subject.unchanged():
        equal(await fired(subject, schedule, upto, task_at(upto)), False, "nobody may fire it")
    equal(await only(subject), msgspec.structs.replace(schedule, paused=True), "it stands where it stood")


@case("C10.8", needs=("schedules",))
async def a_resumed_schedule_begins_anew(subject: Subject) -> None:
    schedule = await subject.store.declare_schedule(new_schedule())
    subject.clock.advance(30)
    await subject.store.pause_schedule(NAME, paused=False)
    equal(await only(subject), schedule, "one that was not paused is not touched")
    await subject.store.pause_schedule(NAME, paused=True)
    subject.clock.advance(1000)
    await subject.store.pause_schedule(NAME, paused=False)
    resumed = msgspec.structs.replace(schedule, last_fired_at=subject.clock.now())
    equal(await only(subject), resumed, "what would have fired meanwhile is not missed")
    that(await fired(subject, resumed, subject.clock.now() + timedelta(minutes=1)), "it fires again")


@case("C10.8", needs=("schedules",))
async def a_deleted_schedule_is_gone_and_its_tasks_are_not(subject: Subject) -> None:
    schedule = await subject.store.declare_schedule(new_schedule())
    upto = subject.clock.now() + timedelta(minutes=1)
    task = task_at(upto)
    await fired(subject, schedule, upto, task)
    async with subject.unchanged():
        await subject.store.delete_schedule(NAME)
        equal(await subject.store.schedules(), [], "gone")
        equal(await fired(subject, schedule, upto, task_at(upto)), False, "it cannot be fired")
    subject.clock.advance(100)
    made = await subject.store.declare_schedule(new_schedule())
    equal((made.created_at, made.last_fired_at), (subject.clock.now(),) * 2, "one of the same name is a new one")


@case("C10.8", "C15", needs=("schedules",))
async def an_unknown_schedule_is_refused(subject: Subject) -> None:
    await subject.store.declare_schedule(new_schedule())
    for name in ("nightl", "", "NIGHTLY", "x\x00", "\ud800"):
        await refused(subject.store.pause_schedule(name, paused=True), ScheduleNotFound)
        await refused(subject.store.delete_schedule(name), ScheduleNotFound)
        now = subject.clock.now()
        equal(await subject.store.fire(name, last_fired_at=now, upto=now, tasks=[new_task()]), False, "nothing to fire")
    equal([schedule.paused for schedule in await subject.store.schedules()], [False], "the known one is as it was")


@case("C10.8", needs=("schedules",))
async def names_of_schedules_are_only_names(subject: Subject) -> None:
    for name in ODD_NAMES:
        await subject.store.declare_schedule(new_schedule(name))
    equal([one.name for one in await subject.store.schedules()], sorted(ODD_NAMES), "by name, exactly as given")
    for name in ODD_NAMES:
        await subject.store.pause_schedule(name, paused=True)
        equal([one.name for one in await subject.store.schedules() if one.paused], [name], "that one alone")
        await subject.store.delete_schedule(name)
    equal(await subject.store.schedules(), [], "none is left")
