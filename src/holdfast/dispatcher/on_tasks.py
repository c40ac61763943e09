"""Calls about tasks: submit, read, act."""

from __future__ import annotations

from holdfast.dispatcher import admission, answers, both_ways, streaming, wire, wire_work
from holdfast.dispatcher.hall import Asked, Hall, Stream
from holdfast.errors import HoldfastError
from holdfast.model.query import TaskFilter
from holdfast.model.task import Task
from holdfast.model.transition import Amended, Change
from holdfast.policy import refusals
from holdfast.policy.admission import checked_name


async def submit(hall: Hall, asked: Asked) -> wire.SubmitAnswer:
    given: wire.SubmitCall = asked.body
    new = admission.new_tasks(given.tasks, hall.terms)
    submitted = await hall.store.submit(new) if new else []
    return wire.SubmitAnswer(tasks=[wire.SubmittedOut(id=one.id, created=one.created) for one in submitted])


async def tasks(hall: Hall, asked: Asked) -> wire.TasksAnswer:
    query = asked.query
    found = await hall.store.page(
        TaskFilter(
            status=query.status,
            queue=query.queue,
            name=query.name,
            run_id=query.run_id,
            last=query.last,
            finished_before=admission.maybe_instant(query.finished_before, what="finished_before"),
            limit=query.limit,
            after=query.after,
        )
    )
    return wire.TasksAnswer(tasks=found, after=found[-1].id if len(found) == query.limit else None)


async def task(hall: Hall, asked: Asked) -> Task:
    return await hall.client.task(asked.task_id)


async def task_by_key(hall: Hall, asked: Asked) -> Task:
    found = await hall.store.find(asked.query.key)
    if found is None:
        raise refusals.key_not_found(asked.query.key)
    return found


async def ended(hall: Hall, asked: Asked) -> wire.EndedAnswer:
    given: wire.EndedCall = asked.body
    return wire.EndedAnswer(tasks=await hall.store.ended(given.ids, limit=given.limit))


async def task_events(hall: Hall, asked: Asked) -> wire.EventsAnswer | Stream:
    """Also of a task that was deleted: the last word on it is kept for a while."""
    await hall.client.events(asked.task_id, limit=1)
    return await _events(hall, asked, asked.task_id)


async def events(hall: Hall, asked: Asked) -> wire.EventsAnswer | Stream:
    return await _events(hall, asked, None)


async def _events(hall: Hall, asked: Asked, task_id: str | None) -> wire.EventsAnswer | Stream:
    after = await streaming.begin_after(hall, asked)
    if streaming.wants_stream(asked):
        streaming.check_room(hall)
        return Stream(streaming.events(hall, asked, task_id, after))
    found = await hall.store.events(task_id, after=after, limit=asked.query.limit)
    return wire.EventsAnswer(events=found, after=found[-1].id if found else after)


async def parents(hall: Hall, asked: Asked) -> wire.ParentsAnswer:
    found = await hall.store.parents(asked.task_id, after=asked.query.after, limit=asked.query.limit)
    return wire.ParentsAnswer(parents=[both_ways.parent_out(one) for one in found])


async def steps(hall: Hall, asked: Asked) -> wire_work.StepsAnswer:
    return wire_work.StepsAnswer(steps=[both_ways.step_out(one) for one in await hall.store.steps(asked.task_id)])


async def inputs(hall: Hall, asked: Asked) -> wire.PinnedAnswer:
    return wire.PinnedAnswer(inputs=await hall.store.pinned(asked.task_id))


# Acts


async def amend(hall: Hall, asked: Asked) -> wire.AmendAnswer:
    given: wire.AmendCall = asked.body
    actor = asked.caller.name if given.actor is None else checked_name(given.actor, what="the actor")
    done = await hall.store.amend(given.change, given.ids, actor=actor) if given.ids else []
    return wire.AmendAnswer(tasks=[answers.amended(one) for one in done])


async def cancel(hall: Hall, asked: Asked) -> Amended:
    return await _amend(hall, asked, Change.CANCEL)


async def requeue(hall: Hall, asked: Asked) -> Amended:
    return await _amend(hall, asked, Change.REQUEUE)


async def release(hall: Hall, asked: Asked) -> Amended:
    return await _amend(hall, asked, Change.RELEASE)


async def delete(hall: Hall, asked: Asked) -> Amended:
    return await _amend(hall, asked, Change.DELETE)


async def _amend(hall: Hall, asked: Asked, change: Change) -> Amended:
    (answer,) = await hall.store.amend(change, [asked.task_id], actor=asked.caller.name)
    if isinstance(answer, HoldfastError):
        raise answer
    return answer
