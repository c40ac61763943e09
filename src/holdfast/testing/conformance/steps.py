"""C10.7: what a step gave is recorded once per task, by the holder of its lease."""

from __future__ import annotations

from holdfast.errors import LeaseLost, TaskNotFound
from holdfast.model.claim import Lease
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Released
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change
from holdfast.model.workflow import Step
from holdfast.testing.conformance.checks import equal
from holdfast.testing.conformance.registry import case as plain_case
from holdfast.testing.conformance.registry import register
from holdfast.testing.conformance.subject import END, Subject, guessed

NEEDS = ("workflows",)


@plain_case("C10.7", needs=NEEDS)
async def a_step_is_recorded_once_and_kept_for_later_attempts(subject: Subject) -> None:
    task_id = await subject.submit()
    lease = (await subject.claim(task_id)).lease
    equal(await subject.store.steps(task_id), [], "nothing is recorded yet")
    first = await subject.store.record_step(lease, "charge", '{"no":7}')
    equal(first, Step("charge", '{"no":7}', subject.clock.now()), "what was given, and when")
    subject.clock.advance(1)
    equal(await subject.store.record_step(lease, "charge", '"other"'), first, "the first one stays")
    second = await subject.store.record_step(lease, "mail", "null")
    await subject.settle(lease, Failed(ErrorInfo("it broke"), retry_after_seconds=0.0))
    lease = (await subject.claim(task_id)).lease
    equal(await subject.store.steps(task_id), [first, second], "the next attempt finds them, in order")
    equal(await subject.store.record_step(lease, "charge", "1"), first, "and cannot change them")
    await subject.settle(lease, Failed(ErrorInfo("no"), unrecoverable=True))
    await subject.amend(Change.REQUEUE, task_id)
    equal(await subject.store.steps(task_id), [first, second], "a requeued dead letter too")


@plain_case("C10.7", "C8.3", needs=NEEDS)
async def steps_go_with_their_task(subject: Subject) -> None:
    task_id = await subject.submit()
    lease = (await subject.claim(task_id)).lease
    await subject.store.record_step(lease, "charge", "1")
    await subject.settle(lease, Completed())
    await subject.amend(Change.DELETE, task_id)
    equal(await subject.store.steps(task_id), [], "nothing is left")


@plain_case("C10.7", needs=NEEDS)
async def a_step_keeps_any_json_and_any_name(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    results = {"null": '"\\u0000"', "naïve '\"; --": "[1000.0,-0.0]", "x" * 500: '"' + "y" * 200_000 + '"'}
    for name, result in results.items():
        await subject.store.record_step(lease, name, result)
    kept = {step.name: step.result for step in await subject.store.steps(lease.task_id)}
    equal(kept, results, "as they were given")


async def _refused(subject: Subject, lease: Lease) -> None:
    await subject.refuses(subject.store.record_step(lease, "charge", "1"), LeaseLost)
    equal(await subject.store.steps(lease.task_id), [], "nothing is recorded")


@plain_case("C10.7", "C6.3", needs=NEEDS)
async def a_step_needs_the_current_lease(subject: Subject) -> None:
    task_id = await subject.submit()
    lease = (await subject.claim(task_id)).lease
    await _refused(subject, guessed(lease))
    await _refused(subject, Lease(task_id, lease.attempt + 1, lease.token))
    await subject.expire(task_id)
    await _refused(subject, lease)
    await subject.reap()
    await _refused(subject, lease)
    await subject.claim(task_id)
    await _refused(subject, lease)


def _cell(status: TaskStatus) -> None:
    async def prove(subject: Subject) -> None:
        task_id = await subject.submit()
        lease = (await subject.claim(task_id)).lease
        await subject.settle(lease, Released() if status is TaskStatus.QUEUED else END[status])
        await _refused(subject, lease)

    register(f"a_step_of_a_{status.value}_task_is_refused", ("C10.7", "C18"), prove, NEEDS)


for _status in (TaskStatus.QUEUED, *END):
    _cell(_status)


@plain_case("C10.7", "C15", needs=NEEDS)
async def a_step_of_nobody_is_not_found(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    await subject.settle(lease, Completed())
    await subject.amend(Change.DELETE, lease.task_id)
    await subject.refuses(subject.store.record_step(lease, "charge", "1"), TaskNotFound)
