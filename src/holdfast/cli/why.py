"""Why a task is not running, in plain words, with the command that would help.

Reads what the store knows (the record, its queue, the workers) and decides nothing: a picture of this moment.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.app import Holdfast
from holdfast.cli.output import many, span, when
from holdfast.model.query import QueueInfo, WorkerInfo
from holdfast.model.task import Task, TaskStatus
from holdfast.policy.workflow import LIVE

WORKER_FRESH = timedelta(seconds=30)
"""Workers renew their entry every 10 s; one not seen for three of these is not counted on."""
LOOKED_AT_MOST = 1000
PARENTS_SHOWN = 5


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    text: str
    command: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The main reason; `also` holds what would stop the task even without it."""

    id: str
    status: TaskStatus
    reason: str
    text: str
    command: str | None
    also: tuple[Reason, ...] = ()


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """What is known at one moment."""

    task: Task
    now: datetime
    queue: QueueInfo | None
    workers: Sequence[WorkerInfo]
    ahead: int | None
    """Due tasks of the same queue that go first; None where there are too many to look at."""
    open_parents: Sequence[Task] = ()
    """Of a waiting task: those it still waits for; only some of very many."""
    because: Task | None = None
    """What a task was canceled because of."""


async def explain(app: Holdfast, task_id: str) -> Answer:
    return answer(await look(app, task_id))


async def look(app: Holdfast, task_id: str) -> Picture:
    task = await app.tasks.aget(task_id)
    store = app.client.store
    now = await store.now()
    queue = next((info for info in await store.queues() if info.name == task.queue), None)
    return Picture(
        task=task,
        now=now,
        queue=queue,
        workers=[worker for worker in await store.workers() if fresh(worker, now)],
        ahead=await _ahead(app, task, now, queue),
        open_parents=await _open_parents(app, task),
        because=None if task.canceled_because is None else await store.get(task.canceled_because),
    )


async def _open_parents(app: Holdfast, task: Task) -> list[Task]:
    """Looked for among what lives of the run: there may be very many parents, and most have ended."""
    if task.status is not TaskStatus.WAITING:
        return []
    parents, found = set(task.parents), []
    for status in reversed(LIVE):
        live = await app.tasks.alist(status=status, run_id=task.run_id, limit=LOOKED_AT_MOST)
        found += [parent for parent in live if parent.id in parents]
    return found


async def _ahead(app: Holdfast, task: Task, now: datetime, queue: QueueInfo | None) -> int | None:
    queued = 0 if queue is None else queue.counts.get("queued", 0)
    if task.status is not TaskStatus.QUEUED or queued > LOOKED_AT_MOST:
        return None
    others = await app.tasks.alist(status="queued", queue=task.queue, limit=LOOKED_AT_MOST)
    return sum(1 for other in others if other.run_at <= now and _order(other) < _order(task))


def _order(task: Task) -> tuple[int, datetime, str]:
    return -task.priority, task.run_at, task.id


def fresh(worker: WorkerInfo, now: datetime) -> bool:
    return worker.seen_at is not None and now - worker.seen_at < WORKER_FRESH


# The answer


def answer(seen: Picture) -> Answer:
    task = seen.task
    match task.status:
        case TaskStatus.QUEUED:
            reasons = _queued(seen)
        case TaskStatus.RUNNING:
            reasons = [_running(seen)]
        case TaskStatus.WAITING:
            reasons = [_waiting(seen)]
        case _:
            reasons = [_ended(seen)]
    first, *also = reasons
    return Answer(
        id=task.id,
        status=task.status,
        reason=first.reason,
        text=first.text,
        command=first.command,
        also=tuple(also),
    )


def _queued(seen: Picture) -> list[Reason]:
    held = [_not_due(seen), _paused(seen), _no_worker(seen)]
    return [reason for reason in held if reason is not None] or [_claimable(seen)]


def _not_due(seen: Picture) -> Reason | None:
    task, now = seen.task, seen.now
    if task.run_at <= now:
        return None
    due = f"{_iso(task.run_at)} ({when(task.run_at, now)})"
    if task.failures:
        error = (task.last_error or {}).get("message", "unknown error")
        text = f"It is retrying: failure {task.failures} of {_budget(task)} was {error!r}; it is due again at {due}."
        return Reason(reason="retrying", text=text, command=f"holdfast tasks show {task.id}")
    if task.attempt:
        text = f"It was put off by its handler, or by a worker that does not know it; it is due again at {due}."
        return Reason(reason="snoozed", text=text, command=f"holdfast tasks events {task.id}")
    return Reason(reason="not_due", text=f"It is scheduled: not due until {due}.")


def _paused(seen: Picture) -> Reason | None:
    if seen.queue is None or not seen.queue.paused:
        return None
    queue = seen.task.queue
    return Reason(
        reason="paused", text=f"Its queue {queue!r} is paused.", command=f"holdfast queues resume {shlex.quote(queue)}"
    )


def _no_worker(seen: Picture) -> Reason | None:
    task = seen.task
    listening = _listening(seen)
    start = f"holdfast --app MODULE:ATTRIBUTE worker --queues {shlex.quote(task.queue)}"
    if not listening:
        who = "no worker is alive" if not seen.workers else f"none of {many(len(seen.workers), 'worker')} listens to it"
        return Reason(reason="no_worker", text=f"Nobody works on its queue {task.queue!r}: {who}.", command=start)
    if not any(task.name in worker.names for worker in listening):
        text = f"No worker on queue {task.queue!r} knows the name {task.name!r}; start one whose app declares it."
        return Reason(reason="unknown_name", text=text, command=start)
    return None


