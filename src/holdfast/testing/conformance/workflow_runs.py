"""C10.6: a run is what its tasks are."""

from __future__ import annotations

from datetime import timedelta

from holdfast.errors import InvalidTask
from holdfast.model.outcome import Completed
from holdfast.model.query import Retention, TaskFilter
from holdfast.model.transition import Change
from holdfast.testing.conformance.checks import equal, that
from holdfast.testing.conformance.subject import Subject
from holdfast.testing.conformance.workflow_words import DEAD, case, drawn, drawn_run, end, shown, submit, with_fields


@case("C10.6")
async def a_run_is_what_its_tasks_are(subject: Subject) -> None:
    equal(await subject.store.run("run"), None, "there is no such run")
    that(not await subject.store.run_lives("run"), "which does not live")
    began = subject.clock.now()
    tasks = await drawn_run(subject, a=[], b=["a"], c=["a"])
    info = await shown(subject)
    equal((info.id, info.status, info.counts), ("run", "running", {"queued": 1, "waiting": 2}), "it runs")
    equal((info.created_at, info.finished_at), (began, None), "since then")
    subject.clock.advance(5)
    for name in "abc":
        that(await subject.store.run_lives("run"), "it lives")
        await end(subject, tasks[name])
    info = await shown(subject)
    equal((info.status, info.counts), ("completed", {"completed": 3}), "it is completed")
    equal((info.created_at, info.finished_at), (began, subject.clock.now()), "from its first task to its last end")
    that(not await subject.store.run_lives("run"), "nothing of it can run")


@case("C10.6")
async def a_run_fails_once_nothing_of_it_can_still_run(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=[], c=["a"])
    await end(subject, tasks["a"], DEAD)
    equal((await shown(subject)).status, "running", "b is still to run")
    await end(subject, tasks["b"])
    equal((await shown(subject)).status, "failed", "then it has failed")
    await subject.amend(Change.REQUEUE, tasks["a"])
    equal((await shown(subject)).status, "running", "a requeue brings it back")


@case("C10.6")
async def a_run_is_canceled_where_nothing_failed(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=["a"])
    await subject.amend(Change.CANCEL, tasks["a"])
    equal((await shown(subject)).status, "canceled", "all of it")


@case("C10.6", "C10.3")
async def a_failure_that_the_last_tasks_outlive_is_not_the_runs(subject: Subject) -> None:
    tasks = with_fields(drawn("run", a=[], b=["a"]), ["b"], on_parent_failure="run")
    named = await submit(subject, tasks)
    await end(subject, named["a"], DEAD)
    await end(subject, named["b"])
    info = await shown(subject)
    equal((info.status, info.counts), ("completed", {"failed": 1, "completed": 1}), "b has dealt with it")


@case("C10.6")
async def tasks_with_one_run_id_are_a_run(subject: Subject) -> None:
    first, second = await subject.submit(run_id="mine"), await subject.submit(run_id="mine")
    await end(subject, first)
    equal((await shown(subject, "mine")).counts, {"completed": 1, "queued": 1}, "whoever submitted them")
    await end(subject, second, DEAD)
    equal((await shown(subject, "mine")).status, "failed", "each of them is one of its last")


@case("C10.6")
async def the_last_tasks_of_a_run_are_those_that_nobody_waits_for(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=["a"], c=["a"], d=["b"])
    await subject.submit(run_id="other")
    page = await subject.store.page(TaskFilter(run_id="run", last=True))
    equal([task.id for task in page], [tasks["d"], tasks["c"]], "newest first")


@case("C10.6")
async def runs_are_listed_newest_first(subject: Subject) -> None:
    for name in ("zebra", "apple", "mango"):
        await submit(subject, drawn(name, a=[], b=["a"]))
    await subject.submit(run_id="apple")
    await subject.submit()
    listed = await subject.store.runs(limit=10, after=None)
    equal([run.id for run in listed], ["mango", "apple", "zebra"], "by their first task")
    equal(listed[1].counts, {"queued": 2, "waiting": 1}, "with their counts")
    equal([run.id for run in await subject.store.runs(limit=1, after="mango")], ["apple"], "page by page")
    await subject.refuses(subject.store.runs(limit=1, after="nobody"), InvalidTask)


@case("C8.3", "C8.5", "C10.6")
async def a_live_run_is_kept_whole_and_an_ended_one_goes(subject: Subject) -> None:
    tasks = await drawn_run(subject, a=[], b=["a"])
    await end(subject, tasks["a"], Completed('"seed"'))
    subject.clock.advance(timedelta(days=30).total_seconds())
    equal(await subject.store.prune(Retention(), limit=10), 0, "b still needs what a gave")
    await subject.refuses(subject.amend(Change.DELETE, tasks["a"]), InvalidTask)
    await end(subject, tasks["b"])
    await subject.amend(Change.DELETE, tasks["a"])
    equal(await subject.store.parents(tasks["b"], after=0, limit=10), [], "a parent that is gone is missing")
    subject.clock.advance(timedelta(days=8).total_seconds())
    equal(await subject.store.prune(Retention(), limit=10), 1, "then the rest goes")
    equal(await subject.store.run("run"), None, "and with it the run")
