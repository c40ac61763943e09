"""C13.2: what a completion writes is a version; versions never change and are read as they were given."""

from __future__ import annotations

from typing import Any

from holdfast.errors import DatasetNotFound
from holdfast.model.outcome import Completed
from holdfast.model.output import DatasetVersion, Mode
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change
from holdfast.testing.conformance.checks import equal, identical, present, refused, that
from holdfast.testing.conformance.output_words import (
    ORDERS,
    appended,
    case,
    everything,
    given,
    nothing_written,
    numbers,
    read,
    replaced,
    versions,
    write,
)
from holdfast.testing.conformance.payloads import EXACT
from holdfast.testing.conformance.queues import ODD_NAMES
from holdfast.testing.conformance.subject import EVERYTHING, Subject

KEYS = ("0", "A", "Z", "a", "a b", "ab", "z", "~", "é", "ı", "ﬀ", "\uffff", "😀", "𝄞x")
"""In no language's order, and unlike their UTF-16 order too."""


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
