"""Calls about queues, runs and schedules."""

from __future__ import annotations

from holdfast.dispatcher import admission, answers, both_ways, wire, wire_flows
from holdfast.dispatcher.guard import check_scope
from holdfast.dispatcher.hall import Asked, Hall
from holdfast.model.limits import Limits
from holdfast.model.token import Scope
from holdfast.model.workflow import RunInfo
from holdfast.policy.admission import checked_instant, checked_name


async def queues(hall: Hall, asked: Asked) -> wire_flows.QueuesAnswer:  # noqa: ARG001
    return wire_flows.QueuesAnswer(queues=await hall.store.queues(), oldest_due=await hall.store.oldest_due())


async def pause_queue(hall: Hall, asked: Asked) -> wire.Done:
    await hall.store.pause(admission.one_queue(asked.body.queue), paused=asked.body.paused)
    return wire.Done()


async def limit(hall: Hall, asked: Asked) -> Limits:
    queue = checked_name(asked.body.queue, what="the queue")
    return await hall.store.limit(queue, admission.limit_changes(asked.body))


async def runs(hall: Hall, asked: Asked) -> wire_flows.RunsAnswer:
    return wire_flows.RunsAnswer(runs=await hall.store.runs(limit=asked.query.limit, after=asked.query.after))


async def run(hall: Hall, asked: Asked) -> RunInfo:
    return await hall.client.run(asked.query.run_id)


async def run_lives(hall: Hall, asked: Asked) -> wire_flows.RunLivesAnswer:
    return wire_flows.RunLivesAnswer(lives=await hall.store.run_lives(asked.query.run_id))


async def cancel_run(hall: Hall, asked: Asked) -> wire.CountAnswer:
    return wire.CountAnswer(count=await hall.client.cancel_run(asked.body.run_id))


async def advance(hall: Hall, asked: Asked) -> wire.CountAnswer:
    return wire.CountAnswer(count=await hall.store.advance(limit=asked.body.limit, actor=asked.caller.name))


async def schedules(hall: Hall, asked: Asked) -> wire_flows.SchedulesAnswer:  # noqa: ARG001
    return answers.schedules(await hall.store.schedules())


async def declare_schedule(hall: Hall, asked: Asked) -> wire_flows.ScheduleOut:
    """A schedule submits: a worker that may not must not declare one."""
    if Scope.ADMIN not in asked.caller.scopes:
        check_scope(asked.caller, Scope.ENQUEUE)
    return both_ways.schedule_out(await hall.store.declare_schedule(admission.schedule(asked.body, hall.terms)))


async def fire(hall: Hall, asked: Asked) -> wire_flows.FiredAnswer:
    given: wire_flows.FireCall = asked.body
    fired = await hall.store.fire(
        given.name,
        last_fired_at=checked_instant(given.last_fired_at, what="last_fired_at"),
        upto=checked_instant(given.upto, what="upto"),
        tasks=admission.new_tasks(given.tasks, hall.terms),
    )
    return wire_flows.FiredAnswer(fired=fired)


async def pause_schedule(hall: Hall, asked: Asked) -> wire.Done:
    await hall.store.pause_schedule(asked.body.name, paused=asked.body.paused)
    return wire.Done()


async def delete_schedule(hall: Hall, asked: Asked) -> wire.Done:
    await hall.store.delete_schedule(asked.body.name)
    return wire.Done()
