"""What follows for others when a task has ended, or has come back from an end (contract section 10).

A verb first makes its own changes and then calls inline(): what is little is done in the same atomic step, the rest is
kept, and advance() goes on with it. Work is a generator that yields after each dependent, and looks anew whenever it
goes on: the task may have been requeued meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from holdfast.clock import span_micros
from holdfast.model.task import TaskStatus
from holdfast.policy import workflow
from holdfast.policy.workflow import Effect
from holdfast.stores.memory.record import Edge, Record
from holdfast.stores.memory.state import MemoryState

Work = Iterator[None]


class Advancing:
    """For one handle; used while the store's lock is held."""

    def __init__(self, state: MemoryState) -> None:
        self._state = state

    def inline(self, now: int) -> None:
        """Do what is little of what the records that have turned mean for others; keep the rest."""
        self._state.instant = now
        room = workflow.INLINE_ALL
        while works := self._works():
            for work in works:
                most = min(room, workflow.INLINE_EACH)
                done = _go_on(work, most)
                room -= done
                if done == most:
                    self._state.left.append(work)

    def advance(self, now: int, limit: int) -> int:
        self._state.instant = now
        done = 0
        while self._state.left and done < limit:
            work = self._state.left.popleft()
            steps = _go_on(work, limit - done)
            done += steps
            if done == limit:
                self._state.left.appendleft(work)
            self._state.left.extend(self._works())
        return done

    def _works(self) -> list[Work]:
        """What the records mean that have turned: first for those that wait for them, then for others."""
        turned = list(self._state.turned)
        self._state.turned.clear()
        ended = [(record, actor) for record, actor in turned if record.status.terminal]
        works = [self._dependents(record, actor) for record, actor in ended if record.edges]
        for record, actor in turned:
            if not record.status.terminal:
                works.append(self._after_requeue(record, actor))
            elif record.new.fail_fast is not None and _is_root(record):
                works.append(self._fail_fast(record, actor))
        return works

    # A task has ended

    def _dependents(self, record: Record, actor: str) -> Work:
        for edge in record.edges:
            if not record.status.terminal:
                return
            self._tell(record, edge, actor)
            yield

    def _tell(self, record: Record, edge: Edge, actor: str) -> None:
        child = edge.child
        match workflow.effect(record.status, child.status, child.new.on_parent_failure, counted=edge.counted):
            case Effect.COUNT:
                self._state.touch(record)
                edge.counted = True
                self._state.touch(child)
                child.pending -= 1
                if child.pending == 0 and child.status is TaskStatus.WAITING:
                    self._make_ready(child, actor)
            case Effect.CANCEL:
                self._cancel(child, workflow.cause(record.new.id, record.canceled_because), actor)

    def _make_ready(self, child: Record, actor: str) -> None:
        given, delay = child.new.run_at is not None, span_micros(child.new.delay_seconds)
        child.run_at = workflow.due_at(self._state.instant, child.run_at, delay, given=given)
        self._state.write(child, workflow.ready(), self._state.instant, actor)

    def _cancel(self, member: Record, because: str, actor: str) -> None:
        self._state.blame(member, because)
        failures = member.failures
        self._state.write(member, workflow.canceled(member.attempt, failures, because), self._state.instant, actor)

    def _fail_fast(self, record: Record, actor: str) -> Work:
        """The members of a name end together; what runs is asked."""
        name, run = record.new.fail_fast, self._state.runs[str(record.new.run_id)]
        for member in [one for one in run.values() if one.new.fail_fast == name and not one.status.terminal]:
            if record.status not in (TaskStatus.FAILED, TaskStatus.CANCELED):
                return
            if member.status is TaskStatus.RUNNING:
                self._ask(member, record.new.id, actor)
            elif not member.status.terminal:
                self._cancel(member, record.new.id, actor)
            yield

    def _ask(self, member: Record, because: str, actor: str) -> None:
        if member.cancel_requested_at is None:
            self._state.blame(member, because)
            asked = workflow.asked(member.attempt, member.failures, because)
            self._state.write(member, asked, self._state.instant, actor)

    # A task was requeued

    def _after_requeue(self, record: Record, actor: str) -> Work:
        """Parents first, so that each member finds its parents as they will stay."""
        task_id = record.new.id
        for member in sorted(self._state.because.get(task_id, {}).values(), key=lambda one: one.seq):
            if record.status in (TaskStatus.FAILED, TaskStatus.CANCELED):
                return
            if member.canceled_because == task_id:
                self._rearm(member, actor)
            yield

    def _rearm(self, member: Record, actor: str) -> None:
        other = next(member.blockers(), None)
        if member.status is TaskStatus.RUNNING:
            self._state.blame(member, member.new.id)  # it may have been told to stop: see policy/workflow.py, cause()
        elif other is not None:
            self._state.blame(member, workflow.cause(other.new.id, other.canceled_because))
        else:
            attempt, most = member.attempt, member.new.max_attempts
            self._state.write(
                member, workflow.rearmed(attempt, most, pending=member.pending), self._state.instant, actor
            )


def _is_root(record: Record) -> bool:
    """It failed, or was canceled by a person: others end because of it."""
    return record.status is not TaskStatus.COMPLETED and record.canceled_because is None


def _go_on(work: Work, most: int) -> int:
    """How far it came; less than `most` only at its end."""
    return sum(1 for _ in islice(work, most))
