"""Section 13 of the contract: outputs come with their completion or not at all, versions stay, inputs are pinned."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec

from holdfast import ids
from holdfast.errors import DatasetNotFound, InvalidTask, LeaseLost
from holdfast.model.claim import Claim, Lease
from holdfast.model.outcome import (
    Canceled,
    Completed,
    Emitted,
    ErrorInfo,
    Failed,
    Outcome,
    Recorded,
    Released,
    Settlement,
    Snoozed,
)
from holdfast.model.output import DatasetVersion, Mode, Output, OutputRow, Pin
from holdfast.model.query import Retention
from holdfast.model.schedule import NewSchedule, Timing
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Change, Settled
from holdfast.testing.conformance.checks import accepted, equal, identical, present, refused, that
from holdfast.testing.conformance.joined import transaction
from holdfast.testing.conformance.payloads import EXACT
from holdfast.testing.conformance.queues import ODD_NAMES
from holdfast.testing.conformance.registry import Proof
from holdfast.testing.conformance.registry import case as plain_case
from holdfast.testing.conformance.subject import EVERYTHING, Subject, guessed, new_task
from holdfast.testing.conformance.workflows import DEAD, drawn, end, submit, with_fields

ORDERS = "orders"
A_DAY = timedelta(days=1)
ONLY_VERSIONS = Retention(completed=None, canceled=None, failed=None, outputs=A_DAY)
KEYS = ("0", "A", "Z", "a", "a b", "ab", "z", "~", "é", "ı", "ﬀ", "\uffff", "😀", "𝄞x")
"""In no language's order, and unlike their UTF-16 order too."""


def case(*clauses: str, needs: tuple[str, ...] = ()) -> Callable[[Proof], Proof]:
    return plain_case(*clauses, needs=("outputs", *needs))


# Outputs in few words


def given(values: Mapping[str, Any], mode: Mode, dataset: str) -> Output:
    texts = {key: msgspec.json.encode(value).decode() for key, value in values.items()}
    return Output(dataset, mode, tuple(OutputRow(key, text) for key, text in texts.items()))


def appended(dataset: str = ORDERS, /, **values: Any) -> Output:
    return given(values, Mode.APPEND, dataset)


def replaced(dataset: str = ORDERS, /, **values: Any) -> Output:
    return given(values, Mode.REPLACE, dataset)


async def write(subject: Subject, *outputs: Output, **fields: Any) -> str:
    """A new task that completes with these; its id."""
    task_id = await subject.submit(**fields)
    await complete(subject, task_id, *outputs)
    return task_id


async def complete(subject: Subject, task_id: str, *outputs: Output) -> None:
    await subject.settle((await subject.claim(task_id)).lease, Completed(), outputs=outputs)


async def read(subject: Subject, version: int, dataset: str = ORDERS) -> dict[str, Any]:
    found = await subject.store.dataset_rows(dataset, version, after=None, limit=EVERYTHING)
    return {row.key: msgspec.json.decode(row.value) for row in found}


async def versions(subject: Subject, dataset: str = ORDERS) -> list[DatasetVersion]:
    """Oldest first."""
    return (await subject.store.dataset_versions(dataset, limit=EVERYTHING, before=None))[::-1]


async def numbers(subject: Subject, dataset: str = ORDERS) -> list[int]:
    return [one.version for one in await versions(subject, dataset)]


async def everything(subject: Subject) -> dict[tuple[str, int], tuple[DatasetVersion, dict[str, Any]]]:
    found = await subject.store.datasets(limit=EVERYTHING, after=None)
    names = [info.latest.dataset for info in found]
    return {
        (name, one.version): (one, await read(subject, one.version, name))
        for name in names
        for one in await versions(subject, name)
    }


@asynccontextmanager
async def nothing_written(subject: Subject) -> AsyncIterator[None]:
    before = await everything(subject)
    yield
    equal(await everything(subject), before, "no dataset, no version and no row changes")


def pinned_to(**pins: int | None) -> tuple[Pin, ...]:
    return tuple(Pin(dataset, version) for dataset, version in sorted(pins.items()))


# What a completion writes


