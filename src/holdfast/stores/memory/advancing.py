"""What follows for others when a task has ended, or has come back from an end (contract section 10).

A verb first makes its own changes and then calls inline(): what is little is done in the same atomic step, the rest is
kept by name (`Work`), and advance() goes on with it. Whoever goes on looks anew: the task may have been requeued
meanwhile, and it need not be the same process.

A store in which others write at the same time relies on what is touched here besides what is changed. Work touches its
own task, a child is touched by the end of each parent, and a reason by each that is canceled because of it: so of two
that see the same things differently only one is written.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.clock import span_micros
from holdfast.model.task import TaskStatus
from holdfast.policy import workflow
from holdfast.policy.workflow import Effect
from holdfast.stores.memory.record import Edge, Record
from holdfast.stores.memory.state import BEGIN, MemoryState, Place, Work

DEPENDENTS, FAIL_FAST, REQUEUED = "dependents", "fail_fast", "requeued"


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
                room -= self._go_on(work, min(room, workflow.INLINE_EACH))

    def advance(self, now: int, limit: int) -> int:
        self._state.instant = now
        done = 0
        while self._state.left and done < limit and not self._full():
            done += self._go_on(next(iter(self._state.left.values())), limit - done)
            for work in self._works():
                self._state.leave(work)
        return done

    def _full(self) -> bool:
        """Nothing more fits into this atomic step."""
        return False

    def _go_on(self, work: Work, most: int) -> int:
        """How far it came; what may be left of it is kept."""
        done = 0
        if most and not self._full():
            for place in self._steps(work):
                done += 1
                work = work._replace(after=place)
                if done == most or self._full():
                    break
            else:
                self._state.finish(work)
                return done
        self._state.leave(work)
        return done

    def _works(self) -> list[Work]:
        """What the records mean that have turned: first for those that wait for them, then for others."""
        turned = list(self._state.turned)
        self._state.turned.clear()
        ended = [(record, actor) for record, actor in turned if record.status.terminal]
        works = [_work(DEPENDENTS, record, actor) for record, actor in ended if record.awaited]
        for record, actor in turned:
            if not record.status.terminal and self._state.is_blamed(record):
                works.append(_work(REQUEUED, record, actor))
            elif record.status.terminal and record.new.fail_fast is not None and _is_root(record):
                works.append(_work(FAIL_FAST, record, actor))
        return works

    def _steps(self, work: Work) -> Iterator[Place]:
        """Each yield is one that was told, and how far the work has come."""
        record = self._state.worked_on(work)
        if record is None:
            return iter(())
        self._state.touch(record)
        if work.kind == DEPENDENTS:
            return self._dependents(record, work.actor, work.after)
        if work.kind == FAIL_FAST:
            return self._fail_fast(record, work.actor)
        return self._after_requeue(record, work.actor)

    # A task has ended

    def _dependents(self, record: Record, actor: str, after: Place) -> Iterator[Place]:
        if not record.status.terminal:
            return
        for edge in self._state.edges(record, after):
            if not record.status.terminal:
                return
            self._tell(record, edge, actor)
            yield edge.child.seq, edge.at

    def _tell(self, record: Record, edge: Edge, actor: str) -> None:
        child = edge.child
        if not edge.counted:
            self._state.touch(child)  # also where nothing follows: it may be about to be re-armed
        match workflow.effect(record.status, child.status, child.new.on_parent_failure, counted=edge.counted):
            case Effect.COUNT:
                self._state.count(record, edge)
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

    def _fail_fast(self, record: Record, actor: str) -> Iterator[Place]:
        """The members of a name end together; what runs is asked."""
        name, run = record.new.fail_fast, self._state.runs[str(record.new.run_id)]
        members = [one for one in run.values() if one.new.fail_fast == name and _unasked(one)]
        for member in sorted(members, key=lambda one: one.seq):
            if record.status not in (TaskStatus.FAILED, TaskStatus.CANCELED):
                return
            if member.status is TaskStatus.RUNNING:
                self._ask(member, record.new.id, actor)
            elif not member.status.terminal:
                self._cancel(member, record.new.id, actor)
            yield BEGIN

    def _ask(self, member: Record, because: str, actor: str) -> None:
        if member.cancel_requested_at is None:
            self._state.blame(member, because)
            asked = workflow.asked(member.attempt, member.failures, because)
            self._state.write(member, asked, self._state.instant, actor)

    # A task was requeued

    def _after_requeue(self, record: Record, actor: str) -> Iterator[Place]:
        """Parents first, so that each member finds its parents as they will stay."""
        task_id = record.new.id
        for member in self._state.blamed(record):
            if record.status in (TaskStatus.FAILED, TaskStatus.CANCELED):
                return
            if member.canceled_because == task_id:
                self._rearm(member, actor)
            yield BEGIN

    def _rearm(self, member: Record, actor: str) -> None:
        other = next(self._state.blockers(member), None)
        if member.status is TaskStatus.RUNNING:
            self._state.blame(member, member.new.id)  # it may have been told to stop: see policy/workflow.py, cause()
        elif other is not None:
            self._state.touch(other)  # that it stays so has to be certain
            self._state.blame(member, workflow.cause(other.new.id, other.canceled_because))
        else:
            attempt, most = member.attempt, member.new.max_attempts
            self._state.write(
                member, workflow.rearmed(attempt, most, pending=member.pending), self._state.instant, actor
            )


def _work(kind: str, record: Record, actor: str) -> Work:
    return Work(kind, record.new.id, record.new.run_id, actor)


def _is_root(record: Record) -> bool:
    """It failed, or was canceled by a person: others end because of it."""
    return record.status is not TaskStatus.COMPLETED and record.canceled_because is None


def _unasked(member: Record) -> bool:
    """It lives, and nobody has asked it to stop."""
    return not member.status.terminal and (
        member.status is not TaskStatus.RUNNING or member.cancel_requested_at is None
    )
