"""Events that share a message on NATS: complete and in order however they are read, and gone with their tasks."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest

from holdfast import ids
from holdfast.errors import StoreUnavailable
from holdfast.model.claim import Claim
from holdfast.model.event import Event
from holdfast.model.outcome import Emitted, ErrorInfo, Failed, Released, Settlement
from holdfast.model.query import Retention
from holdfast.model.task import NewTask
from holdfast.model.transition import Change
from holdfast.stores.nats import history, sheets
from holdfast.stores.nats.images import Kept, born, decode_image, decode_sheet, image_of, sheets_of
from holdfast.stores.nats.reader import Found
from holdfast.stores.nats.replica import Replica
from holdfast.stores.nats.store import NatsStore
from holdfast.testing.virtual_clock import VirtualClock
from tests import jetstream_servers
from tests.jetstream_servers import Endpoint
from tests.stores.nats_support import (
    COMPLETED,
    Place,
    claimed,
    completed,
    found,
    in_place,
    ledger_of,
    put,
    settled,
    submitted,
)
from tests.stores.postgres_support import request

RAN = ["task.enqueued", "task.running", "task.completed"]
AGAIN = Failed(ErrorInfo("no"), retry_after_seconds=0.0)
SERVERS = pytest.mark.parametrize(
    "servers", [jetstream_servers.single, jetstream_servers.cluster], ids=["single", "cluster"]
)


async def every(store: NatsStore, task_id: str | None = None, *, limit: int = 10_000, after: int = 0) -> list[Event]:
    """Page by page."""
    seen: list[Event] = []
    while page := await store.events(task_id, after=seen[-1].id if seen else after, limit=limit):
        assert len(page) <= limit
        seen += page
    return seen


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.kind for event in events]


async def sheets_in(store: NatsStore) -> list[str]:
    return list(await found(store, ledger_of(store).subjects.sheets))


def named_by(store: NatsStore, task_id: str) -> tuple[int, ...]:
    record = ledger_of(store).replica.records[task_id]
    assert isinstance(record, Kept)
    return record.sheets


async def last(store: NatsStore) -> int:
    return await ledger_of(store).stream.last()


async def lives(store: NatsStore) -> dict[str, list[str]]:
    """By task: what was done to it. Batches, single ones, failures between, events of the handlers' own, a run."""
    made: dict[str, list[str]] = defaultdict(list)

    def note(task_ids: Sequence[str], *kinds: str) -> None:
        for task_id in task_ids:
            made[task_id] += [f"task.{kind}" for kind in kinds]

    plain, run = (
        await submitted(store, 30),
        [NewTask(id=task_id, name="t", payload="{}", run_id="a run", priority=-1) for task_id in ids.task_ids(10)],
    )
    await store.submit(run)
    note([*plain, *(new.id for new in run)], "enqueued")
    claims = await claimed(store, 40)
    note([claim.task_id for claim in claims], "running")
    await store.report(claims[0].lease, "task.progress", {"done": 1})
    note([claims[0].task_id], "progress")
    mixed = [Settlement(claim.lease, AGAIN if at % 5 == 4 else COMPLETED) for at, claim in enumerate(claims[:20])]
    await store.settle(mixed)
    note([one.lease.task_id for one in mixed if one.outcome is COMPLETED], "completed")
    note([one.lease.task_id for one in mixed if one.outcome is AGAIN], "failed", "requeued")
    await settled(store, claims[20:30], emitted=(Emitted("task.completed", {"text": "mine"}),))
    note([claim.task_id for claim in claims[20:30]], "completed", "completed")
    await settled(store, claims[30:])
    note([claim.task_id for claim in claims[30:]], "completed")
    for claim in await claimed(store, 4):
        await settled(store, [claim])
        note([claim.task_id], "running", "completed")
    alone = await completed(store, 2)
    note(alone, "enqueued", "running", "completed")
    return made


@pytest.mark.parametrize("limit", [1, 2, 7, 10_000])
def test_all_events_are_there_in_order_however_they_are_paged(limit: int) -> None:
    async def work(place: Place) -> None:
        store = place.open()
        made = await lives(store)
        assert len(await sheets_in(store)) > 5
        events = await every(place.open(), limit=limit)
        assert [event.id for event in events] == sorted({event.id for event in events})
        by_task = {task_id: [event for event in events if event.task_id == task_id] for task_id in made}
        assert {task_id: kinds(those) for task_id, those in by_task.items()} == made
        assert {event.run_id for event in events} == {None, "a run"}
        for task_id, those in by_task.items():
            assert await every(store, task_id, limit=limit) == those

    in_place(work)


