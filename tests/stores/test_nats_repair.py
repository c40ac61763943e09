"""`repair()` of the NATS store: every index damaged by hand, and made what the tasks say; nothing alive is touched."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from holdfast import ids
from holdfast.model.query import TaskFilter
from holdfast.model.repair import Repair
from holdfast.model.task import NewTask
from holdfast.model.transition import Change
from holdfast.stores.nats import packs
from holdfast.stores.nats.feed import Feed
from holdfast.stores.nats.images import Fact, encode
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.nats.subjects import Subjects
from tests.stores.nats_support import (
    Place,
    claimed,
    completed,
    counts,
    end,
    found,
    in_place,
    ledger_of,
    put,
    settled,
    submitted,
    until,
)

Damage = Callable[[NatsStore, Subjects, list[str]], Awaitable[Any]]


async def _tally_lost(store: NatsStore, subjects: Subjects, _: list[str]) -> None:
    await ledger_of(store).reader.purge(subjects.tallies)


async def _tally_wrong(store: NatsStore, subjects: Subjects, _: list[str]) -> None:
    await put(store, subjects.tally("somebody"), encode({"default": {"completed": 7, "failed": -2}, "no": {"x": 1}}))


async def _queue_lost(store: NatsStore, subjects: Subjects, _: list[str]) -> None:
    await ledger_of(store).reader.purge(subjects.queue("default"))


async def _home_lost(store: NatsStore, subjects: Subjects, done: list[str]) -> None:
    """As after a delete that was stopped before it swept; here the tally is wrong too."""
    await ledger_of(store).reader.purge(subjects.end_anywhere(done[0]))


async def _step_left(store: NatsStore, subjects: Subjects, _: list[str]) -> None:
    await put(store, subjects.step(ids.task_id(), "a step"), b"x")


async def _sheet_left(store: NatsStore, subjects: Subjects, _: list[str]) -> None:
    facts = [Fact(one, 0, None, "task.running", "w", "{}") for one in (ids.task_id(), ids.task_id())]
    await put(store, subjects.sheet("nobody", 0), encode(facts))


async def _key_left(store: NatsStore, subjects: Subjects, _: list[str]) -> None:
    await put(store, subjects.idem("a key of nobody"), ids.task_id().encode())


async def _part_left(store: NatsStore, subjects: Subjects, _: list[str]) -> None:
    await put(store, subjects.packed(ids.task_id(), 0), b"x")


async def _heads_lost(store: NatsStore, subjects: Subjects, _: list[str]) -> None:
    await ledger_of(store).reader.purge(subjects.head("*"))


async def _list_left(store: NatsStore, subjects: Subjects, _: list[str]) -> None:
    await put(store, subjects.born_together("a run", "first", "1"), encode([ids.task_id(), ids.task_id()]))


async def _list_lost(store: NatsStore, subjects: Subjects, _: list[str]) -> None:
    await ledger_of(store).reader.purge(subjects.members("the run"))


DAMAGES: dict[str, tuple[Damage, set[str]]] = {
    "tally lost": (_tally_lost, {"tally"}),
    "tally wrong": (_tally_wrong, {"tally"}),
    "queue lost": (_queue_lost, {"queues"}),
    "home lost": (_home_lost, {"tally", "events", "keys"}),
    "step left": (_step_left, {"steps"}),
    "sheet left": (_sheet_left, {"sheets"}),
    "key left": (_key_left, {"keys"}),
    "heads lost": (_heads_lost, {"heads"}),
    "list left": (_list_left, {"lists"}),
    "list lost": (_list_lost, {"runs"}),
    "part left": (_part_left, {"packs"}),
}


async def _lives(store: NatsStore) -> tuple[list[str], list[str]]:
    """Ended and live ones, with keys and odd names."""
    done = await completed(store, 2, queue="default")
    keyed = NewTask(id=ids.task_id(), name="t", payload="{}", idempotency_key="a key", run_id="the run")
    odd = NewTask(id="odd.id *", name="t", payload="{}", idempotency_key="other", queue="odd . queue")
    ended = NewTask(id=ids.task_id(), name="t", payload="{}", idempotency_key="third", run_id="the run")
    await store.submit([keyed, odd, ended])
    await end(store, [ended.id])
    return [ended.id, *done], [keyed.id, odd.id]


async def _everything(store: NatsStore, subjects: Subjects) -> dict[str, bytes]:
    """But for what says nothing of tasks."""
    there = await found(store, subjects.all)
    beside = (subjects.tally(""), subjects.mark(""))
    return {name: one.body for name, one in there.items() if not name.startswith(beside)}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_was_damaged_is_repaired(damage: str) -> None:
    async def work(place: Place) -> None:
        store = place.open()
        subjects = ledger_of(store).subjects
        done, live = await _lives(store)
        act, expected = DAMAGES[damage]
        if damage == "home lost":
            tasks = [await store.get(one) for one in (*done[1:], *live)]
        else:
            tasks = [await store.get(one) for one in (*done, *live)]
        whole = await _everything(store, subjects)
        await act(store, subjects, done)
        hurt = await _everything(store, subjects)
        other = place.open()
        told = await other.repair(dry_run=True)
        assert {one.what for one in told} == expected
        assert await _everything(other, subjects) == hurt, "a dry run changes nothing"
        assert await other.repair() == told
        assert await place.open().repair() == [], "once is enough"
        left = {"default": {"completed": 3 - (damage == "home lost"), "queued": 1}, "odd . queue": {"queued": 1}}
        for reader in (other, place.open()):
            assert await counts(reader) == left
        assert [await place.open().get(task.id) for task in tasks if task is not None] == tasks
        if damage not in ("home lost", "list lost"):
            assert await _everything(other, subjects) == whole
        members = [task.id for task in await other.page(TaskFilter(run_id="the run"))]
        assert sorted(members) == sorted({done[0], live[0]} - ({done[0]} if damage == "home lost" else set()))

    in_place(work)


def test_a_healthy_store_has_nothing_to_repair() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        assert await store.repair() == []
        done, live = await _lives(store)
        await store.amend(Change.DELETE, done[:1], actor="me")
        await store.amend(Change.REQUEUE, done[1:2], actor="me")
        assert await place.open().repair() == []
        await end(place.open(), live)
        assert await store.repair() == []

    in_place(work)


def test_those_who_work_see_what_was_repaired() -> None:
    """Also what was removed without a word, of which no message tells them."""

    async def work(place: Place) -> None:
        store, watcher = place.open(), place.open()
        await completed(store, 3)
        assert await counts(watcher) == {"default": {"completed": 3}}
        await ledger_of(store).reader.purge(ledger_of(store).subjects.tallies)
        await place.open().repair()

        async def seen() -> bool:
            return await counts(watcher) == await counts(store) == {"default": {"completed": 3}}

        await until(seen)
        await completed(store)
        assert await counts(place.open()) == {"default": {"completed": 4}}

    in_place(work)


def test_the_count_is_exact_while_others_end_tasks_and_delete_them() -> None:
    async def work(place: Place) -> None:
        workers = [place.open() for _ in range(2)]
        subjects = ledger_of(workers[0]).subjects
        await completed(workers[0], 20)
        await put(workers[0], subjects.tally("somebody"), encode({"default": {"completed": 100}}))
        over = asyncio.Event()

        async def busy(store: NatsStore) -> int:
            rounds = 0
            while not over.is_set():
                made, other = await completed(store, 2), await submitted(store, 3)
                await store.amend(Change.DELETE, made[:1], actor="me")
                for change in (Change.CANCEL, Change.REQUEUE, Change.CANCEL):
                    await store.amend(change, other, actor="me")
                rounds += 1
            return rounds

        running = [asyncio.create_task(busy(store)) for store in workers]
        repairs = await asyncio.gather(place.open().repair(), place.open().repair())
        over.set()
        rounds = sum(await asyncio.gather(*running))
        tallied = [one for told in repairs for one in told if one.what == "tally"]
        assert [one.number for one in tallied] == [100], "by one of the two"
        assert await counts(place.open()) == {"default": {"completed": 20 + rounds, "canceled": 3 * rounds}}
        assert await place.open().repair() == []

    in_place(work)


def test_a_large_submit_that_is_not_unpacked_yet_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def stopped(*_: object) -> None:
        raise RuntimeError

    async def work(place: Place) -> None:
        monkeypatch.setattr(packs.Packs, "finish", stopped)
        tasks = [
            NewTask(id=one, name="t", payload="{}", idempotency_key=one if number < 5 else None)
            for number, one in enumerate(ids.task_ids(600))
        ]
        with pytest.raises(RuntimeError):
            await place.open().submit(tasks)
        assert await place.open().repair() == []
        monkeypatch.undo()
        store = place.open()
        await ledger_of(store).ready()
        await ledger_of(store).packs.finish(tasks[0].id)
        assert await counts(place.open()) == {"default": {"queued": 600}}
        assert (await store.find(tasks[0].id)) is not None

    in_place(work)


def test_a_task_that_is_submitted_again_while_its_remains_are_removed_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(place: Place) -> None:
        store, repairer = place.open(), place.open()
        ledger = ledger_of(repairer)
        (task_id,) = await completed(store)
        await ledger_of(store).reader.purge(ledger_of(store).subjects.end_anywhere(task_id))
        purge = ledger.reader.purge

        async def late(subject: str, *, upto: int | None = None) -> None:
            await store.submit([NewTask(id=task_id, name="t", payload='"again"')])
            await purge(subject, upto=upto)

        monkeypatch.setattr(ledger.reader, "purge", late)
        told = await repairer.repair()
        assert Repair("events", 1, "events and payloads of 1 task that is gone") in told
        task = await place.open().get(task_id)
        assert task is not None
        assert task.payload == "again"

    in_place(work)


def test_a_key_that_is_taken_again_meanwhile_is_not_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(place: Place) -> None:
        store, repairer = place.open(), place.open()
        ledger = ledger_of(repairer)
        subjects = ledger.subjects
        await submitted(store, 1)
        await put(store, subjects.idem("taken"), ids.task_id().encode())
        await put(store, subjects.idem("free"), ids.task_id().encode())
        homes = ledger.members.homes
        (holder,) = await submitted(store)

        async def late(task_ids: list[str]) -> Any:
            answer = await homes(task_ids)
            await put(store, subjects.idem("taken"), holder.encode())
            return answer

        monkeypatch.setattr(ledger.members, "homes", late)
        await repairer.repair()
        assert set(await found(store, subjects.keys)) == {subjects.idem("taken")}

    in_place(work)


def test_a_task_that_is_submitted_again_while_a_delete_sweeps_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(place: Place) -> None:
        store, deleter = place.open(), place.open()
        reader = ledger_of(deleter).reader
        (task_id,) = await completed(store)
        purge = reader.purge

        async def late(subject: str, *, upto: int | None = None) -> None:
            await store.submit([NewTask(id=task_id, name="t", payload='"again"')])
            await purge(subject, upto=upto)

        monkeypatch.setattr(reader, "purge", late)
        await deleter.amend(Change.DELETE, [task_id], actor="me")
        task = await place.open().get(task_id)
        assert task is not None
        assert task.payload == "again"

    in_place(work)


def test_who_is_slow_does_not_correct_what_another_has_corrected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the other's correction is seen before one's own is written."""

    async def work(place: Place) -> None:
        store, slow, quick = place.open(), place.open(), place.open()
        await completed(store, 2)
        await put(store, ledger_of(store).subjects.tally("somebody"), encode({"default": {"completed": 100}}))
        close, meanwhile = Feed.close, [quick]

        async def late(feed: Feed) -> None:
            if meanwhile:
                assert await meanwhile.pop().repair() != []
                await feed.reached(await ledger_of(store).stream.last(), 0.5)
            await close(feed)

        monkeypatch.setattr(Feed, "close", late)
        assert await slow.repair() == []
        monkeypatch.undo()
        assert await counts(place.open()) == {"default": {"completed": 2}}

    in_place(work)


