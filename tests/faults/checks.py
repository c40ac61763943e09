"""What must hold after any number of faults, checked on what the store shows: nothing lost, nothing doubled."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable

from holdfast.model.event import Event
from holdfast.model.query import TaskFilter
from holdfast.model.task import Task
from holdfast.stores.protocol import Store
from holdfast.testing.fold import UNBORN, fold, stages

PAGE = 500


async def all_tasks(store: Store) -> list[Task]:
    found: list[Task] = []
    while True:
        page = await store.page(TaskFilter(limit=PAGE, after=found[-1].id if found else None))
        found += page
        if len(page) < PAGE:
            return found


async def check_whole(store: Store, acknowledged: Iterable[str], *, deleted: Collection[str] = ()) -> list[Task]:
    """Every acknowledged task is there once, each attempt was granted once, and records, events and counts agree."""
    tasks = await all_tasks(store)
    ids = [task.id for task in tasks]
    assert sorted(ids) == sorted(set(acknowledged) - set(deleted)), "acknowledged, and there"
    for task in tasks:
        check_one(task, await store.events(task.id, after=0, limit=10_000))
    counted = {queue.name: dict(queue.counts) for queue in await store.queues()}
    real = Counter((task.queue, task.status.value) for task in tasks)
    for (queue, status), n in real.items():
        assert counted[queue].pop(status) == n
    assert not any(counted.values()), counted
    assert [finding for finding in await store.check() if finding[1] is False] == []
    return tasks


def check_one(task: Task, events: list[Event]) -> None:
    kinds = Counter(event.kind for event in events)
    assert fold(events) == (task.status, task.attempt, task.failures), events
    assert kinds["task.enqueued"] == 1
    granted = [event.payload["attempt"] for event in events if event.kind == "task.running"]
    assert granted == list(range(1, task.attempt + 1)), "each attempt was granted once"
    assert kinds["task.completed"] == (task.status == "completed"), "it ended once"
    before = [UNBORN, *stages(events)]
    for event, stage in zip(events, before, strict=False):
        assert event.kind != "task.running" or stage.status == "queued", "the attempt before had ended"
    if task.status != "running":
        assert task.claimed_by is None
        assert task.lease_expires_at is None