@case("C13.1", "C13.2", "C7.1")
async def a_completion_writes_its_outputs(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    subject.clock.advance(5)
    outputs = (replaced("lines", a=1), appended(k1={"total": 3}, k2=None))
    equal((await subject.settle(lease, Completed(), outputs=outputs)).status, TaskStatus.COMPLETED, "it is completed")
    equal(await read(subject, 1), {"k1": {"total": 3}, "k2": None}, "the rows of one")
    equal(await read(subject, 1, "lines"), {"a": 1}, "and of the other")
    orders = present(await subject.store.dataset_version(ORDERS, 1), "the version")
    lines = present(await subject.store.dataset_version("lines", 1), "the other's version")
    expected = DatasetVersion(
        dataset=ORDERS,
        dataset_uuid=orders.dataset_uuid,
        version=1,
        mode=Mode.APPEND,
        rows=2,
        added=2,
        task_id=lease.task_id,
        created_at=subject.clock.now(),
    )
    equal(orders, expected, "the version, as people read it")
    that(bool(orders.dataset_uuid) and orders.dataset_uuid != lines.dataset_uuid, "each dataset has an id of its own")


@case("C13.2")
async def an_append_adds_what_is_new_and_keeps_the_first_value(subject: Subject) -> None:
    await write(subject, appended(a=1, b=2))
    second = await write(subject, appended(b=20, c=3))
    await write(subject, appended(c=30, a=10))
    equal(await read(subject, 2), {"a": 1, "b": 2, "c": 3}, "the one before and what is new")
    equal(await read(subject, 3), await read(subject, 2), "a repetition adds nothing")
    equal([(one.rows, one.added) for one in await versions(subject)], [(2, 2), (3, 1), (3, 0)], "counted so")
    uuids = {one.dataset_uuid for one in await versions(subject)}
    equal(len(uuids), 1, "all versions of one dataset")
    equal((await versions(subject))[1].task_id, second, "each says who wrote it")


@case("C13.2")
async def a_replace_is_exactly_its_rows(subject: Subject) -> None:
    await write(subject, appended(a=1, b=2))
    await write(subject, replaced(b=20, c=30))
    await write(subject, appended(a=100, b=200))
    await write(subject, replaced(a=1))
    rows = [await read(subject, number) for number in (1, 2, 3, 4)]
    expected = [{"a": 1, "b": 2}, {"b": 20, "c": 30}, {"a": 100, "b": 20, "c": 30}, {"a": 1}]
    equal(rows, expected, "what came before it is not in it, and what follows builds on it")
    equal([(one.rows, one.added) for one in await versions(subject)], [(2, 2), (2, 2), (3, 1), (1, 1)], "counted so")


@case("C13.2")
async def versions_never_change(subject: Subject) -> None:
    seen: dict[int, dict[str, Any]] = {}
    for number, mode in enumerate([Mode.APPEND] * 3 + [Mode.REPLACE] + [Mode.APPEND] * 3 + [Mode.REPLACE] * 2, 1):
        await write(subject, given({f"k{number % 4}": number, f"k{number}": number}, mode, ORDERS))
        seen[number] = await read(subject, number)
        shown = {one: await read(subject, one) for one in seen}
        equal(shown, seen, "all that were written before are as they were")
    equal(await numbers(subject), list(seen), "numbered one by one")


@case("C13.2")
async def a_version_may_be_empty(subject: Subject) -> None:
    await write(subject, appended())
    await write(subject, appended(a=1))
    await write(subject, replaced())
    await write(subject, appended())
    equal([await read(subject, number) for number in (1, 2, 3, 4)], [{}, {"a": 1}, {}, {}], "as given")
    equal([one.rows for one in await versions(subject)], [0, 1, 0, 0], "every commit makes a version")


@case("C13.1")
async def a_completion_without_outputs_makes_no_version(subject: Subject) -> None:
    await write(subject)
    equal(await subject.store.datasets(limit=10, after=None), [], "there is no dataset")


@case("C13.2", "C2")
async def values_come_back_exactly(subject: Subject) -> None:
    values = {f"{number:03}": value for number, value in enumerate(EXACT.values())}
    await write(subject, given(values, Mode.APPEND, ORDERS))
    that(identical(await read(subject, 1), values), "also NUL characters, −0.0 and integers of any size")
    await write(subject, given({"000": "other"}, Mode.REPLACE, ORDERS))
    that(identical(await read(subject, 1), values), "and stay so")


@case("C13.2")
async def names_and_keys_are_only_text(subject: Subject) -> None:
    for name in ODD_NAMES:
        await write(subject, given(dict.fromkeys(ODD_NAMES, name), Mode.APPEND, name))
    found = [info.latest.dataset for info in await subject.store.datasets(limit=EVERYTHING, after=None)]
    equal(found, sorted(ODD_NAMES), "by name, exactly as given")
    for name in ODD_NAMES:
        equal(await read(subject, 1, name), dict.fromkeys(ODD_NAMES, name), "each its own rows")


# All or nothing


@case("C13.1", "C7")
async def a_repeated_completion_writes_nothing_more(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    first = await subject.settle(lease, Completed(), outputs=(appended(a=1),))
    async with nothing_written(subject):
        equal(await subject.settle(lease, Completed(), outputs=(appended(a=1),)), first, "the first answer again")
        await subject.settle(lease, Completed(), outputs=(replaced(b=2), appended("other", b=2)))


@case("C13.1", "C6.3", "C7")
async def a_stale_completion_writes_nothing(subject: Subject) -> None:
    """1. A worker claims and pauses. 2. Its lease runs out. 3. It comes back and completes, at every stage after."""
    task_id = await subject.submit()
    lease = (await subject.claim(task_id)).lease

    async def refused_with_outputs(stale: Lease) -> None:
        async with nothing_written(subject):
            await subject.refuses(subject.settle(stale, Completed(), outputs=(appended(a=1),)), LeaseLost)

    await refused_with_outputs(guessed(lease))
    await refused_with_outputs(Lease(task_id, lease.attempt + 1, lease.token))
    await subject.expire(task_id)
    await refused_with_outputs(lease)
    await subject.reap()
    await refused_with_outputs(lease)
    again = (await subject.claim(task_id)).lease
    await refused_with_outputs(lease)
    await subject.settle(again, Completed(), outputs=(appended(a=2),))
    await refused_with_outputs(lease)
    equal(await read(subject, 1), {"a": 2}, "only the attempt that holds the lease has written")


@case("C13.1")
async def only_a_completion_writes(subject: Subject) -> None:
    outcomes: tuple[Outcome, ...] = (
        Failed(ErrorInfo("it broke"), retry_after_seconds=0.0),
        Snoozed(0.0),
        Released(),
        Recorded(),
        Canceled(),
        DEAD,
    )
    async with nothing_written(subject):
        for outcome in outcomes:
            lease = (await subject.claim(await subject.submit())).lease
            await subject.settle(lease, outcome, outputs=(appended(a=1),))
            await subject.settle(lease, outcome, outputs=(appended(a=1),))
        await subject.claim_many()


@case("C13.1", "C8.2")
async def a_completion_after_a_cancel_request_writes_and_a_release_does_not(subject: Subject) -> None:
    for outcome, written in ((Released(), 0), (Completed(), 1)):
        lease = (await subject.claim(await subject.submit())).lease
        await subject.amend(Change.CANCEL, lease.task_id)
        await subject.settle(lease, outcome, outputs=(appended(a=1),))
        equal(len(await versions(subject)), written, "what was done counts, what was not does not")


@case("C13.1", "C7.1", "C4.2")
async def outputs_events_and_follow_ups_come_together_or_not_at_all(subject: Subject) -> None:
    await subject.submit(idempotency_key="k", name="taken")
    task_id = await subject.submit()
    lease = (await subject.claim(task_id)).lease
    emitted = (Emitted("invoice.sent", {"no": 7}),)
    clash = new_task(idempotency_key="k", name="another")
    lost = new_task(inputs=pinned_to(orders=7))
    for bad, error in ((clash, "IdempotencyConflict"), (lost, "DatasetNotFound")):
        async with subject.unchanged(), nothing_written(subject):
            answers = await subject.store.settle(
                [Settlement(lease, Completed(), emitted, (new_task(), bad), (appended(a=1),))]
            )
            equal([type(answer).__name__ for answer in answers], [error], "refused as a whole")
    follow_up = new_task()
    await subject.settle(lease, Completed(), emitted=emitted, follow_ups=(follow_up,), outputs=(appended(a=1),))
    equal(await read(subject, 1), {"a": 1}, "the outputs")
    equal((await subject.get(follow_up.id)).status, TaskStatus.QUEUED, "the follow-up")
    equal((await subject.kinds(task_id))[-2:], ["invoice.sent", "task.completed"], "the events")


@case("C13.1")
async def each_settlement_of_a_batch_writes_for_itself(subject: Subject) -> None:
    leases = [(await subject.claim(await subject.submit())).lease for _ in range(4)]
    leases[1] = guessed(leases[1])
    batch = [
        Settlement(lease, Completed(), (), (), (appended(**{f"k{number}": number, "all": number}),))
        for number, lease in enumerate(leases)
    ]
    answers = await subject.store.settle(batch)
    equal([isinstance(answer, Settled) for answer in answers], [True, False, True, True], "one is stale")
    equal(await numbers(subject), [1, 2, 3], "the others make a version each")
    latest = await read(subject, 3)
    equal({key: latest[key] for key in latest if key != "all"}, {"k0": 0, "k2": 2, "k3": 3}, "with all their rows")
    first = (await versions(subject))[0].task_id
    equal(leases[latest["all"]].task_id, first, "of a key that all give, the first version's value is kept")


@case("C13.1", "C7.6", needs=("joined_transactions",))
async def outputs_come_and_go_with_the_handlers_transaction(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    settlement = Settlement(lease, Completed(), (), (), (appended(a=1), replaced("other", b=2)))
    async with nothing_written(subject), transaction(subject, commit=False) as joined:
        await joined.acomplete(settlement)
    async with transaction(subject, commit=True) as joined:
        await joined.acomplete(settlement)
        equal(await subject.store.dataset_version(ORDERS, None), None, "nobody sees it before the commit")
    equal((await read(subject, 1), await read(subject, 1, "other")), ({"a": 1}, {"b": 2}), "both are there")
    async with nothing_written(subject):
        await subject.settle(lease, Recorded(), outputs=(appended(c=3),))
    late = (await subject.claim(await subject.submit())).lease
    await subject.expire(late.task_id)
    async with nothing_written(subject), transaction(subject, commit=False) as joined:
        await refused(joined.acomplete(Settlement(late, Completed(), (), (), (appended(z=1),))), LeaseLost)


# Many writers at once


def _acts(batches: Sequence[Sequence[Settlement]]) -> list[Any]:
    def act(batch: Sequence[Settlement]) -> Any:
        return lambda store: store.settle(batch)

    return [act(batch) for batch in batches]


async def _settle_at_once(subject: Subject, batches: Sequence[Sequence[Settlement]]) -> None:
    for answer in accepted(await subject.race(_acts(batches))):
        accepted(answer)


async def _claims(subject: Subject, number: int) -> list[Claim]:
    await subject.submit_all(*(new_task() for _ in range(number)))
    return await subject.claim_many(number)


@case("C13.2")
async def writers_of_one_dataset_take_turns(subject: Subject) -> None:
    """1. Eight completions append to a dataset that does not exist yet, let go at once. 2. Eight more, one replaces."""
    for first in (0, 8):
        claims = await _claims(subject, 8)
        batches = [
            [Settlement(claim.lease, Completed(), (), (), (appended(**{f"k{first + n}": n, "all": first + n}),))]
            for n, claim in enumerate(claims)
        ]
        if first:
            batches[3] = [Settlement(claims[3].lease, Completed(), (), (), (replaced(fresh=1),))]
        await _settle_at_once(subject, batches)
    made = await versions(subject)
    equal([one.version for one in made], list(range(1, 17)), "one version each, numbered without a gap")
    rows: dict[str, Any] = {}
    for one in made:
        now = await read(subject, one.version)
        before = {} if one.mode is Mode.REPLACE else rows
        that(before.items() <= now.items(), "each is the one before and what it adds")
        equal((len(now), one.added), (one.rows, len(now) - len(before)), "and counted so")
        rows = now
    equal(len(await read(subject, 8)), 9, "every key once, also the one that all gave")


@case("C13.2", "C0.1")
async def the_same_rows_from_many_at_once_are_added_once(subject: Subject) -> None:
    claims = await _claims(subject, 8)
    rows = {f"k{number:02}": number for number in range(50)}
    batches = [[Settlement(claim.lease, Completed(), (), (), (appended(**rows),))] for claim in claims]
    await _settle_at_once(subject, batches)
    equal(await read(subject, 8), rows, "each key once")
    equal([one.added for one in await versions(subject)], [50] + [0] * 7, "by the first")


@case("C13.2", "C7")
async def the_same_completion_from_many_at_once_writes_once(subject: Subject) -> None:
    lease = (await _claims(subject, 1))[0].lease
    await _settle_at_once(subject, [[Settlement(lease, Completed(), (), (), (appended(a=1),))]] * 6)
    equal(await numbers(subject), [1], "one version")


@case("C13.2")
async def writers_of_several_datasets_do_not_stand_in_each_others_way(subject: Subject) -> None:
    """Batches name the same datasets in opposite orders: who locks them as they come waits for ever."""
    names = ("a", "b", "c")
    claims = await _claims(subject, 24)
    settlements = [
        Settlement(claim.lease, Completed(), (), (), (appended(names[n % 3], **{f"k{n}": n}),))
        for n, claim in enumerate(claims)
    ]
    batches = [settlements[n::4] for n in range(4)]
    batches[1].reverse()
    batches[3].reverse()
    await _settle_at_once(subject, batches)
    for name in names:
        equal(len(await read(subject, 8, name)), 8, "all have written")


# What is read


@case("C13.2")
async def rows_are_read_by_key_page_by_page(subject: Subject) -> None:
    await write(subject, given(dict.fromkeys(reversed(KEYS), 1), Mode.APPEND, ORDERS))
    await write(subject, appended(B=2, zz=2))
    for version, keys in ((1, sorted(KEYS)), (2, sorted([*KEYS, "B", "zz"]))):
        for size in (1, 3, 100):
            found: list[str] = []
            while page := await subject.store.dataset_rows(
                ORDERS, version, after=found[-1] if found else None, limit=size
            ):
                that(len(page) <= size, "no more than were asked for")
                found += [row.key for row in page]
            equal(found, keys, "in the order of code points, all of them, each once")
    page = await subject.store.dataset_rows(ORDERS, 1, after="B", limit=1)
    equal([row.key for row in page], ["Z"], "after a key that this version does not have")
    equal(await subject.store.dataset_rows(ORDERS, 1, after="😀😀", limit=5), [], "after the last")


@case("C13.2")
async def datasets_and_versions_are_listed(subject: Subject) -> None:
    began_at = subject.clock.now()
    for name in ("b", "a", "C", "é"):
        await write(subject, appended(name, k=1))
    subject.clock.advance(10)
    for _ in range(4):
        await write(subject, appended("b", k=1))
    found = await subject.store.datasets(limit=10, after=None)
    equal([info.latest.dataset for info in found], ["C", "a", "b", "é"], "by name, in the order of code points")
    equal([(info.versions, info.latest.version, info.created_at) for info in found][2], (5, 5, began_at), "what it has")
    page = await subject.store.datasets(limit=2, after="a")
    equal([info.latest.dataset for info in page], ["b", "é"], "page by page")
    listed = await subject.store.dataset_versions("b", limit=2, before=None)
    equal([one.version for one in listed], [5, 4], "newest first")
    listed = await subject.store.dataset_versions("b", limit=10, before=4)
    equal([one.version for one in listed], [3, 2, 1], "those below")
    latest = present(await subject.store.dataset_version("b", None), "the latest")
    equal(latest, found[2].latest, "the latest is the one that the list shows")
    equal(latest.created_at, subject.clock.now(), "written then")


@case("C13.2", "C15")
async def what_was_never_written_is_not_found(subject: Subject) -> None:
    await write(subject, appended(a=1))
    for name, version in ((ORDERS, 2), (ORDERS, 0), (ORDERS, -1), (ORDERS, 2**62), ("Orders", 1), ("", 1), ("\x00", 1)):
        equal(await subject.store.dataset_version(name, version), None, "there is none")
        await refused(subject.store.dataset_rows(name, version, after=None, limit=1), DatasetNotFound)
    for name in ("order", "orders ", "", "\x00", "\ud800"):
        equal(await subject.store.dataset_version(name, None), None, "there is no such dataset")
        equal(await subject.store.dataset_versions(name, limit=10, before=None), [], "it has no versions")


@case("C13.1", needs=("durable",))
async def outputs_outlive_their_process(subject: Subject) -> None:
    await write(subject, appended(a=1))
    before = await everything(subject)
    await subject.close_handles()
    await subject.another_handle()
    equal(await everything(subject), before, "all of it is still there")


@case("C13.2", "C8.3")
async def a_version_outlives_its_writer(subject: Subject) -> None:
    writer = await write(subject, appended(a=1))
    async with nothing_written(subject):
        await subject.amend(Change.DELETE, writer)


# Pins


@case("C13.3")
async def a_pinned_version_is_read_on_every_attempt(subject: Subject) -> None:
    await write(subject, appended(a=1))
    await write(subject, appended("other", b=1))
    task_id = await subject.submit(inputs=pinned_to(orders=1, other=1))
    equal((await subject.get(task_id)).inputs, {"orders": 1, "other": 1}, "the record shows it")
    for _ in range(3):
        await write(subject, replaced(z=9))
        lease = (await subject.claim(task_id)).lease
        equal(await subject.store.pinned(task_id), {"orders": 1, "other": 1}, "that very version")
        equal(await read(subject, 1), {"a": 1}, "whatever was written since")
        await subject.settle(lease, Failed(ErrorInfo("it broke"), retry_after_seconds=0.0))
    plain = await subject.submit()
    equal((await subject.get(plain)).inputs, {}, "who pins nothing shows nothing")
    equal(await subject.store.pinned(plain), {}, "and reads nothing")
    equal(await subject.store.pinned(ids.task_id()), {}, "nor does nobody")


@case("C13.3", "C4.5")
async def a_pin_to_what_does_not_exist_is_refused(subject: Subject) -> None:
    await write(subject, appended(a=1))
    for pins in (pinned_to(orders=2), pinned_to(nowhere=1), pinned_to(orders=1, other=1)):
        await subject.refuses(
            subject.submit_all(new_task(), new_task(inputs=pins), new_task(idempotency_key="k")), DatasetNotFound
        )


@case("C13.3", "C4.5")
async def a_pin_to_a_parent_needs_one(subject: Subject) -> None:
    await subject.refuses(subject.submit_all(new_task(), new_task(inputs=pinned_to(orders=None))), InvalidTask)


@case("C13.3", "C4.4", needs=("joined_transactions",))
async def a_joined_submit_keeps_its_pins(subject: Subject) -> None:
    await write(subject, appended(a=1))
    new = new_task(inputs=pinned_to(orders=1))
    async with transaction(subject, commit=True) as joined:
        await refused(joined.asubmit([new_task(), new_task(inputs=pinned_to(orders=2))]), DatasetNotFound)
        await joined.asubmit([new])
    equal(await subject.store.pinned(new.id), {"orders": 1}, "pinned, and nothing of what was refused is stored")
    equal(len(await subject.claim_many()), 1, "one task")


@case("C13.3", "C4.2")
async def pins_are_part_of_what_was_submitted(subject: Subject) -> None:
    for _ in range(2):
        await write(subject, appended(a=1))
    new = new_task(inputs=pinned_to(orders=1), idempotency_key="k")
    first = await subject.submit_all(new)
    async with subject.unchanged():
        equal(await subject.submit_all(new), first, "the same again is answered as the first time")
        for other in (pinned_to(orders=2), (), pinned_to(orders=1, more=1)):
            await refused(subject.submit_all(msgspec.structs.replace(new, inputs=other)), InvalidTask)
    lost = new_task(inputs=pinned_to(nowhere=1), idempotency_key="k")
    answers = await subject.submit_all(lost)
    equal([(answer.id, answer.created) for answer in answers], [(new.id, False)], "a known key has its task already")
    await complete(subject, new.id)
    subject.clock.advance(A_DAY * 2)
    await subject.store.prune(ONLY_VERSIONS, limit=10)
    equal(await numbers(subject), [2], "the version is gone")
    equal(await subject.submit_all(new), first, "and a lost reply is still answered")


@case("C13.3", "C10.8", needs=("schedules",))
async def a_schedule_keeps_the_pins_of_its_task(subject: Subject) -> None:
    await write(subject, appended(a=1))
    task = new_task(id="", inputs=pinned_to(orders=1))
    made = await subject.store.declare_schedule(
        NewSchedule(name="nightly", timing=Timing(every=60.0), task=task, declared=True)
    )
    equal((await subject.store.schedules())[0].task, task, "as it was declared")
    upto = subject.clock.now() + timedelta(minutes=1)
    new = new_task(inputs=pinned_to(orders=1))
    await subject.store.fire("nightly", last_fired_at=made.last_fired_at, upto=upto, tasks=[new])
    equal(await subject.store.pinned(new.id), {"orders": 1}, "what it fires has them")


@case("C13.1", "C13.3")
async def a_follow_up_may_pin(subject: Subject) -> None:
    await write(subject, appended(a=1))
    lease, follow_up = (await subject.claim(await subject.submit())).lease, new_task(inputs=pinned_to(orders=1))
    await subject.settle(lease, Completed(), follow_ups=(follow_up,), outputs=(appended(b=2),))
    equal(await subject.store.pinned(follow_up.id), {"orders": 1}, "what it named")


def _reading(tasks: dict[str, NewTask], *names: str) -> dict[str, NewTask]:
    return with_fields(tasks, names, inputs=pinned_to(orders=None))


@case("C13.3", "C10.1", needs=("workflows",))
async def what_a_parent_writes_is_read_by_its_child(subject: Subject) -> None:
    await write(subject, appended(old=1))
    drawing = _reading(drawn("run", a=[], b=["a"], c=["b"]), "b", "c")
    tasks = await submit(subject, drawing)
    equal((await subject.get(tasks["b"])).inputs, {"orders": "parent"}, "the record shows it")
    await complete(subject, tasks["a"], appended(new=1))
    equal(await subject.store.pinned(tasks["b"]), {"orders": 2}, "what its parent wrote")
    await write(subject, replaced(later=1))
    equal(await subject.store.pinned(tasks["b"]), {"orders": 2}, "and nobody else, whatever comes")
    await end(subject, tasks["b"])
    equal(await subject.store.pinned(tasks["c"]), {"orders": None}, "a parent that wrote nothing")


@case("C13.3", needs=("workflows",))
async def of_several_parents_the_latest_version_counts(subject: Subject) -> None:
    tasks = await submit(subject, _reading(drawn("run", a=[], b=[], c=[], d=["a", "b", "c"]), "d"))
    await complete(subject, tasks["b"], appended(b=1))
    await complete(subject, tasks["a"], appended(a=1))
    await complete(subject, tasks["c"], appended("other", c=1))
    equal(await subject.store.pinned(tasks["d"]), {"orders": 2}, "the latest that one of them wrote")
    equal(await read(subject, 2), {"a": 1, "b": 1}, "which has the rows of both")


@case("C13.3", "C10.2", "C4.2", needs=("workflows",))
async def a_workflow_with_pins_submitted_again_changes_nothing(subject: Subject) -> None:
    drawing = _reading(drawn("run", a=[], b=["a"]), "b")
    first = await subject.submit_all(*drawing.values())
    async with subject.unchanged():
        equal(await subject.submit_all(*drawing.values()), first, "the same answer")
        other = with_fields(drawing, ["b"], inputs=())
        await refused(subject.submit_all(*other.values()), InvalidTask)


# Retention


async def _pruned(subject: Subject, limit: int = 100) -> int:
    return await subject.store.prune(ONLY_VERSIONS, limit=limit)


@case("C13.3", "C8.5")
async def old_versions_are_pruned_and_the_latest_stays(subject: Subject) -> None:
    for _ in range(3):
        await write(subject, appended(a=1), replaced("other", b=1))
    subject.clock.advance(A_DAY - timedelta(microseconds=1))
    equal(await _pruned(subject), 0, "not before their time")
    subject.clock.advance(timedelta(microseconds=1))
    await write(subject, appended("other", c=3))
    equal(await subject.store.prune(Retention(outputs=None), limit=100), 0, "None keeps them for ever")
    equal(await _pruned(subject), 5, "all that are old and not the latest")
    equal((await numbers(subject), await numbers(subject, "other")), ([3], [4]), "the latest stays, however old")
    equal(await _pruned(subject), 0, "nothing is left")
    equal((await read(subject, 3), await read(subject, 4, "other")), ({"a": 1}, {"b": 1, "c": 3}), "whole")
    await refused(subject.store.dataset_rows(ORDERS, 1, after=None, limit=1), DatasetNotFound)
    found = await subject.store.datasets(limit=10, after=None)
    equal([(info.latest.version, info.versions) for info in found], [(3, 1), (4, 1)], "what is kept is counted")
    await write(subject, appended(z=1))
    equal(await numbers(subject), [3, 4], "numbers are not used again")


@case("C13.3", "C8.5")
async def versions_are_pruned_in_bounded_batches(subject: Subject) -> None:
    for number in range(8):
        await write(subject, appended(**{f"k{number}": number}))
    subject.clock.advance(A_DAY)
    equal([await _pruned(subject, 3) for _ in range(4)], [3, 3, 1, 0], "three at a time")
    equal(len(await read(subject, 8)), 8, "what is left is whole")


@case("C13.3", "C8.5")
async def tasks_and_versions_share_the_bound(subject: Subject) -> None:
    for _ in range(4):
        await write(subject, appended(a=1))
    subject.clock.advance(A_DAY)
    both = Retention(completed=A_DAY, canceled=None, failed=None, outputs=A_DAY)
    gone = [await subject.store.prune(both, limit=3) for _ in range(5)]
    that(max(gone) <= 3, "no more at a time")
    equal(sum(gone), 4 + 3, "both are counted")


@case("C13.3", "C8.5")
async def a_version_that_a_live_task_reads_is_not_pruned(subject: Subject) -> None:
    for number in range(5):
        await write(subject, appended(**{f"k{number}": number}))
    queued = await subject.submit(inputs=pinned_to(orders=1), delay_seconds=A_DAY.total_seconds() * 9)
    dead = await subject.submit(inputs=pinned_to(orders=2))
    running = await subject.submit(inputs=pinned_to(orders=3))
    await end(subject, dead, DEAD)
    lease = (await subject.claim(running, lease_seconds=A_DAY.total_seconds() * 9)).lease
    subject.clock.advance(A_DAY)
    equal(await _pruned(subject), 2, "the one of the dead letter, and the one that nobody reads")
    equal(await numbers(subject), [1, 3, 5], "what live tasks read stays")
    equal(await read(subject, 3), {f"k{number}": number for number in range(3)}, "whole")
    await subject.settle(lease, Completed())
    equal(await _pruned(subject), 1, "until they end")
    await subject.amend(Change.REQUEUE, dead)
    equal(await subject.store.pinned(dead), {"orders": 2}, "a requeued dead letter still says what it reads")
    await refused(subject.store.dataset_rows(ORDERS, 2, after=None, limit=1), DatasetNotFound)
    await subject.amend(Change.CANCEL, queued)
    equal(await _pruned(subject), 1, "also by being canceled")
    equal(await numbers(subject), [5], "the latest stays")


@case("C13.3", "C8.5", needs=("workflows",))
async def what_a_parent_wrote_is_not_pruned_before_its_child_has_ended(subject: Subject) -> None:
    tasks = await submit(subject, _reading(drawn("run", a=[], b=["a"]), "b"))
    await complete(subject, tasks["a"], appended(a=1))
    await write(subject, appended(b=2))
    await write(subject, appended(c=3))
    subject.clock.advance(A_DAY)
    equal(await _pruned(subject), 1, "only what nobody reads")
    equal(await subject.store.pinned(tasks["b"]), {"orders": 1}, "it is there")
    equal(await read(subject, 1), {"a": 1}, "whole")
    await end(subject, tasks["b"])
    equal(await _pruned(subject), 1, "then it goes")


@case("C13.2", "C8.5")
async def versions_of_a_base_that_is_pruned_stay_whole(subject: Subject) -> None:
    """The first versions go, later ones build on their rows; then a replace, and all that came before it goes."""
    for key in "abc":
        await write(subject, appended(**{key: 1}))
    reader = await subject.submit(inputs=pinned_to(orders=2))
    subject.clock.advance(A_DAY)
    equal(await _pruned(subject), 1, "the first one")
    equal(await read(subject, 2), {"a": 1, "b": 1}, "what builds on it has its rows")
    await write(subject, appended(a=9, d=1))
    equal(await read(subject, 4), dict.fromkeys("abcd", 1), "and its keys are still known")
    await write(subject, replaced(a=2))
    subject.clock.advance(A_DAY)
    await _pruned(subject)
    equal(await numbers(subject), [2, 5], "the one that is read, and the latest")
    equal((await read(subject, 2), await read(subject, 5)), ({"a": 1, "b": 1}, {"a": 2}), "both whole")
    await complete(subject, reader, appended(b=2))
    subject.clock.advance(A_DAY)
    await _pruned(subject)
    equal((await numbers(subject), await read(subject, 6)), ([6], {"a": 2, "b": 2}), "nothing old comes back")