@pytest.mark.parametrize("again", [False, True])
def test_a_sheet_whose_tasks_are_gone_is_found_and_no_other(monkeypatch: pytest.MonkeyPatch, again: bool) -> None:
    """1. Two sheets. 2. All tasks of one are deleted, one of the other; who deletes is stopped before it sweeps.
    3. `again`: one of them is submitted once more, and is another task.
    """

    async def stopped(*_: object) -> None:
        """Whoever was to sweep has died."""

    async def work(place: Place) -> None:
        store = place.open()
        subjects = ledger_of(store).subjects
        first, second = await submitted(store, 3), await submitted(store, 3)
        one, other = await claimed(store, 3), await claimed(store, 3)
        await settled(store, [*one, *other])
        assert len(await found(store, subjects.sheets)) == 3
        monkeypatch.setattr(store, "_sweep", stopped)
        await store.amend(Change.DELETE, [*first, second[0]], actor="me")
        if again:
            await place.open().submit([NewTask(id=first[1], name="t", payload="{}")])
        repairer = place.open()
        told = await repairer.repair(dry_run=True)
        assert {one.what: one.number for one in told} == {"events": 3 if again else 4, "sheets": 1}
        assert await repairer.repair() == told
        assert await place.open().repair() == []
        assert len(await found(store, subjects.sheets)) == 2
        for task_id in second[1:]:
            kinds = [event.kind for event in await store.events(task_id, after=0, limit=10)]
            assert kinds == ["task.enqueued", "task.running", "task.completed"]

    in_place(work)
