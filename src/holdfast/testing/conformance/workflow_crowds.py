"""C10.5: where one end concerns very many, it is told in bounded steps."""

from __future__ import annotations

from itertools import pairwise

from holdfast import ids
from holdfast.model.outcome import Completed
from holdfast.model.task import NewTask
from holdfast.model.transition import Change
from holdfast.policy.workflow import INLINE_EACH
from holdfast.testing.conformance.checks import equal, that
from holdfast.testing.conformance.subject import REAPER, Subject, new_task
from holdfast.testing.conformance.workflow_words import DEAD, advance, case, end, shown


def _fan(number: int) -> tuple[NewTask, list[NewTask]]:
    first, *others = ids.task_ids(number + 1)
    root = new_task(id=first, name="root", run_id="run")
    return root, [new_task(id=one, name="leaf", run_id="run", parents=(first,)) for one in others]


async def _counts(subject: Subject) -> dict[str, int]:
    return (await shown(subject)).counts


@case("C10.5")
async def very_many_dependents_are_advanced_in_bounded_steps(subject: Subject) -> None:
    number = 5 * INLINE_EACH
    root, leaves = _fan(number)
    await subject.submit_all(root, *leaves)
    await end(subject, root.id, Completed('"seed"'))
    that((await _counts(subject)).get("waiting", 0) >= number - INLINE_EACH, "the settle leaves most to be done")
    other = await subject.another_handle()
    that(0 < await other.advance(limit=50, actor=REAPER) <= 50, "any handle goes on, as far as it is asked to")
    that(await advance(subject, limit=50) >= (number - INLINE_EACH) // 50 - 2, "step by step")
    equal(await _counts(subject), {"completed": 1, "queued": number}, "all are queued")
    equal(await subject.store.advance(limit=50, actor=REAPER), 0, "nothing is left")
    kinds = [await subject.kinds(leaf.id) for leaf in leaves]
    equal(set(map(tuple, kinds)), {("task.enqueued", "task.ready")}, "each once")


@case("C10.5", "C10.3", "C10.4")
async def a_failure_of_a_task_with_very_many_dependents_is_told_and_taken_back_in_steps(subject: Subject) -> None:
    number = 3 * INLINE_EACH
    root, leaves = _fan(number)
    await subject.submit_all(root, *leaves)
    await end(subject, root.id, DEAD)
    await advance(subject, limit=40)
    equal(await _counts(subject), {"failed": 1, "canceled": number}, "all are canceled")
    await subject.amend(Change.REQUEUE, root.id)
    await advance(subject, limit=40)
    equal(await _counts(subject), {"queued": 1, "waiting": number}, "all wait again")
    await end(subject, root.id)
    await advance(subject)
    equal(await _counts(subject), {"completed": 1, "queued": number}, "all are queued")


@case("C10.5", "C10.4")
async def a_requeue_overtakes_a_failure_that_is_still_being_told(subject: Subject) -> None:
    number = 3 * INLINE_EACH
    root, leaves = _fan(number)
    await subject.submit_all(root, *leaves)
    await end(subject, root.id, DEAD)
    await subject.store.advance(limit=40, actor=REAPER)
    await subject.amend(Change.REQUEUE, root.id)
    await advance(subject, limit=40)
    equal(await _counts(subject), {"queued": 1, "waiting": number}, "nothing stays canceled")
    await end(subject, root.id, DEAD)
    await subject.amend(Change.REQUEUE, root.id)
    await end(subject, root.id, DEAD)
    await advance(subject)
    equal(await _counts(subject), {"failed": 1, "canceled": number}, "the last word counts")


@case("C10.5", "C10.3")
async def a_long_chain_is_canceled_to_its_end(subject: Subject) -> None:
    number = 1500
    names = ids.task_ids(number)
    links = [new_task(id=names[0], run_id="run")]
    links += [new_task(id=child, run_id="run", parents=(parent,)) for parent, child in pairwise(names)]
    await subject.submit_all(*links)
    await end(subject, names[0], DEAD)
    await advance(subject)
    equal(await _counts(subject), {"failed": 1, "canceled": number - 1}, "all are canceled")
    equal((await subject.get(names[-1])).canceled_because, names[0], "because of the first")
    await subject.amend(Change.REQUEUE, names[0])
    await advance(subject)
    equal(await _counts(subject), {"queued": 1, "waiting": number - 1}, "and wait again")
