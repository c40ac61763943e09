"""Why a task is not running, in plain words, with the command that would help.

Reads what the store knows (the record, its queue, the workers) and decides nothing: a picture of this moment.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from holdfast.app import Holdfast
from holdfast.cli.output import many, span, when
from holdfast.model.limits import WHOLE_STORE
from holdfast.model.query import QueueInfo, WorkerInfo
from holdfast.model.task import Task, TaskStatus
from holdfast.policy.workflow import LIVE

WORKER_FRESH = timedelta(seconds=30)
"""Workers renew their entry every 10 s; one not seen for three of these is not counted on."""
LOOKED_AT_MOST = 1000
PARENTS_SHOWN = 5
_MAY_NEED_HELP = {TaskStatus.QUEUED: 0, TaskStatus.WAITING: 1, TaskStatus.RUNNING: 2}


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    reason: str
    text: str
    command: str | None = None


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The main reason; `also` holds what would stop the task even without it, and what stops the one it waits for."""

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
    whole: QueueInfo | None = None
    """What is said of the whole store, with the counts of all queues."""
    of_key: Sequence[Task] = ()
    """Live tasks of the same queue and key that this one may have to wait for, as far as was looked."""
    open_parents: Sequence[Task] = ()
    """Of a waiting task: those it still waits for; only some of very many."""
    begins: Task | None = None
    """Of a waiting task: the one at the beginning of the line of parents it waits for, which could run by itself."""
    because: Task | None = None
    """What a task was canceled because of."""


async def explain(app: Holdfast, task_id: str) -> Answer:
    """Also why the one that it waits for, however far away, has not ended: that is where somebody can help."""
    seen = await look(app, task_id)
    given, first = answer(seen), seen.begins or _first_of_key(seen)
    if first is None:
        return given
    other = answer(await look(app, first.id))
    text = f"And that one, {first.id} ({first.name}): {other.text}"
    why_other = Reason(reason=other.reason, text=text, command=other.command)
    return msgspec.structs.replace(given, also=(*given.also, why_other))


async def look(app: Holdfast, task_id: str) -> Picture:
    task = await app.tasks.aget(task_id)
    store = app.client.store
    now = await store.now()
    queues = await store.queues()
    queue = next((info for info in queues if info.name == task.queue), None)
    live = await _live(app, task)
    return Picture(
        task=task,
        now=now,
        queue=queue,
        workers=[worker for worker in await store.workers() if fresh(worker, now)],
        ahead=await _ahead(app, task, now, queue),
        whole=_whole(queues),
        of_key=await _of_key(app, task, queue),
        open_parents=_open_parents(task, live),
        begins=_begins(task, live) if live else None,
        because=None if task.canceled_because is None else await store.get(task.canceled_because),
    )


def _whole(queues: Sequence[QueueInfo]) -> QueueInfo | None:
    said = next((info for info in queues if info.name == WHOLE_STORE), None)
    if said is None or not said.limits.some:
        return None
    running = sum(info.counts.get("running", 0) for info in queues)
    return msgspec.structs.replace(said, counts={"running": running})


async def _of_key(app: Holdfast, task: Task, queue: QueueInfo | None) -> list[Task]:
    per_key = None if queue is None else queue.limits.max_running_per_key
    if per_key is None or task.concurrency_key is None or task.status is not TaskStatus.QUEUED:
        return []
    statuses = ("running", "queued") if per_key == 1 else ("running",)
    pages = [await app.tasks.alist(status=status, queue=task.queue, limit=LOOKED_AT_MOST) for status in statuses]
    others = (other for page in pages for other in page if other.concurrency_key == task.concurrency_key)
    return [other for other in others if other.id != task.id]


async def _live(app: Holdfast, task: Task) -> dict[str, Task]:
    """Of a waiting task's run: its parents are looked for among what lives. There may be very many, and most ended."""
    if task.status is not TaskStatus.WAITING:
        return {}
    pages = [await app.tasks.alist(status=status, run_id=task.run_id, limit=LOOKED_AT_MOST) for status in LIVE]
    return {other.id: other for page in pages for other in page}


def _open_parents(task: Task, live: Mapping[str, Task]) -> list[Task]:
    """Those first that somebody may have to help."""
    return sorted(
        (live[parent] for parent in task.parents if parent in live), key=lambda parent: _MAY_NEED_HELP[parent.status]
    )


