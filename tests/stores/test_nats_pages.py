"""Pages of ended tasks on NATS: newest first and complete, whatever the ids, however they are walked through."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest

from holdfast import ids
from holdfast.model.query import TaskFilter
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Change
from holdfast.stores.nats import walk
from holdfast.stores.nats.store import NatsStore
from tests.stores.nats_support import Place, end, in_place, ledger_of

DICE = random.Random(7)


def _uuid7(at: datetime) -> str:
    millis = round(at.timestamp() * 1000) & (1 << 48) - 1
    noise = DICE.randrange(1 << 48)
    return f"{millis >> 16:08x}-{millis & 0xFFFF:04x}-7{noise >> 36:03x}-8000-{noise:012x}"


def _ids() -> list[str]:
    """Of these minutes and hours, of the last years, of times that cannot be, and of none."""
    now = datetime.now(UTC)
    near = [_uuid7(now - timedelta(seconds=20 * n)) for n in range(12)]
    far = [_uuid7(now - timedelta(hours=31 * n)) for n in range(12)]
    wild = [_uuid7(datetime(year, 3, 1, tzinfo=UTC)) for year in (1970, 2099, 2525)]
    other = ["", "gone", "other", "zzz", "0", "a b.c*>", "ffffff", ids.token(), ids.task_id().upper(), far[0][:8]]
    made = [*near, *far, *wild, *[one for one in other if one]]
    DICE.shuffle(made)
    return made


async def _filled(store: NatsStore) -> dict[str, tuple[str, str]]:
    """By id: queue and status."""
    made = {}
    for number, task_id in enumerate(_ids()):
        queue = ("a", "b.c")[number % 2]
        await store.submit([NewTask(id=task_id, name="t", payload="{}", queue=queue)])
        if number % 5 == 0:
            made[task_id] = queue, "queued"
        elif number % 5 == 1:
            await store.amend(Change.CANCEL, [task_id], actor="me")
            made[task_id] = queue, "canceled"
        else:
            await end(store, [task_id])
            made[task_id] = queue, "completed"
    return made


async def _pages(store: NatsStore, size: int, **wanted: object) -> list[str]:
    """All of them, page by page."""
    seen: list[str] = []
    while True:
        after = seen[-1] if seen else None
        page = await store.page(TaskFilter(limit=size, after=after, **wanted))  # type: ignore[arg-type]
        seen += [task.id for task in page]
        if len(page) < size:
            return seen


@pytest.mark.parametrize("dense", [pytest.param(True, marks=pytest.mark.soak), False])
def test_pages_are_complete_and_newest_first(monkeypatch: pytest.MonkeyPatch, dense: bool) -> None:
    async def work(place: Place) -> None:
        made = await _filled(place.open())
        store = place.open()
        for few in (0, 10_000):
            monkeypatch.setattr(walk, "FEW", few)
            monkeypatch.setattr(walk, "DENSE", 0 if dense else 10_000)
            for size in (3, 100):
                assert await _pages(store, size) == sorted(made, reverse=True)
                for queue, status in (("a", "completed"), ("b.c", "canceled"), ("a", "queued")):
                    fitting = sorted((one for one, kind in made.items() if kind == (queue, status)), reverse=True)
                    assert await _pages(store, size, queue=queue, status=TaskStatus(status)) == fitting

    in_place(work)


def test_a_page_of_many_asks_for_few_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(walk, "FEW", 0)
    monkeypatch.setattr(walk, "DENSE", 0)

    async def work(place: Place) -> None:
        store = place.open()
        now = datetime.now(UTC)
        made = [_uuid7(now - timedelta(minutes=10 * n)) for n in range(60)]
        await store.submit([NewTask(id=one, name="t", payload="{}") for one in made])
        await store.amend(Change.CANCEL, made, actor="me")
        reader, names = ledger_of(store).reader, 0
        subjects = reader.subjects

        async def counted(pattern: str) -> list[str]:
            nonlocal names
            found = await subjects(pattern)
            names += len(found)
            return found

        monkeypatch.setattr(reader, "subjects", counted)
        page = await store.page(TaskFilter(limit=5))
        assert [task.id for task in page] == made[:5]
        assert names < 30

    in_place(work)
