"""The memory store's verbs for workflows, steps and schedules."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from holdfast.clock import from_micros
from holdfast.errors import InvalidTask
from holdfast.model.claim import Lease
from holdfast.model.schedule import NewSchedule, Schedule
from holdfast.model.task import NewTask
from holdfast.model.workflow import ParentEnd, RunInfo, Step
from holdfast.stores.memory.admitting import ensure_text
from holdfast.stores.memory.handle import Handle
from holdfast.stores.memory.record import parent_end, run_info


class FlowVerbs(Handle):
    # Workflows and steps

    async def advance(self, *, limit: int, actor: str) -> int:  # noqa: ARG002  the one whose settle began it is the actor
        with self._state.lock:
            done = self._acts.advance(limit, self._now())
        if done:
            self._state.hub.announce()
        return done

    async def parents(self, task_id: str, *, after: int, limit: int) -> list[ParentEnd]:
        with self._state.lock:
            self._now()
            record = self._state.records.get(task_id)
            named = [] if record is None else record.new.parents[after : after + limit]
            found = (self._state.records.get(parent_id) for parent_id in named)
            return [parent_end(parent) for parent in found if parent is not None]

    async def run(self, run_id: str) -> RunInfo | None:
        with self._state.lock:
            self._now()
            members = self._state.runs.get(run_id)
            return None if members is None else run_info(run_id, list(members.values()))

    async def run_lives(self, run_id: str) -> bool:
        with self._state.lock:
            self._now()
            return any(not member.status.terminal for member in self._state.runs.get(run_id, {}).values())

    async def runs(self, *, limit: int, after: str | None) -> list[RunInfo]:
        with self._state.lock:
            self._now()
            newest = sorted(self._state.runs, key=lambda run_id: min(self._state.runs[run_id]), reverse=True)
            if after is not None:
                if after not in newest:
                    raise InvalidTask(f"`after` names run {after}, which does not exist; start from the first page")
                newest = newest[newest.index(after) + 1 :]
            return [run_info(run_id, list(self._state.runs[run_id].values())) for run_id in newest[:limit]]

    async def record_step(self, lease: Lease, name: str, result: str) -> Step:
        with self._state.lock:
            return self._acts.record_step(lease, name, result, self._now())

    async def steps(self, task_id: str) -> list[Step]:
        with self._state.lock:
            self._now()
            record = self._state.records.get(task_id)
            return [] if record is None or record.steps is None else list(record.steps.values())

    # Schedules

    async def declare_schedule(self, new: NewSchedule) -> Schedule:
        with self._state.lock:
            ensure_text(new)
            return self._state.schedules.declare(new, from_micros(self._now()))

    async def schedules(self) -> list[Schedule]:
        with self._state.lock:
            self._now()
            return self._state.schedules.all()

    async def fire(self, name: str, *, last_fired_at: datetime, upto: datetime, tasks: Sequence[NewTask]) -> bool:
        with self._state.lock:
            fired = self._acts.fire(name, last_fired_at, upto, tasks, self._now())
        if fired:
            self._state.hub.announce()
        return fired

    async def pause_schedule(self, name: str, *, paused: bool) -> None:
        with self._state.lock:
            self._state.schedules.pause(name, from_micros(self._now()), paused=paused)

    async def delete_schedule(self, name: str) -> None:
        with self._state.lock:
            self._now()
            self._state.schedules.delete(name)
