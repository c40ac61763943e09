"""C13.3: a task reads the versions that it pinned, or that its parents wrote, on every attempt."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast import ids
from holdfast.errors import DatasetNotFound, InvalidTask
from holdfast.model.outcome import Completed, ErrorInfo, Failed
from holdfast.model.schedule import NewSchedule, Timing
from holdfast.testing.conformance.checks import equal, refused
from holdfast.testing.conformance.joined import transaction
from holdfast.testing.conformance.output_words import (
    A_DAY,
    ONLY_VERSIONS,
    appended,
    case,
    complete,
    numbers,
    pinned_to,
    read,
    reading,
    replaced,
    write,
)
from holdfast.testing.conformance.subject import Subject, new_task
from holdfast.testing.conformance.workflow_words import drawn, end, submit, with_fields


@case("C13.3")
async def a_pinned_version_is_read_on_every_attempt(subject: Subject) -> None:
    await write(subject, appended(a=1))
    await write(subject, appended("other", b=1))
    task_id = await subject.submit(inputs=pinned_to(orders=1, other=1))
    equal((await subject.get(task_id)).inputs, {"orders": 1, "other": 1}, "the record shows it")
    for _ in range(3):
        await write(subject, replaced(z=9))
        lease = (await subject.claim(task_id)).lease
        equal(await subject.store.pinned(task_id), {"orders": 1, "other": 1}, "that very version")
        equal(await read(subject, 1), {"a": 1}, "whatever was written since")
        await subject.settle(lease, Failed(ErrorInfo("it broke"), retry_after_seconds=0.0))
    plain = await subject.submit()
    equal((await subject.get(plain)).inputs, {}, "who pins nothing shows nothing")
    equal(await subject.store.pinned(plain), {}, "and reads nothing")
    equal(await subject.store.pinned(ids.task_id()), {}, "nor does nobody")


@case("C13.3", "C4.5")
async def a_pin_to_what_does_not_exist_is_refused(subject: Subject) -> None:
    await write(subject, appended(a=1))
    for pins in (pinned_to(orders=2), pinned_to(nowhere=1), pinned_to(orders=1, other=1)):
        await subject.refuses(
            subject.submit_all(new_task(), new_task(inputs=pins), new_task(idempotency_key="k")), DatasetNotFound
        )


@case("C13.3", "C4.5")
async def a_pin_to_a_parent_needs_one(subject: Subject) -> None:
    await subject.refuses(subject.submit_all(new_task(), new_task(inputs=pinned_to(orders=None))), InvalidTask)


@case("C13.3", "C4.4", needs=("joined_transactions",))
async def a_joined_submit_keeps_its_pins(subject: Subject) -> None:
    await write(subject, appended(a=1))
    new = new_task(inputs=pinned_to(orders=1))
    async with transaction(subject, commit=True) as joined:
        await refused(joined.asubmit([new_task(), new_task(inputs=pinned_to(orders=2))]), DatasetNotFound)
        await joined.asubmit([new])
    equal(await subject.store.pinned(new.id), {"orders": 1}, "pinned, and nothing of what was refused is stored")
    equal(len(await subject.claim_many()), 1, "one task")


@case("C13.3", "C4.2")
async def pins_are_part_of_what_was_submitted(subject: Subject) -> None:
    for _ in range(2):
        await write(subject, appended(a=1))
    new = new_task(inputs=pinned_to(orders=1), idempotency_key="k")
    first = await subject.submit_all(new)
    async with subject.unchanged():
        equal(await subject.submit_all(new), first, "the same again is answered as the first time")
        for other in (pinned_to(orders=2), (), pinned_to(orders=1, more=1)):
            await refused(subject.submit_all(msgspec.structs.replace(new, inputs=other)), InvalidTask)
    lost = new_task(inputs=pinned_to(nowhere=1), idempotency_key="k")
    answers = await subject.submit_all(lost)
    equal([(answer.id, answer.created) for answer in answers], [(new.id, False)], "a known key has its task already")
    await complete(subject, new.id)
    subject.clock.advance(A_DAY * 2)
    await subject.store.prune(ONLY_VERSIONS, limit=10)
    equal(await numbers(subject), [2], "the version is gone")
    equal(await subject.submit_all(new), first, "and a lost reply is still answered")


@case("C13.3", "C10.8", needs=("schedules",))
async def a_schedule_keeps_the_pins_of_its_task(subject: Subject) -> None:
    await write(subject, appended(a=1))
    task = new_task(id="", inputs=pinned_to(orders=1))
    made = await subject.store.declare_schedule(
        NewSchedule(name="nightly", timing=Timing(every=60.0), task=task, declared=True)
    )
    equal((await subject.store.schedules())[0].task, task, "as it was declared")
    upto = subject.clock.now() + timedelta(minutes=1)
    new = new_task(inputs=pinned_to(orders=1))
    await subject.store.fire("nightly", last_fired_at=made.last_fired_at, upto=upto, tasks=[new])
    equal(await subject.store.pinned(new.id), {"orders": 1}, "what it fires has them")


@case("C13.1", "C13.3")
async def a_follow_up_may_pin(subject: Subject) -> None:
    await write(subject, appended(a=1))
    lease, follow_up = (await subject.claim(await subject.submit())).lease, new_task(inputs=pinned_to(orders=1))
    await subject.settle(lease, Completed(), follow_ups=(follow_up,), outputs=(appended(b=2),))
    equal(await subject.store.pinned(follow_up.id), {"orders": 1}, "what it named")


@case("C13.3", "C10.1", needs=("workflows",))
async def what_a_parent_writes_is_read_by_its_child(subject: Subject) -> None:
    await write(subject, appended(old=1))
    drawing = reading(drawn("run", a=[], b=["a"], c=["b"]), "b", "c")
    tasks = await submit(subject, drawing)
    equal((await subject.get(tasks["b"])).inputs, {"orders": "parent"}, "the record shows it")
    await complete(subject, tasks["a"], appended(new=1))
    equal(await subject.store.pinned(tasks["b"]), {"orders": 2}, "what its parent wrote")
    await write(subject, replaced(later=1))
    equal(await subject.store.pinned(tasks["b"]), {"orders": 2}, "and nobody else, whatever comes")
    await end(subject, tasks["b"])
    equal(await subject.store.pinned(tasks["c"]), {"orders": None}, "a parent that wrote nothing")


@case("C13.3", needs=("workflows",))
async def of_several_parents_the_latest_version_counts(subject: Subject) -> None:
    tasks = await submit(subject, reading(drawn("run", a=[], b=[], c=[], d=["a", "b", "c"]), "d"))
    await complete(subject, tasks["b"], appended(b=1))
    await complete(subject, tasks["a"], appended(a=1))
    await complete(subject, tasks["c"], appended("other", c=1))
    equal(await subject.store.pinned(tasks["d"]), {"orders": 2}, "the latest that one of them wrote")
    equal(await read(subject, 2), {"a": 1, "b": 1}, "which has the rows of both")


@case("C13.3", "C10.2", "C4.2", needs=("workflows",))
async def a_workflow_with_pins_submitted_again_changes_nothing(subject: Subject) -> None:
    drawing = reading(drawn("run", a=[], b=["a"]), "b")
    first = await subject.submit_all(*drawing.values())
    async with subject.unchanged():
        equal(await subject.submit_all(*drawing.values()), first, "the same answer")
        other = with_fields(drawing, ["b"], inputs=())
        await refused(subject.submit_all(*other.values()), InvalidTask)