def test_events_of_a_step_stand_in_the_order_in_which_they_came_about() -> None:
    """A child is ready after its parent has completed, also where other tasks end in the same step."""

    async def work(place: Place) -> None:
        store = place.open()
        parents = [NewTask(id=task_id, name="t", payload="{}", run_id="r") for task_id in ids.task_ids(3)]
        children = [
            NewTask(id=ids.task_id(), name="t", payload="{}", run_id="r", parents=(parent.id,)) for parent in parents
        ]
        await store.submit([*parents, *children])
        began = await store.last_event()
        claims = await claimed(store, 3)
        await store.settle([Settlement(claim.lease, AGAIN if claim is claims[1] else COMPLETED) for claim in claims])
        told = [(event.kind, event.task_id) for event in await every(store, after=began)]
        assert told == [
            *(("task.running", parent.id) for parent in parents),
            ("task.completed", parents[0].id),
            ("task.failed", parents[1].id),
            ("task.requeued", parents[1].id),
            ("task.completed", parents[2].id),
            ("task.ready", children[0].id),
            ("task.ready", children[2].id),
        ]

    in_place(work)


@SERVERS
def test_who_follows_sees_each_event_once_while_batches_are_written(servers: Callable[[], Endpoint]) -> None:
    async def work(place: Place) -> None:
        workers, reader = [place.open(), place.open()], place.open()
        over = asyncio.Event()
        made: list[str] = []

        async def busy(store: NatsStore) -> None:
            for count in (1, 5, 40, 130, 2):
                own = f"q{id(store)}"
                made.extend(await submitted(store, count, queue=own))
                claims = await claimed(store, count, queues=(own,))
                await settled(store, claims[: count // 2], AGAIN)
                await settled(store, claims[count // 2 :])
                await settled(store, await claimed(store, count // 2, queues=(own,)))

        async def follow(limit: int) -> list[Event]:
            seen: list[Event] = []
            while True:
                ended = over.is_set()
                page = await reader.events(None, after=seen[-1].id if seen else 0, limit=limit)
                seen += page
                if ended and not page:
                    return seen

        followers = [asyncio.create_task(follow(limit)) for limit in (3, 100)]
        await asyncio.gather(*map(busy, workers))
        over.set()
        whole = await every(reader)
        for seen in await asyncio.gather(*followers):
            assert seen == whole
        first = set(made)
        assert {event.task_id for event in whole} == first
        assert kinds(whole).count("task.completed") == len(made)

    in_place(work, servers)


def test_a_claim_of_many_takes_a_message_each_and_their_end_two() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        await store.reap(limit=1, actor="nobody")
        await submitted(store, 100)
        before = await last(store)
        claims = await claimed(store, 100)
        assert await last(store) - before <= 103
        before = await last(store)
        await settled(store, claims)
        assert await last(store) - before <= 204

    in_place(work)


# Tasks that are gone


def test_what_a_sheet_holds_of_deleted_tasks_is_shown_to_nobody() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        made = await submitted(store, 20)
        await settled(store, await claimed(store, 20))
        await store.amend(Change.DELETE, made[:15], actor="me")
        assert len(await sheets_in(store)) == 2
        for limit in (1, 2, 7, 100):
            events = await every(place.open(), limit=limit)
            assert {event.task_id for event in events if event.kind != "task.deleted"} == set(made[15:])
            assert kinds(events).count("task.deleted") == 15
        assert kinds(await every(store, made[0])) == ["task.deleted"]
        assert kinds(await every(store, made[19])) == RAN
        await store.amend(Change.DELETE, made[15:], actor="me")
        assert await sheets_in(store) == []
        assert set(kinds(await every(store))) == {"task.deleted"}

    in_place(work)


@SERVERS
def test_a_sheet_goes_with_the_last_of_its_tasks(servers: Callable[[], Endpoint]) -> None:
    async def work(place: Place) -> None:
        store = place.open()
        await submitted(store, 200)
        await settled(store, await claimed(store, 200))
        assert len(await sheets_in(store)) == 4, "they have their bounds"
        at_once = Retention(completed=timedelta())
        assert await place.open().prune(at_once, limit=150) == 150
        assert len(await sheets_in(store)) == 2
        assert await place.open().prune(at_once, limit=150) == 50
        assert await sheets_in(store) == []

    in_place(work, servers)


@pytest.mark.parametrize("limit", [1, 3])
def test_a_page_of_nothing_but_gone_tasks_is_not_the_end(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    async def work(place: Place) -> None:
        monkeypatch.setattr(history, "READ_FIRST", 1)
        store = place.open()
        made = await submitted(store, 12)
        for _ in range(3):
            await settled(store, await claimed(store, 4))
        stay = {made[0], made[4], made[11]}
        whole = [event for event in await every(store) if event.task_id in stay]
        await store.amend(Change.DELETE, [task_id for task_id in made if task_id not in stay], actor="me")
        assert len(await sheets_in(store)) == 6
        shown = [event for event in await every(store, limit=limit) if event.kind != "task.deleted"]
        assert shown == whole

    in_place(work)


def test_an_id_that_is_submitted_again_does_not_show_what_became_of_the_first() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        made = await submitted(store, 3)
        await settled(store, await claimed(store, 3))
        await store.amend(Change.DELETE, made[:1], actor="me")
        other = place.open()
        await other.submit([NewTask(id=made[0], name="t", payload="{}")])
        for reader in (store, other):
            assert kinds(await every(reader, made[0])) == ["task.deleted", "task.enqueued"]
            told = [event.kind for event in await every(reader) if event.task_id == made[0]]
            assert told == ["task.deleted", "task.enqueued"]
        (again,) = await submitted(store)
        await settled(other, await claimed(other, 2))
        assert kinds(await every(store, made[0])) == ["task.deleted", *RAN]
        await store.amend(Change.DELETE, made[1:], actor="me")
        assert len(await sheets_in(store)) == 2, "those of the second life"
        assert kinds(await every(store, again)) == RAN

    in_place(work)


# Bounds


def test_a_task_of_many_attempts_is_on_few_sheets_and_has_all_its_events() -> None:
    async def work(place: Place) -> None:
        stores = [place.open(), place.open()]
        made = await submitted(stores[0], 3)
        attempts = sheets.PER_TASK + 4
        for attempt in range(attempts):
            store = stores[attempt % 2]
            await settled(store, await claimed(store, 3), Released())
        await settled(stores[0], await claimed(stores[0], 3))
        expected = ["task.enqueued", *(["task.running", "task.released"] * attempts), "task.running", "task.completed"]
        for task_id in made:
            assert kinds(await every(stores[1], task_id)) == expected
            (home,) = (await ledger_of(store).homes([task_id])).values()
            assert len(sheets_of(decode_image(home.body), home.seq)) == sheets.PER_TASK
        assert len(await sheets_in(store)) == sheets.PER_TASK
        assert kinds(await every(stores[0])).count("task.running") == 3 * (attempts + 1)
        await stores[1].amend(Change.DELETE, made, actor="me")
        assert await sheets_in(store) == []

    in_place(work)


def test_changes_that_are_under_way_at_once_have_sheets_of_their_own() -> None:
    async def work(place: Place) -> None:
        store, other = place.open(), place.open()
        await store.reap(limit=1, actor="nobody")
        made = await submitted(store, 60)

        async def life() -> None:
            await settled(store, await claimed(store, 10), Released())
            await settled(store, await claimed(store, 10))

        await asyncio.gather(*(life() for _ in range(6)))
        whole = await every(other)
        for task_id in made:
            task = await other.get(task_id)
            assert task is not None
            told = await every(other, task_id)
            again = ["task.running", "task.released"] * (task.attempt - 1)
            assert kinds(told) == ["task.enqueued", *again, "task.running", "task.completed"]
            assert told == [event for event in whole if event.task_id == task_id]

    in_place(work)


def test_all_who_follow_know_the_same_sheets() -> None:
    async def work(place: Place) -> None:
        stores = [place.open() for _ in range(3)]
        made = await submitted(stores[0], 5)
        for store in stores[:2]:
            await settled(store, await claimed(store, 5), Released())
        claims = await claimed(stores[0], 5)
        await ledger_of(stores[1]).fresh()
        await ledger_of(stores[2]).fresh()
        named = [[named_by(store, task_id) for task_id in made] for store in stores]
        assert named[0] == named[1] == named[2]
        assert {len(one) for one in named[0]} == {3}
        await settled(stores[2], claims)
        assert kinds(await every(stores[0], made[0]))[-2:] == ["task.running", "task.completed"]

    in_place(work)


@pytest.mark.parametrize("per_task", [0, sheets.PER_TASK])
def test_as_many_as_can_be_asked_for_are_never_too_many_for_a_step(
    monkeypatch: pytest.MonkeyPatch, per_task: int
) -> None:
    """Also where every event needs a message of its own, and every end leaves something to be done."""

    async def work(place: Place) -> None:
        monkeypatch.setattr(sheets, "PER_TASK", per_task)
        store = place.open()
        count = 1100
        parents = [NewTask(id=one, name="t", payload="{}", run_id="r") for one in ids.task_ids(count)]
        children = [
            NewTask(id=one, name="t", payload="{}", run_id="r", parents=(parent.id,))
            for one, parent in zip(ids.task_ids(count), parents, strict=True)
        ]
        await store.submit([*parents, *children])
        claims: list[Claim] = []
        while more := (await store.claim(request(limit=count))).claims:
            claims += more
        await settled(store, claims)
        while await store.advance(limit=1000, actor="me"):
            pass
        assert (await store.run("r")).counts == {"completed": count, "queued": count}  # type: ignore[union-attr]

    in_place(work)


# What may stand on a sheet


def test_nothing_that_a_user_wrote_stands_on_a_sheet() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        await lives(store)
        for one in (await found(store, ledger_of(store).subjects.sheets)).values():
            facts = decode_sheet(one.body)
            assert 2 <= len(facts) <= sheets.FACTS_MOST
            assert {fact.run_id for fact in facts} == {None}
            assert not [fact for fact in facts if "mine" in fact.data]

    in_place(work)


# Races


def test_an_event_of_its_own_is_not_shown_before_the_one_on_a_sheet_that_was_written_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1. A reader looks for the task's sheets: there is none. 2. The task is claimed, with another, and reports.
    3. The reader looks for its own events.
    """

    async def work(place: Place) -> None:
        store, reader = place.open(), place.open()
        made = await submitted(store, 2)
        await every(reader)
        ledger, looked = ledger_of(reader), asyncio.Event()
        homes, after = ledger.members.homes, ledger.reader.after

        async def first(task_ids: Sequence[str]) -> dict[str, Found]:
            answer = await homes(task_ids)
            claims = await claimed(store, 2)
            await store.report(claims[0].lease, "task.progress", {})
            looked.set()
            return answer

        async def then(subject: str, seq: int, *, limit: int) -> list[Found]:
            await looked.wait()
            return await after(subject, seq, limit=limit)

        with monkeypatch.context() as patch:
            patch.setattr(ledger.members, "homes", first)
            patch.setattr(ledger.reader, "after", then)
            page = await reader.events(made[0], after=0, limit=10)
        rest = await every(reader, made[0], after=page[-1].id)
        assert kinds([*page, *rest]) == ["task.enqueued", "task.running", "task.progress"]

    in_place(work)


@pytest.mark.parametrize("feed_first", [False, True])
def test_a_sheet_is_named_once_whoever_tells_of_it_first(feed_first: bool) -> None:
    replica = Replica(VirtualClock())
    waiting = born(NewTask(id="a", name="t", payload="{}"), 0, 0)
    replica.place("a", image_of(waiting), 5)
    record = replica.records["a"]
    assert isinstance(record, Kept)
    changes = replica.begin_change()
    replica.touch(record)
    written = image_of(record, sheet=3)
    if feed_first:
        replica.place("a", written, 10)
    replica.commit(changes, {"a": 10}, {}, {"a": 7})
    replica.place("a", written, 10)
    assert record.sheets == (7,)
    replica.place("a", image_of(record), 20)
    assert record.sheets == (7,)


def test_a_sheet_that_cannot_be_read_hides_nothing_without_a_word() -> None:
    async def work(place: Place) -> None:
        store = place.open()
        await submitted(store, 2)
        await claimed(store, 2)
        subject = ledger_of(store).subjects.sheet("strange", 0)
        seq = await put(store, subject, b"\xc1")
        for verb in (lambda: every(store), place.open().repair):
            with pytest.raises(StoreUnavailable, match=f"message {seq} under .*sheet.* cannot be read"):
                await verb()

    in_place(work)


def test_a_handler_emits_what_looks_like_a_beginning() -> None:
    """Between ends of others, so that it could stand on one sheet, and the end of its task on another."""

    async def work(place: Place) -> None:
        store = place.open()
        await submitted(store, 3)
        first, second, third = await claimed(store, 3)
        emitted = (Emitted("task.running", {"attempt": 1}), Emitted("custom", {}))
        told = [Settlement(first.lease, COMPLETED), Settlement(second.lease, COMPLETED, emitted=emitted)]
        for answer in await store.settle([*told, Settlement(third.lease, COMPLETED)]):
            assert not isinstance(answer, Exception), answer
        said = kinds(await every(store, second.lease.task_id))
        assert said == ["task.enqueued", "task.running", "task.running", "custom", "task.completed"]

    in_place(work)


def test_tasks_that_have_failed_often_and_say_much_are_claimed_in_parts() -> None:
    """Their events have messages of their own, and few of their images share a bulletin."""

    async def work(place: Place) -> None:
        store = place.open()
        made = await submitted(store, 450, max_attempts=0)
        for attempt in range(sheets.PER_TASK + 1):
            stack = "\N{KANGXI RADICAL SUN}" * 16_000 if attempt == sheets.PER_TASK else None
            again = Failed(ErrorInfo("no", stack=stack), retry_after_seconds=0.0)
            await settled(store, await claimed(store, 450), again)
        taken = await store.claim(request(limit=450))
        assert taken.more
        rest = await store.claim(request(limit=450))
        claims = [*taken.claims, *rest.claims]
        assert sorted(claim.lease.task_id for claim in claims) == sorted(made)
        for answer in await store.extend([claim.lease for claim in claims]):
            assert not isinstance(answer, Exception), answer

    in_place(work)
