"""Section 6: how a lease is kept, lost and reaped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta

import msgspec

from holdfast import ids
from holdfast.errors import LeaseLost, StoreUnavailable, TaskNotFound
from holdfast.model.backoff import Fixed
from holdfast.model.claim import Extended, Lease
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Settlement
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change, Settled
from holdfast.policy.enrolment import REMOTE_KEPT_SECONDS
from holdfast.policy.lease_length import TIMEOUT_GRACE_SECONDS
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import accepted, equal, present, refused, that
from holdfast.testing.conformance.promise import OUTCOMES
from holdfast.testing.conformance.registry import case
from holdfast.testing.conformance.subject import REAPER, Subject, guessed, new_task, worker_info

MICROSECOND = timedelta(microseconds=1)


# Length


@case("C6.1")
async def a_lease_lasts_sixty_seconds_unless_told_otherwise(subject: Subject) -> None:
    await subject.submit()
    claim = await subject.claim()
    equal(claim.lease_expires_at - subject.clock.now(), timedelta(seconds=60), "the default")


@case("C6.1")
async def a_lease_has_the_length_its_task_or_else_its_worker_asks_for(subject: Subject) -> None:
    for lease, length in ((7.5, 7.5), (None, 20.0)):
        await subject.submit(lease=lease)
        claim = await subject.claim(lease_seconds=20.0)
        equal(claim.lease_expires_at - subject.clock.now(), timedelta(seconds=length), "the task's own goes first")
        equal(claim.lease_seconds, length, "and the claim says so")


# Heartbeat


@case("C6.2")
async def a_heartbeat_extends_by_the_leases_length_from_now(subject: Subject) -> None:
    task_id = await subject.submit(lease=30.0)
    lease = (await subject.claim(task_id)).lease
    for _ in range(10):
        subject.clock.advance(20)
        until = subject.clock.now() + timedelta(seconds=30)
        equal(await subject.extend(lease), Extended(until, cancel_requested=False), "now plus its length")
        equal((await subject.get(task_id)).lease_expires_at, until, "and so it is recorded")
    equal(await subject.kinds(task_id), ["task.enqueued", "task.running"], "a heartbeat is no event")


@case("C6.2")
async def many_leases_are_extended_in_one_call(subject: Subject) -> None:
    await subject.submit_all(*(new_task() for _ in range(4)))
    good, settled, wrong, other = (claim.lease for claim in await subject.claim_many())
    await subject.settle(settled, Completed())
    unknown = Lease(ids.task_id(), 1, ids.token())
    subject.clock.advance(10)
    until = subject.clock.now() + timedelta(seconds=60)
    answers = await subject.store.extend([good, settled, guessed(wrong), unknown, other])
    shown = [answer if isinstance(answer, Extended) else type(answer) for answer in answers]
    extended = Extended(until, cancel_requested=False)
    equal(shown, [extended, LeaseLost, LeaseLost, TaskNotFound, extended], "one answer each, in order")
    equal(await subject.store.extend([]), [], "none for none")


@case("C6.2", "C8.2")
async def a_heartbeat_tells_of_a_cancel_request(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    await subject.amend(Change.CANCEL, lease.task_id)
    equal((await subject.extend(lease)).cancel_requested, True, "the owner learns it")


@case("C6.2", "C6.3")
async def a_heartbeat_is_refused_unless_all_three_match_in_time(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    other = (await subject.claim(await subject.submit())).lease
    strangers = [
        guessed(lease),
        Lease(lease.task_id, lease.attempt + 1, lease.token),
        Lease(lease.task_id, lease.attempt - 1, lease.token),
        Lease(lease.task_id, other.attempt, other.token),
        Lease(lease.task_id, lease.attempt, ""),
        Lease(lease.task_id, lease.attempt, lease.token.upper() + " "),
    ]
    for stranger in strangers:
        await subject.refuses(subject.extend(stranger), LeaseLost)
        await subject.refuses(subject.progress(stranger), LeaseLost)
    subject.clock.advance(timedelta(seconds=60) - MICROSECOND)
    await subject.extend(lease)
    subject.clock.advance(60)
    await subject.refuses(subject.extend(lease), LeaseLost)


@case("C7.7")
async def heartbeats_never_extend_past_the_timeout_and_its_grace(subject: Subject) -> None:
    task_id = await subject.submit(timeout=100.0, lease=30.0)
    claim = await subject.claim(task_id)
    bound = claim.claimed_at + timedelta(seconds=100 + TIMEOUT_GRACE_SECONDS)
    ends = []
    for _ in range(12):
        subject.clock.advance(10)
        ends.append((await subject.extend(claim.lease)).expires_at)
    equal(max(ends), bound, "up to the bound, never past it")
    equal(ends, sorted(ends), "and never shorter than before")
    subject.clock.advance_to(bound)
    await subject.refuses(subject.extend(claim.lease), LeaseLost)
    equal([settled.task_id for settled in await subject.reap()], [task_id], "then it is reaped")


@case("C5.3", "C7.7")
async def a_first_lease_that_reaches_past_the_timeout_is_neither_extended_nor_shortened(subject: Subject) -> None:
    task_id = await subject.submit(timeout=10.0, lease=3600.0)
    claim = await subject.claim(task_id)
    equal(claim.lease_expires_at - claim.claimed_at, timedelta(hours=1), "now + lease")
    subject.clock.advance(1800)
    equal((await subject.extend(claim.lease)).expires_at, claim.lease_expires_at, "a heartbeat does not move it")


# Expiry


@case("C6.3")
async def an_expired_lease_is_nobodys_although_nobody_reaped_it(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    await subject.expire(lease.task_id)
    equal((await subject.get(lease.task_id)).status, TaskStatus.RUNNING, "nobody has reaped it yet")
    await subject.refuses(subject.extend(lease), LeaseLost)
    for outcome in OUTCOMES:
        await subject.refuses(subject.settle(lease, outcome), LeaseLost)


@case("C6.3", "C6.5")
async def the_reaper_leaves_valid_leases_alone(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit())).lease
    subject.clock.advance(50)
    await subject.extend(lease)
    subject.clock.advance(timedelta(seconds=60) - MICROSECOND)
    async with subject.unchanged():
        equal(await subject.reap(), [], "a valid lease is not reaped")


@case("C6.5")
async def reaping_records_a_failure_with_its_code(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=2)
    await subject.claim(task_id)
    await subject.expire(task_id)
    equal(await subject.reap(), [Settled(task_id, 1, TaskStatus.QUEUED)], "the first loss leads back to the queue")
    task = await subject.get(task_id)
    error = present(task.last_error, "last_error")
    equal((task.failures, error["code"], error["terminal"]), (1, "lease_expired", False), "one failure is counted")
    equal((task.claimed_by, task.lease_expires_at), (None, None), "the lease is cleared")
    events = (await subject.events(task_id))[-2:]
    equal([(event.kind, event.actor) for event in events], [("task.failed", REAPER), ("task.requeued", REAPER)], "both")
    await subject.claim(task_id)
    await subject.expire(task_id)
    equal(await subject.reap(), [Settled(task_id, 2, TaskStatus.FAILED)], "the budget is spent")
    task = await subject.get(task_id)
    equal((task.failures, task.finished_at), (2, subject.clock.now()), "it has ended")


@case("C6.5")
async def the_first_loss_costs_no_backoff_later_ones_in_a_row_do(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=0, backoff=Fixed(9.0))
    delays = []
    for failure in ("lost", "lost", "lost", "raised", "lost", "lost"):
        lease = (await subject.claim(task_id)).lease
        if failure == "raised":
            await subject.settle(lease, Failed(ErrorInfo("it broke")))
        else:
            await subject.expire(task_id)
            await subject.reap()
        run_at = (await subject.get(task_id)).run_at
        delays.append((run_at - subject.clock.now()).total_seconds())
        subject.clock.advance_to(run_at)
    equal(delays, [0, 9, 9, 9, 0, 9], "nought for the first in a row, the task's own from the second on")


@case("C6.5", "C8.2")
async def reaping_a_task_whose_cancel_was_requested_cancels_it(subject: Subject) -> None:
    task_id = await subject.run_to(TaskStatus.RUNNING)
    await subject.amend(Change.CANCEL, task_id)
    await subject.expire(task_id)
    equal(await subject.reap(), [Settled(task_id, 1, TaskStatus.CANCELED)], "canceled")
    task = await subject.get(task_id)
    equal((task.failures, task.finished_at), (0, subject.clock.now()), "no failure is counted")


@case("C6.5")
async def reaping_twice_is_reaping_once(subject: Subject) -> None:
    await subject.submit_all(*(new_task() for _ in range(3)))
    await subject.claim_many()
    subject.clock.advance(60)
    equal(len(await subject.reap()), 3, "all three")
    async with subject.unchanged():
        equal(await subject.reap(), [], "nothing is left")


@case("C6.5")
async def a_reaper_takes_at_most_its_limit(subject: Subject) -> None:
    await subject.submit_all(*(new_task() for _ in range(5)))
    await subject.claim_many()
    subject.clock.advance(60)
    equal([len(await subject.reap(2)) for _ in range(4)], [2, 2, 1, 0], "two at a time")


@case("C6.5")
async def eight_reapers_at_once_record_each_loss_once(subject: Subject) -> None:
    """1. Twenty leases have expired. 2. Eight reapers find them at the same moment. 3. Each loss is recorded once."""
    submitted = [answer.id for answer in await subject.submit_all(*(new_task() for _ in range(20)))]
    await subject.claim_many()
    subject.clock.advance(60)

    async def act(store: Store) -> list[Settled]:
        return await store.reap(limit=7, actor=REAPER) + await store.reap(limit=100, actor=REAPER)

    answers = await subject.race([act] * 8)
    reaped = [settled.task_id for got in accepted(answers) for settled in got]
    equal(Counter(reaped), Counter(submitted), "each once, over all reapers")
    for task_id in submitted:
        equal((await subject.get(task_id)).failures, 1, "one failure each")
        equal((await subject.kinds(task_id)).count("task.failed"), 1, "one event each")


@case("C6.3", "C6.5", "C0.2")
async def at_the_instant_of_expiry_the_reaper_wins_and_the_owner_loses(subject: Subject) -> None:
    """1. The lease ends now. 2. Owner and reaper come at once. 3. Whoever is first, the owner is refused."""
    leases = [(await subject.claim(await subject.submit())).lease for _ in range(6)]
    subject.clock.advance(60)
    owners = [_settle_all(leases)] * 3

    async def reap(store: Store) -> list[object]:
        return [type(settled) for settled in await store.reap(limit=100, actor=REAPER)]

    answers = accepted(await subject.race([*owners, reap, reap]))
    equal(answers[:3], [[LeaseLost] * 6] * 3, "every settle is refused")
    # What an owner was just being refused, a reaper may leave to its next round.
    equal(sum(map(len, [*answers[3:], await reap(subject.store)])), 6, "every attempt is reaped once")


@case("C6.3", "C6.5", "C0.2")
async def a_settle_and_a_reap_end_an_attempt_once(subject: Subject) -> None:
    """1. Leases are about to end. 2. The owner settles while the clock ticks over and a reaper comes.

    3. For each attempt exactly one of the two is recorded, and the owner is told which. What the owner was just being
    refused when the reaper came, the reaper may leave to its next round.
    """
    leases = [(await subject.claim(await subject.submit(max_attempts=1))).lease for _ in range(20)]
    subject.clock.advance(timedelta(seconds=60) - MICROSECOND)

    async def settle(store: Store) -> list[object]:
        return [type((await store.settle([Settlement(lease, Completed())]))[0]) for lease in leases]

    async def reap(store: Store) -> list[object]:
        subject.clock.advance(MICROSECOND)
        return [settled.task_id for settled in await store.reap(limit=100, actor=REAPER)]

    told, reaped = accepted(await subject.race([settle, reap]))
    reaped += [settled.task_id for settled in await subject.store.reap(limit=100, actor=REAPER)]
    equal(len(reaped), len(set(reaped)), "nothing is reaped twice")
    for lease, answer in zip(leases, told, strict=True):
        completed = answer is Settled
        status = (await subject.get(lease.task_id)).status
        equal(status, TaskStatus.COMPLETED if completed else TaskStatus.FAILED, "the record agrees with the answer")
        that(completed != (lease.task_id in reaped), "one of the two, never both, never neither")


def _settle_all(leases: list[Lease]) -> Callable[[Store], Awaitable[list[object]]]:
    async def act(store: Store) -> list[object]:
        return [type(answer) for answer in await store.settle([Settlement(lease, Completed()) for lease in leases])]

    return act


# Early reaping and outages


@case("C6.7", needs=("early_reaping", "vanish"))
async def the_leases_of_a_worker_that_is_gone_end_at_once(subject: Subject) -> None:
    await subject.store.enroll(worker_info("worker-gone"))
    claim = await subject.claim(await subject.submit(), worker_id="worker-gone", lease_seconds=3600.0)
    await subject.vanish("worker-gone")
    equal(await subject.store.evict(actor=REAPER), ["worker-gone"], "it is known to be gone")
    await subject.refuses(subject.settle(claim.lease, Completed()), LeaseLost)
    equal(await subject.reap(), [Settled(claim.task_id, 1, TaskStatus.QUEUED)], "ordinary reaping follows")
    equal((await subject.claim(claim.task_id)).lease.attempt, 2, "and the work runs again")
    async with subject.unchanged():
        equal(await subject.store.evict(actor=REAPER), [], "it is evicted once")


@case("C6.7", needs=("early_reaping", "vanish"))
async def only_the_leases_of_the_worker_that_is_gone_end(subject: Subject) -> None:
    for worker_id in ("worker-gone", "worker-here"):
        await subject.store.enroll(worker_info(worker_id))
        await subject.submit()
        await subject.claim(worker_id=worker_id)
    await subject.vanish("worker-gone")
    await subject.store.evict(actor=REAPER)
    equal(len(await subject.reap()), 1, "one lease ended")
    running = [task.claimed_by for task in (await subject.snapshot()).tasks if task.status is TaskStatus.RUNNING]
    equal(running, ["worker-here"], "the other's goes on")


@case("C6.7")
async def a_worker_that_is_merely_slow_is_not_evicted(subject: Subject) -> None:
    await subject.store.enroll(worker_info("worker-slow"))
    claim = await subject.claim(await subject.submit(lease=7200.0), worker_id="worker-slow")
    subject.clock.advance(3600)
    async with subject.unchanged():
        equal(await subject.store.evict(actor=REAPER), [], "an hour without a word is no evidence")
    await subject.settle(claim.lease, Completed())


@case("C6.7")
async def a_remote_worker_is_forgotten_in_silence_and_keeps_its_leases(subject: Subject) -> None:
    await subject.store.enroll(msgspec.structs.replace(worker_info("worker-far"), remote=True))
    claim = await subject.claim(await subject.submit(lease=7200.0), worker_id="worker-far")
    subject.clock.advance(REMOTE_KEPT_SECONDS - 1)
    equal(await subject.store.evict(actor=REAPER), [], "nothing shows whether it lives")
    known = [(worker.id, worker.remote, worker.running) for worker in await subject.store.workers()]
    equal(known, [("worker-far", True, 1)], "it is listed as remote")
    subject.clock.advance(2)
    equal(await subject.store.evict(actor=REAPER), [], "nobody is evicted")
    equal(await subject.store.workers(), [], "it is listed no more")
    equal(await subject.reap(), [], "its lease holds")
    await subject.settle(claim.lease, Completed())


@case("C6.7")
async def a_worker_that_leaves_gives_up_its_leases(subject: Subject) -> None:
    await subject.store.enroll(worker_info("worker-1"))
    lease = (await subject.claim(await subject.submit(), worker_id="worker-1")).lease
    await subject.store.leave("worker-1", [lease])
    await subject.refuses(subject.extend(lease), LeaseLost)
    equal(await subject.reap(), [Settled(lease.task_id, 1, TaskStatus.QUEUED)], "ordinary reaping follows")


@case("C6.7", "C14.3")
async def a_name_ends_leases_only_for_those_who_have_the_store(subject: Subject) -> None:
    await subject.store.enroll(worker_info("worker-1"))
    claim = await subject.claim(await subject.submit(), worker_id="worker-1")
    await subject.store.leave("worker-1")
    if subject.store.capabilities.maintained:
        await subject.settle(claim.lease, Completed())
    else:
        equal(await subject.reap(), [Settled(claim.task_id, 1, TaskStatus.QUEUED)], "all that it held is reaped")


@case("C6.7", "C14.3")
async def a_lease_is_ended_only_by_who_shows_it(subject: Subject) -> None:
    await subject.store.enroll(worker_info("worker-1"))
    held = (await subject.claim(await subject.submit(), worker_id="worker-1")).lease
    wrong = [
        msgspec.structs.replace(held, token="0" * len(held.token)),
        msgspec.structs.replace(held, attempt=held.attempt + 1),
        msgspec.structs.replace(held, task_id=await subject.submit()),
    ]
    await subject.store.leave("worker-1", wrong)
    await subject.store.leave("worker-1", [])
    equal(await subject.reap(), [], "nothing has ended")
    await subject.settle(held, Completed())


@case("C6.7", "C14.3", needs=("early_reaping",))
async def a_remote_worker_does_not_pass_for_one_that_is_here(subject: Subject) -> None:
    here = worker_info("worker-1")
    await subject.store.enroll(here)
    await subject.store.enroll(msgspec.structs.replace(here, host="elsewhere", remote=True))
    await subject.store.leave("worker-1", [])
    known = [(worker.id, worker.host, worker.remote) for worker in await subject.store.workers()]
    equal(known, [("worker-1", here.host, False)], "its entry stands")


async def _live_through_an_outage(subject: Subject, lease: Lease) -> None:
    """Five minutes in which the owner tries to extend its lease again and again."""
    async with subject.outage():
        for _ in range(30):
            await refused(subject.extend(lease), StoreUnavailable)
            subject.clock.advance(10)
        await refused(subject.extend(lease), StoreUnavailable)


@case("C6.8", needs=("outage",))
async def leases_that_ran_out_during_an_outage_hold_for_one_more_length(subject: Subject) -> None:
    lease = (await subject.claim(await subject.submit(lease=30.0))).lease
    await _live_through_an_outage(subject, lease)
    equal(await subject.reap(), [], "the outage made no failure")
    subject.clock.advance(timedelta(seconds=30) - MICROSECOND)
    equal(await subject.reap(), [], "nor did its first lease length afterwards")
    await subject.settle(lease, Completed())
    equal((await subject.get(lease.task_id)).failures, 0, "the work counted")


@case("C6.8", needs=("outage",))
async def an_outage_does_not_keep_the_dead_for_ever(subject: Subject) -> None:
    expired = (await subject.claim(await subject.submit(lease=10.0))).lease
    subject.clock.advance(10)
    lost = (await subject.claim(await subject.submit(lease=30.0))).lease
    await _live_through_an_outage(subject, lost)
    await refused(subject.extend(expired), LeaseLost)
    equal([settled.task_id for settled in await subject.reap()], [expired.task_id], "what ran out before, ran out")
    subject.clock.advance(30)
    equal([settled.task_id for settled in await subject.reap()], [lost.task_id], "and nobody came back for this one")
