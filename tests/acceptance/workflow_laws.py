"""What has to be true of workflows once nothing moves any more, whatever happened to them before (contract section 10).

Read from the store alone: its records, its events, its runs, and the numbers by which it counts.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from holdfast import Holdfast, Task
from holdfast.model.event import Event
from holdfast.model.task import TaskStatus
from holdfast.policy.workflow import RUNS_ANYWAY, run_status
from holdfast.testing.fold import Folded, stages
from tests import postgres_server

PAGE = 5000
NOT_WELL = (TaskStatus.FAILED, TaskStatus.CANCELED)
FROM = {
    "task.ready": (TaskStatus.WAITING,),
    "task.rearmed": (TaskStatus.CANCELED,),
    "task.running": (TaskStatus.QUEUED,),
    "task.completed": (TaskStatus.RUNNING,),
    "task.failed": (TaskStatus.RUNNING,),
    "task.snoozed": (TaskStatus.RUNNING,),
    "task.released": (TaskStatus.RUNNING,),
    "task.cancel_requested": (TaskStatus.RUNNING,),
    "task.requeued": (TaskStatus.RUNNING, *NOT_WELL),
    "task.canceled": (TaskStatus.WAITING, TaskStatus.QUEUED, TaskStatus.RUNNING),
}
"""In which states each of them can happen."""


class Books(Protocol):
    """What a store counts by, and shows nobody."""

    def left(self) -> int:
        """How many pieces of work settles have left to advance()."""

    def miscounted(self) -> list[Any]:
        """What does not agree with the edges that are still open."""


class SqliteBooks:
    PENDING = """
    SELECT t.id, t.pending, count(e.parent) FROM holdfast_tasks AS t
    LEFT JOIN (
        SELECT e.child, e.parent FROM holdfast_edges AS e LEFT JOIN holdfast_tasks AS p ON p.seq = e.parent
        WHERE NOT e.counted AND p.status IS NOT 'completed'
    ) AS e ON e.child = t.seq
    GROUP BY t.seq HAVING t.pending <> count(e.parent)
    """

    def __init__(self, file: Path) -> None:
        self._file = file

    def _rows(self, query: str) -> list[Any]:
        with contextlib.closing(sqlite3.connect(self._file)) as connection:
            return connection.execute(query).fetchall()

    def left(self) -> int:
        return int(self._rows("SELECT count(*) FROM holdfast_advances")[0][0])

    def miscounted(self) -> list[Any]:
        return self._rows(self.PENDING)


class PostgresBooks:
    PENDING = """
    SELECT t.id, t.pending FROM {schema}.tasks AS t
    WHERE t.pending
        <> (SELECT count(*) FROM {schema}.edges AS e WHERE e.child = t.id AND e.bucket IS NULL AND NOT e.counted)
        + (SELECT count(*) FROM {schema}.buckets AS b WHERE b.child = t.id AND b.open > 0)
    """
    BUCKETS = """
    SELECT b.child, b.bucket, b.open FROM {schema}.buckets AS b
    WHERE b.open <> (
        SELECT count(*) FROM {schema}.edges AS e WHERE e.child = b.child AND e.bucket = b.bucket AND NOT e.counted
    )
    """

    def __init__(self, schema: str) -> None:
        self._schema = schema

    def _rows(self, query: str) -> list[Any]:
        text = query.replace("{schema}", self._schema)
        found: list[Any] = postgres_server.run_apart(lambda conn: conn.fetch(text))
        return found

    def left(self) -> int:
        return int(self._rows("SELECT count(*) FROM {schema}.advances")[0][0])

    def miscounted(self) -> list[Any]:
        return self._rows(self.PENDING) + self._rows(self.BUCKETS)


def every_task(app: Holdfast) -> list[Task]:
    """In the order of submission."""
    found: list[Task] = []
    while page := app.tasks.list(limit=PAGE, after=found[-1].id if found else None):
        found += page
    return found[::-1]


def every_event(app: Holdfast) -> list[Event]:
    found: list[Event] = []

    async def page() -> list[Event]:
        return await app.client.store.events(None, after=found[-1].id if found else 0, limit=PAGE)

    while fresh := app.client.plainly(page, plain="events"):
        found += fresh
    return found


def check_at_rest(app: Holdfast, books: Books) -> list[Task]:
    """Nothing moves: every law that holds then. The tasks, for more."""
    tasks = {task.id: task for task in every_task(app)}
    events: dict[str, list[Event]] = defaultdict(list)
    for event in every_event(app):
        events[event.task_id].append(event)
    assert books.miscounted() == []
    for task in tasks.values():
        assert task.status.terminal, task
        check_standing(task, tasks)
        check_life(task, events[task.id])
        check_order(task, tasks, events)
    check_counts(app, tasks.values())
    check_runs(app, tasks.values())
    return list(tasks.values())


def check_standing(task: Task, tasks: dict[str, Task]) -> None:
    """How a task has ended agrees with how its parents have, now."""
    parents = [tasks[parent] for parent in task.parents]
    if task.status in (TaskStatus.COMPLETED, TaskStatus.FAILED) and task.on_parent_failure != RUNS_ANYWAY:
        assert all(parent.status == "completed" for parent in parents), f"{task} ran without its parents"
    if task.status is TaskStatus.COMPLETED:
        check_what_it_saw(task)
    because = task.canceled_because
    if because is not None:
        assert task.status is TaskStatus.CANCELED, task
        assert tasks[because].status in NOT_WELL, f"{task.id} is canceled because of {tasks[because]}"
        # Told to stop for one that was requeued meanwhile, a member ends because of itself (policy/workflow.py).
        root = tasks[because].canceled_because in (None, because)
        assert root, f"{task.id} is canceled because of {because}, which is no root"


def check_what_it_saw(task: Task) -> None:
    for parent, saw in zip(task.parents, task.result["saw"], strict=True):
        assert saw == parent or (saw is None and task.on_parent_failure == RUNS_ANYWAY), (task, saw)


def check_life(task: Task, events: Sequence[Event]) -> None:
    """Its events fold to its record, and each of them can follow the one before."""
    kinds = Counter(event.kind for event in events)
    told = list(stages(events))
    assert told[-1] == Folded(task.status, task.attempt, task.failures), (task, events)
    for before, event in zip(told, events[1:], strict=False):
        assert before.status in FROM[event.kind], f"{event} of a task that was {before.status}"
    attempts = [event.payload["attempt"] for event in events if event.kind == "task.running"]
    assert attempts == list(range(1, task.attempt + 1))
    assert kinds["task.ready"] <= 1, events
    assert kinds["task.completed"] == (task.status is TaskStatus.COMPLETED), events


def check_order(task: Task, tasks: dict[str, Task], events: dict[str, list[Event]]) -> None:
    """Nothing is ready or runs before all of its parents have ended as it wants them to."""
    begun = next((event for event in events[task.id] if event.kind in ("task.ready", "task.running")), None)
    for parent in task.parents if begun is not None else ():
        ends = [event for event in events[parent] if counts_as_end(event, task)]
        assert ends, f"{task.id} began without {tasks[parent]}"
        assert begun is not None
        assert ends[0].id < begun.id, f"{begun} before {ends[0]}"
    for event in events[task.id]:
        because = event.payload.get("because")
        if event.kind == "task.canceled" and because is not None:
            assert any(end.kind in ("task.failed", "task.canceled") and end.id < event.id for end in events[because])


def counts_as_end(event: Event, child: Task) -> bool:
    if event.kind == "task.completed":
        return True
    broken = event.kind == "task.canceled" or (event.kind == "task.failed" and event.payload["terminal"])
    return broken and child.on_parent_failure == RUNS_ANYWAY


def check_counts(app: Holdfast, tasks: Iterable[Task]) -> None:
    real = Counter(task.status.value for task in tasks)
    assert {status: number for status, number in app.tasks.count().items() if number} == dict(real)


def check_runs(app: Holdfast, tasks: Iterable[Task]) -> None:
    runs: dict[str, list[Task]] = defaultdict(list)
    for task in tasks:
        assert task.run_id is not None
        runs[task.run_id].append(task)
    for run_id, members in runs.items():
        awaited = {parent for member in members for parent in member.parents}
        counts = Counter(member.status.value for member in members)
        last = Counter(member.status.value for member in members if member.id not in awaited)
        shown = app.runs.get(run_id)
        assert {status: number for status, number in shown.counts.items() if number} == dict(counts)
        assert shown.status == run_status(counts, last), shown
        assert shown.finished_at == max(member.finished_at for member in members if member.finished_at is not None)
