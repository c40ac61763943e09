"""C13.1, C13.2: outputs come with their completion or not at all, and writers of a dataset take turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.errors import LeaseLost
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
from holdfast.model.output import Mode
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change, Settled
from holdfast.testing.conformance.checks import accepted, equal, refused, that
from holdfast.testing.conformance.joined import transaction
from holdfast.testing.conformance.output_words import (
    ORDERS,
    appended,
    case,
    nothing_written,
    numbers,
    pinned_to,
    read,
    replaced,
    versions,
)
from holdfast.testing.conformance.subject import Subject, guessed, new_task
from holdfast.testing.conformance.workflow_words import DEAD

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
