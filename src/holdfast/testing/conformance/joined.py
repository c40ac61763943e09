"""C4.4 and C7.6: what is submitted or completed inside a transaction comes with it or goes with it.

The transaction is one that the store itself opens for handlers, so that these cases need no driver of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.errors import IdempotencyConflict, InvalidTask, LeaseLost, NotSupported, TaskNotFound
from holdfast.model.claim import Lease
from holdfast.model.outcome import Completed, Emitted, Recorded, Settlement
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Change, Settled
from holdfast.stores.protocol import Joined
from holdfast.testing.conformance.checks import Broken, equal, identical, refused, that
from holdfast.testing.conformance.registry import case
from holdfast.testing.conformance.subject import Subject, guessed, new_task

JOINS = ("joined_transactions",)
HOSTILE = '["\\u0000","\\\\u0000",-0.0,1e16,100000000000000000000000,"é𝄞","$1 %s ? \'"]'


@asynccontextmanager
async def transaction(subject: Subject, *, commit: bool) -> AsyncIterator[Joined]:
    own = subject.store.own_transaction()
    connection = await own.aenter()
    try:
        yield (await subject.store.joining()).into(connection)
    except BaseException:
        await own.aleave(commit=False)
        raise
    await own.aleave(commit=commit)


def completion(lease: Lease, *, follow_ups: tuple[NewTask, ...] = ()) -> Settlement:
    return Settlement(lease, Completed('{"no":7}'), (Emitted("invoice.sent", {"no": 7}),), follow_ups)


# Submit


@case("C4.4")
async def a_store_that_cannot_join_says_so(subject: Subject) -> None:
    if not subject.store.capabilities.joined_transactions:
        await refused(subject.store.joining(), NotSupported)
        try:
            subject.store.own_transaction()
        except NotSupported:
            return
        raise Broken("no transaction is offered")


@case("C4.4", "C3.3", needs=JOINS)
async def a_submit_comes_with_its_transaction(subject: Subject) -> None:
    first, second = new_task(payload=HOSTILE, meta='{"a":"\\u0000"}'), new_task(queue="mail", priority=-5)
    async with transaction(subject, commit=True) as joined:
        await joined.asubmit([first, second])
        equal(await subject.store.get(first.id), None, "nobody sees it before the commit")
    task = await subject.get(first.id)
    await subject.submit(id=first.id, payload=HOSTILE, meta='{"a":"\\u0000"}')
    that(identical(task.meta, {"a": "\x00"}), "meta is returned exactly")
    equal(await subject.kinds(first.id), ["task.enqueued"], "its event is there")
    equal(
        {queue.name: queue.counts.get("queued") for queue in await subject.store.queues()},
        {"default": 1, "mail": 1},
        "",
    )
    equal([claim.task_id for claim in await subject.claim_many()], [first.id, second.id], "it can be claimed")


@case("C4.4", needs=JOINS)
async def a_submit_goes_with_its_transaction(subject: Subject) -> None:
    async with subject.unchanged(), transaction(subject, commit=False) as joined:
        await joined.asubmit([new_task(idempotency_key="k"), new_task()])
    equal((await subject.submit_all(new_task(idempotency_key="k")))[0].created, True, "the key is free")


@case("C4.4", "C4.2", needs=JOINS)
async def a_joined_submit_knows_keys_and_ids(subject: Subject) -> None:
    known = new_task(idempotency_key="known")
    await subject.submit_all(known)
    new, twin = new_task(idempotency_key="new"), new_task(idempotency_key="new")
    other = new_task(id=known.id, idempotency_key="known", payload="1")
    async with transaction(subject, commit=True) as joined:
        answers = await joined.asubmit([new_task(idempotency_key="known"), new, twin, known])
        await refused(
            joined.asubmit([new_task(), new_task(idempotency_key="new", name="another")]), IdempotencyConflict
        )
        await refused(joined.asubmit([new_task(), other]), InvalidTask)
    equal(
        [(answer.id, answer.created) for answer in answers],
        [(known.id, False), (new.id, True), (new.id, False), (known.id, True)],
        "each is answered as outside of a transaction, and a refusal leaves the transaction usable",
    )
    equal(len(await subject.claim_many()), 2, "only what is new was stored, and nothing of what was refused")


# Complete


@case("C7.6", "C7.1", "C3.3", needs=JOINS)
async def a_completion_comes_with_its_transaction(subject: Subject) -> None:
    lease, follow_up = (await subject.claim(await subject.submit())).lease, new_task()
    settlement = completion(lease, follow_ups=(follow_up,))
    async with transaction(subject, commit=True) as joined:
        answer = await joined.acomplete(settlement)
        equal(await joined.acomplete(settlement), answer, "said twice, it is answered as the first time")
        equal((await subject.get(lease.task_id)).status, TaskStatus.RUNNING, "nobody sees it before the commit")
    equal(answer, Settled(lease.task_id, lease.attempt, TaskStatus.COMPLETED), "the answer")
    task = await subject.get(lease.task_id)
    equal((task.status, task.result, task.claimed_by), ("completed", {"no": 7}, None), "the record")
    equal(
        await subject.kinds(lease.task_id),
        ["task.enqueued", "task.running", "invoice.sent", "task.completed"],
        "its events",
    )
    equal((await subject.get(follow_up.id)).status, TaskStatus.QUEUED, "its follow-up")
    equal((await subject.store.queues())[0].counts, {"completed": 1, "queued": 1}, "its counts")


@case("C7.6", needs=JOINS)
async def a_completion_goes_with_its_transaction(subject: Subject) -> None:
    lease, follow_up = (await subject.claim(await subject.submit())).lease, new_task()
    async with subject.unchanged(), transaction(subject, commit=False) as joined:
        await joined.acomplete(completion(lease, follow_ups=(follow_up,)))
    await subject.settle(lease, Completed())


@case("C7.6", "C7", needs=JOINS)
async def a_stale_completion_is_refused_inside_a_transaction(subject: Subject) -> None:
    lease, unborn = (await subject.claim(await subject.submit())).lease, new_task()
    strangers = [guessed(lease), Lease(lease.task_id, lease.attempt + 1, lease.token), Lease(lease.task_id, 1, "")]
    for stranger in strangers:
        async with subject.unchanged(), transaction(subject, commit=False) as joined:
            await refused(joined.acomplete(completion(stranger, follow_ups=(unborn,))), LeaseLost)
    async with transaction(subject, commit=False) as joined:
        await refused(joined.acomplete(completion(Lease(unborn.id, 1, lease.token))), TaskNotFound)
    async with transaction(subject, commit=False) as joined:
        await refused(joined.acomplete(completion(Lease("no id", 1, lease.token))), TaskNotFound)
    await subject.expire(lease.task_id)
    async with subject.unchanged(), transaction(subject, commit=False) as joined:
        await refused(joined.acomplete(completion(lease)), LeaseLost)


@case("C7.6", "C6.5", needs=JOINS)
async def a_lease_that_runs_out_between_completion_and_commit_is_not_lost(subject: Subject) -> None:
    """1. The completion is written. 2. The lease's time is over. 3. A reaper comes. 4. The transaction commits."""
    lease = (await subject.claim(await subject.submit())).lease
    ends_at = (await subject.get(lease.task_id)).lease_expires_at
    async with transaction(subject, commit=True) as joined:
        await joined.acomplete(completion(lease))
        assert ends_at is not None
        subject.clock.advance_to(ends_at)
        reaping = asyncio.create_task((await subject.another_handle()).reap(limit=10, actor="reaper"))
        await asyncio.wait([reaping], timeout=0.1)  # a store with one writer lets it in only after the commit
    equal(await reaping, [], "nothing is reaped")
    equal(await subject.kinds(lease.task_id), ["task.enqueued", "task.running", "invoice.sent", "task.completed"], "")


