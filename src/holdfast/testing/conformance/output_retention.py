"""C13.3: old versions are pruned, but never the latest, nor what a live task reads."""

from __future__ import annotations

from datetime import timedelta

from holdfast.errors import DatasetNotFound
from holdfast.model.outcome import Completed
from holdfast.model.query import Retention
from holdfast.model.transition import Change
from holdfast.testing.conformance.checks import equal, refused, that
from holdfast.testing.conformance.output_words import (
    A_DAY,
    ONLY_VERSIONS,
    ORDERS,
    appended,
    case,
    complete,
    numbers,
    pinned_to,
    read,
    reading,
    replaced,
    write,
)
from holdfast.testing.conformance.subject import Subject
from holdfast.testing.conformance.workflow_words import DEAD, drawn, end, submit


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
    tasks = await submit(subject, reading(drawn("run", a=[], b=["a"]), "b"))
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
