"""Workflows, steps and schedules through a dispatcher."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Raw

from holdfast.dispatcher import both_ways, queries, wire, wire_flows, wire_work
from holdfast.errors import RunNotFound
from holdfast.model.claim import Lease
from holdfast.model.schedule import NewSchedule, Schedule
from holdfast.model.task import NewTask
from holdfast.model.workflow import ParentEnd, RunInfo, Step
from holdfast.policy import refusals
from holdfast.stores.remote import forms
from holdfast.stores.remote.caller import Caller, pages


class FlowVerbs(Caller):
    async def advance(self, *, limit: int, actor: str) -> int:  # noqa: ARG002  the dispatcher knows who calls
        """By itself a dispatcher does this too; a worker that wants to end when nothing is left asks."""
        call = wire_flows.AdvanceCall(limit=min(limit, wire.PAGE_MOST))
        return (await self._ask("advance", wire.CountAnswer, call)).count

    async def parents(self, task_id: str, *, after: int, limit: int) -> list[ParentEnd]:
        async def page(most: int, found: Sequence[ParentEnd]) -> list[ParentEnd]:
            query = queries.OffsetQuery(after=after + len(found), limit=most)
            answer = await self._ask("parents", wire.ParentsAnswer, query, task_id=task_id)
            return [both_ways.parent(one) for one in answer.parents]

        return await pages(limit, page)

    async def run(self, run_id: str) -> RunInfo | None:
        if not forms.nameable(run_id):
            return None
        try:
            return await self._ask("run", RunInfo, queries.RunQuery(run_id=run_id))
        except RunNotFound:
            return None

    async def run_lives(self, run_id: str) -> bool:
        if not forms.nameable(run_id):
            return False
        return (await self._ask("run_lives", wire_flows.RunLivesAnswer, queries.RunQuery(run_id=run_id))).lives

    async def runs(self, *, limit: int, after: str | None) -> list[RunInfo]:
        async def page(most: int, found: Sequence[RunInfo]) -> list[RunInfo]:
            query = queries.RunsQuery(limit=most, after=found[-1].id if found else after)
            return (await self._ask("runs", wire_flows.RunsAnswer, query)).runs

        return await pages(limit, page)

    # Steps

    async def record_step(self, lease: Lease, name: str, result: str) -> Step:
        call = wire_work.StepCall(
            task_id=lease.task_id,
            attempt=lease.attempt,
            lease_token=lease.token,
            name=name,
            result=Raw(result),
        )
        return both_ways.step(await self._ask("record_step", wire_work.StepOut, call))

    async def steps(self, task_id: str) -> list[Step]:
        answer = await self._ask("steps", wire_work.StepsAnswer, task_id=task_id)
        return [both_ways.step(one) for one in answer.steps]

    # Schedules

    async def declare_schedule(self, new: NewSchedule) -> Schedule:
        call = wire_flows.DeclareScheduleCall(
            name=new.name, timing=forms.timing_in(new.timing), task=forms.task_in(new.task), declared=new.declared
        )
        return both_ways.schedule(await self._ask("declare_schedule", wire_flows.ScheduleOut, call))

    async def schedules(self) -> list[Schedule]:
        return [both_ways.schedule(one) for one in (await self._ask("schedules", wire_flows.SchedulesAnswer)).schedules]

    async def fire(self, name: str, *, last_fired_at: datetime, upto: datetime, tasks: Sequence[NewTask]) -> bool:
        if not forms.nameable(name):
            return False
        call = wire_flows.FireCall(
            name=name, last_fired_at=last_fired_at, upto=upto, tasks=[forms.task_in(new) for new in tasks]
        )
        return (await self._ask("fire", wire_flows.FiredAnswer, call)).fired

    async def pause_schedule(self, name: str, *, paused: bool) -> None:
        _ensure_nameable(name)
        await self._ask("pause_schedule", wire.Done, wire_flows.PauseScheduleCall(name=name, paused=paused))

    async def delete_schedule(self, name: str) -> None:
        _ensure_nameable(name)
        await self._ask("delete_schedule", wire.Done, wire.NameCall(name=name))


def _ensure_nameable(schedule: str) -> None:
    if not forms.nameable(schedule):
        raise refusals.schedule_not_found(schedule)