@case("C7.6", "C6.5", needs=JOINS)
async def a_completion_that_is_undone_after_its_lease_is_reaped(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    async with transaction(subject, commit=False) as joined:
        await joined.acomplete(completion(lease))
    await subject.expire(lease.task_id)
    equal(len(await subject.reap()), 1, "the attempt is lost")


@case("C7.6", "C4.2", needs=JOINS)
async def a_completion_is_refused_with_its_follow_ups(subject: Subject) -> None:
    lease, known = (await subject.claim(await subject.submit())).lease, new_task(idempotency_key="k")
    await subject.submit_all(known)
    async with subject.unchanged(), transaction(subject, commit=False) as joined:
        wrong = new_task(idempotency_key="k", name="another")
        await refused(joined.acomplete(completion(lease, follow_ups=(new_task(), wrong))), IdempotencyConflict)
    async with transaction(subject, commit=True) as joined:
        follow_up = new_task(idempotency_key="k")
        await joined.acomplete(completion(lease, follow_ups=(follow_up, new_task())))
    equal(await subject.store.get(follow_up.id), None, "a known key has its task already")
    equal(len(await subject.claim_many()), 2, "the other follow-up came with the completion")


@case("C7.6", "C8.2", needs=JOINS)
async def a_completion_in_a_transaction_wins_over_a_cancel_request(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    await subject.amend(Change.CANCEL, lease.task_id)
    async with transaction(subject, commit=True) as joined:
        await joined.acomplete(completion(lease))
    equal((await subject.get(lease.task_id)).status, TaskStatus.COMPLETED, "it was done")


# What the worker says afterwards


@case("C7.6", "C7", needs=JOINS)
async def a_recorded_completion_is_not_recorded_again(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    async with transaction(subject, commit=True) as joined:
        await joined.acomplete(completion(lease))
    async with subject.unchanged():
        equal((await subject.settle(lease, Recorded())).status, TaskStatus.COMPLETED, "the first answer again")


@case("C7.6", "C7.2")
async def a_completion_that_was_never_committed_is_a_failure(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    settled = await subject.settle(lease, Recorded())
    equal(await subject.settle(lease, Recorded()), settled, "said again, it is answered again")
    task = await subject.get(lease.task_id)
    equal((task.status, task.failures), (TaskStatus.QUEUED, 1), "it will run again")
    equal((task.last_error or {}).get("code"), "completion_undone", "and says why")