def _listening(seen: Picture) -> list[WorkerInfo]:
    return [worker for worker in seen.workers if worker.queues is None or seen.task.queue in worker.queues]


def _claimable(seen: Picture) -> Reason:
    able = [worker for worker in _listening(seen) if seen.task.name in worker.names]
    slots = sum(worker.concurrency for worker in able)
    taken = min(sum(worker.running for worker in able), slots)
    queued = 0 if seen.queue is None else seen.queue.counts.get("queued", 0)
    ahead = (
        f"{many(seen.ahead, 'task')} ahead of it" if seen.ahead is not None else f"{queued:,} queued tasks around it"
    )
    if taken < slots:
        due = (
            f"It is due ({when(seen.task.run_at, seen.now)}) and claimable; {taken} of {slots} slots are taken, {ahead}"
        )
        return Reason(reason="claimable", text=f"{due} in the queue: a worker takes it any moment.")
    text = f"It is due and claimable: workers are busy ({taken} of {slots} slots taken), {ahead} in the queue."
    start = f"holdfast --app MODULE:ATTRIBUTE worker --queues {shlex.quote(seen.task.queue)}"
    return Reason(reason="busy", text=text, command=start)


def _running(seen: Picture) -> Reason:
    task, now = seen.task, seen.now
    assert task.claimed_at is not None
    assert task.lease_expires_at is not None
    since = f"attempt {task.attempt} since {_iso(task.claimed_at)} ({when(task.claimed_at, now)}) on {task.claimed_by}"
    lease = f"its lease lasts until {_iso(task.lease_expires_at)}"
    if task.lease_expires_at <= now:
        text = f"It was running ({since}), but {lease.replace('lasts until', 'ran out at')}: any worker takes it back."
        return Reason(reason="lease_expired", text=text, command="holdfast workers")
    if task.cancel_requested_at is not None:
        text = f"It is running ({since}) and was asked to stop {when(task.cancel_requested_at, now)}; {lease}."
        return Reason(reason="cancel_requested", text=text, command=f"holdfast tasks release {task.id}")
    text = f"It is running: {since}; {lease} and is renewed while the worker lives."
    return Reason(reason="running", text=text, command=f"holdfast tasks watch {task.id}")


def _waiting(seen: Picture) -> Reason:
    found = seen.open_parents
    if not found:
        text = "What it waited for has ended; a worker queues or cancels it with others that waited for the same."
        return Reason(reason="waiting", text=text, command="holdfast workers")
    number = many(len(found), "parent") if len(found) < LOOKED_AT_MOST else "very many parents"
    shown = ", ".join(f"{parent.id} ({parent.name}, {parent.status.value})" for parent in found[:PARENTS_SHOWN])
    more = " and others" if len(found) > PARENTS_SHOWN else ""
    text = f"It waits for {number} to end, of {len(seen.task.parents):,}: {shown}{more}."
    return Reason(reason="waiting", text=text, command=f"holdfast tasks why {found[0].id}")


def _ended(seen: Picture) -> Reason:
    task, now = seen.task, seen.now
    moment = f"{_iso(task.finished_at)} ({when(task.finished_at, now)})" if task.finished_at else "some time ago"
    if task.status is TaskStatus.COMPLETED:
        took = f", {span(task.finished_at - task.created_at)} after its submit" if task.finished_at else ""
        return Reason(reason="completed", text=f"It completed at {moment} in attempt {task.attempt}{took}.")
    if task.status is TaskStatus.FAILED:
        error = (task.last_error or {}).get("message", "unknown error")
        text = f"It is a dead letter since {moment}: failure {task.failures} of {_budget(task)} was {error!r}."
        return Reason(reason="failed", text=text, command=f"holdfast dlq requeue {task.id}")
    if task.canceled_because is not None:
        return _canceled_with(seen, task.canceled_because, moment)
    return Reason(reason="canceled", text=f"It was canceled at {moment}.", command=f"holdfast tasks retry {task.id}")


def _canceled_with(seen: Picture, cause: str, moment: str) -> Reason:
    other = seen.because
    told = cause if other is None else f"{cause} ({other.name}), which is {other.status.value}"
    if other is None or other.status not in (TaskStatus.FAILED, TaskStatus.CANCELED):
        text = f"It was canceled at {moment} because of {told}."
        return Reason(reason="canceled", text=text, command=f"holdfast tasks retry {seen.task.id}")
    error = (other.last_error or {}).get("message") if other.status is TaskStatus.FAILED else None
    text = f"It was canceled at {moment} because of {told}" + ("." if error is None else f": {error!r}.")
    return Reason(
        reason="canceled", text=f"{text} It waits again once that is retried.", command=f"holdfast tasks retry {cause}"
    )


def _budget(task: Task) -> str:
    return str(task.max_attempts) if task.max_attempts else "∞"


def _iso(instant: datetime) -> str:
    return instant.isoformat(timespec="seconds").replace("+00:00", "Z")