def _begins(task: Task, live: Mapping[str, Task]) -> Task | None:
    """Up from a waiting task."""
    while task.status is TaskStatus.WAITING:
        parents = _open_parents(task, live)
        if not parents:
            return None
        task = parents[0]
    return task


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
    held = [_not_due(seen), _paused(seen), _full(seen), _held_by_rate(seen), _held_by_key(seen), _no_worker(seen)]
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
        text = f"It was put off (by a sleep or a snooze of its handler, a worker that does not know it): due at {due}."
        return Reason(reason="snoozed", text=text, command=f"holdfast tasks events {task.id}")
    return Reason(reason="not_due", text=f"It is scheduled: not due until {due}.")


def _paused(seen: Picture) -> Reason | None:
    if seen.queue is None or not seen.queue.paused:
        return None
    queue = seen.task.queue
    return Reason(
        reason="paused", text=f"Its queue {queue!r} is paused.", command=f"holdfast queues resume {shlex.quote(queue)}"
    )


def _full(seen: Picture) -> Reason | None:
    for info in (seen.whole, seen.queue):
        most = None if info is None else info.limits.max_running
        if info is None or most is None or info.counts.get("running", 0) < most:
            continue
        whose = "The whole store" if info is seen.whole else f"Its queue {info.name!r}"
        text = f"{whose} runs as many tasks as it may ({most:,}): it starts when one of them has ended."
        command = f"holdfast queues limit {shlex.quote(info.name)} --max-running {most * 2}"
        return Reason(reason="limited", text=text, command=command)
    return None


def _held_by_rate(seen: Picture) -> Reason | None:
    for info in (seen.whole, seen.queue):
        if info is None or info.limits.rate is None or info.next_start_at is None:
            continue
        rate = info.limits.rate
        whose = "the whole store" if info is seen.whole else f"queue {info.name!r}"
        soonest = f"{_iso(info.next_start_at)} ({when(info.next_start_at, seen.now)})"
        text = f"The rate of {whose} holds it: {many(rate.count, 'task')} may start per {span(rate.period)}"
        command = f"holdfast queues limit {shlex.quote(info.name)} --rate {rate.count * 2}/{max(int(rate.period), 1)}s"
        return Reason(reason="limited_rate", text=f"{text}, the next one at {soonest}{_behind(seen)}.", command=command)
    return None


def _behind(seen: Picture) -> str:
    return f", and {many(seen.ahead, 'task')} of its queue before it" if seen.ahead else ""


def _held_by_key(seen: Picture) -> Reason | None:
    task = seen.task
    most = None if seen.queue is None else seen.queue.limits.max_running_per_key
    running = [other for other in seen.of_key if other.status is TaskStatus.RUNNING]
    if most is None:
        return None
    if len(running) >= most:
        text = f"Its key {task.concurrency_key!r} runs as many tasks as it may ({most:,} in queue {task.queue!r})."
        return Reason(reason="limited_key", text=text, command=f"holdfast tasks show {running[0].id}")
    first = _first_of_key(seen)
    if first is None:
        return None
    text = f"The tasks of its key {task.concurrency_key!r} run in order, and {first.id} goes first."
    return Reason(reason="behind_in_key", text=text, command=f"holdfast tasks why {first.id}")


def _first_of_key(seen: Picture) -> Task | None:
    """Where tasks of a key go in order and none runs: the one that goes before this one."""
    task, most = seen.task, None if seen.queue is None else seen.queue.limits.max_running_per_key
    if most != 1 or task.attempt or any(other.status is TaskStatus.RUNNING for other in seen.of_key):
        return None
    ahead = [other for other in seen.of_key if other.attempt or (other.run_at, other.id) < (task.run_at, task.id)]
    ahead = [other for other in ahead if other.attempt or other.run_at <= seen.now]
    return min(ahead, key=lambda other: (not other.attempt, other.run_at, other.id), default=None)


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
        return Reason(reason="claimable", text=f"{due} in the queue: a worker takes it any moment{_unseen(seen)}.")
    text = f"It is due and claimable: workers are busy ({taken} of {slots} slots taken), {ahead} in the queue."
    start = f"holdfast --app MODULE:ATTRIBUTE worker --queues {shlex.quote(seen.task.queue)}"
    return Reason(reason="busy", text=text, command=start)


def _unseen(seen: Picture) -> str:
    """What was not looked at, because there is too much of it."""
    keyed = seen.queue is not None and seen.queue.limits.max_running_per_key is not None
    if seen.ahead is not None or not keyed or seen.task.concurrency_key is None:
        return ""
    return f", unless others of its key {seen.task.concurrency_key!r} go first (there are too many tasks to look)"


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
    if task.canceled_because not in (None, task.id):
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
