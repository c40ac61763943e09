"""Sections 0 to 2: nothing acknowledged is lost, nothing stale changes anything; what the nouns promise."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from holdfast.clock import from_micros
from holdfast.errors import LeaseLost, TaskAlreadyClaimed
from holdfast.model.backoff import Linear
from holdfast.model.claim import Lease
from holdfast.model.outcome import Canceled, Completed, ErrorInfo, Failed, Outcome, Released, Snoozed
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Change
from holdfast.testing.conformance.checks import equal, present, refused, that
from holdfast.testing.conformance.registry import case
from holdfast.testing.conformance.subject import Subject, new_task, with_parent, worker_info

OUTCOMES: tuple[Outcome, ...] = (
    Completed('"done"'),
    Failed(ErrorInfo("it broke")),
    Snoozed(5.0),
    Released(),
    Canceled(),
)


@case("C0.1")
async def a_task_is_run_again_until_it_ends(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=0)
    for attempt in range(1, 6):
        subject.clock.advance(timedelta(days=1))
        equal((await subject.claim()).lease.attempt, attempt, "a lost attempt is followed by another")
        subject.clock.advance(timedelta(days=1))
        await subject.reap()
    subject.clock.advance(timedelta(days=1))
    await subject.settle((await subject.claim()).lease, Completed())
    equal((await subject.get(task_id)).status, TaskStatus.COMPLETED, "it ends in a terminal state")
    subject.clock.advance(timedelta(days=1))
    equal(await subject.claim_many(), [], "an ended task is not run again")


@case("C0.2")
async def nothing_acknowledged_is_lost(subject: Subject) -> None:
    acknowledged = [await subject.submit() for _ in range(10)]
    acknowledged += [answer.id for answer in await subject.submit_all(*(new_task() for _ in range(20)))]
    for outcome in OUTCOMES:
        await subject.settle((await subject.claim()).lease, outcome)
    await subject.claim_many(5)
    subject.clock.advance(3600)
    await subject.reap()
    equal({task.id for task in (await subject.snapshot()).tasks}, set(acknowledged), "every task is still there")


@case("C0.2", "C6.3", "C7")
async def nothing_stale_ever_changes_anything(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=0)
    stale: list[Lease] = []
    for _ in range(3):
        stale.append((await subject.claim(task_id)).lease)
        await subject.expire(task_id)
        await subject.reap()
        subject.clock.advance(60)
    await subject.claim(task_id)
    for lease in stale:
        await subject.refuses(subject.extend(lease), LeaseLost)
        await subject.refuses(subject.progress(lease), LeaseLost)
        for outcome in OUTCOMES:
            await subject.refuses(subject.settle(lease, outcome), LeaseLost)


@case("C1", "C5.3")
async def attempt_never_goes_down_whatever_happens(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=2)
    seen = []
    for outcome in (*OUTCOMES[1:], Failed(ErrorInfo("it broke"), unrecoverable=True), Completed()):
        subject.clock.advance(60)
        lease = (await subject.claim(task_id)).lease
        await subject.settle(lease, outcome)
        seen.append(lease.attempt)
        if (await subject.get(task_id)).status in (TaskStatus.FAILED, TaskStatus.CANCELED):
            await subject.amend(Change.REQUEUE, task_id)
        equal((await subject.get(task_id)).attempt, lease.attempt, "only a claim changes the attempt")
    equal(seen, list(range(1, len(seen) + 1)), "it grows by one on every claim")


@case("C1")
async def a_token_is_shown_to_its_claimer_alone(subject: Subject) -> None:
    task_id = await subject.submit(idempotency_key="k", run_id="r")
    await subject.store.enroll(worker_info())
    tokens = []
    for outcome in (Failed(ErrorInfo("it broke")), Snoozed(0.0), None, Completed()):
        subject.clock.advance(60)
        lease = (await subject.claim(task_id)).lease
        tokens.append(lease.token)
        await subject.progress(lease)
        await _search(subject, task_id, tokens)
        if outcome is None:
            await subject.amend(Change.RELEASE, task_id)
        else:
            await subject.settle(lease, outcome)
        await _search(subject, task_id, tokens)
    equal(len(set(tokens)), len(tokens), "every attempt has a token of its own")


async def _search(subject: Subject, task_id: str, tokens: list[str]) -> None:
    store = subject.store
    reads = (await subject.snapshot(), await store.get(task_id), await store.find("k"), await store.workers())
    shown = repr(reads) + msgspec.json.encode(reads).decode()
    that(not any(token in shown or token.replace("-", "") in shown for token in tokens), "no read shows a token")


@case("C1", "C15")
async def a_refusal_shows_no_token(subject: Subject) -> None:
    task_id = await subject.submit()
    lease = (await subject.claim(task_id)).lease
    stale = Lease(task_id, lease.attempt + 1, lease.token)
    texts = [
        str(await refused(subject.claim(task_id), TaskAlreadyClaimed)),
        str(await refused(subject.settle(stale, Completed()), LeaseLost)),
        str(await refused(subject.extend(stale), LeaseLost)),
    ]
    that(all(lease.token not in text for text in texts), "no refusal shows a token")


@case("C1", "C6.3")
async def a_lease_is_expired_from_its_very_instant_on(subject: Subject) -> None:
    task_id = await subject.submit()
    claim = await subject.claim(task_id)
    subject.clock.advance(claim.lease_expires_at - subject.clock.now() - timedelta(microseconds=1))
    equal(await subject.reap(), [], "a microsecond before, it is held")
    await subject.progress(claim.lease)
    subject.clock.advance(timedelta(microseconds=1))
    await subject.refuses(subject.progress(claim.lease), LeaseLost)
    equal(len(await subject.reap()), 1, "at that instant, it is not")


@case("C1")
async def the_store_tells_its_own_time_in_utc(subject: Subject) -> None:
    equal(await subject.store.now(), subject.clock.now(), "the store's clock decides")
    subject.clock.advance(1.5)
    now = await subject.store.now()
    equal(now, subject.clock.now(), "it is read at the moment of asking")
    equal(now.utcoffset(), timedelta(0), "instants are aware, in UTC")


@case("C2")
async def a_record_shows_what_was_submitted(subject: Subject) -> None:
    run_at = from_micros(subject.clock.micros() + 7_000_001)
    parent, new = with_parent(
        name="mail.send",
        queue="mail",
        payload='{"args":[7],"kwargs":{}}',
        priority=-32768,
        run_at=run_at,
        max_attempts=0,
        backoff=Linear(2.0, 9.0),
        timeout=12.5,
        lease=33.25,
        idempotency_key="welcome:7",
        concurrency_key="tenant-1",
        run_id="run-1",
        meta='{"trace":"abc"}',
    )
    await subject.submit_all(parent, new)
    task = await subject.get(new.id)
    for field in ("name", "queue", "priority", "run_at", "max_attempts", "backoff", "timeout", "lease", "run_id"):
        equal(getattr(task, field), getattr(new, field), f"{field} is kept")
    equal((task.idempotency_key, task.concurrency_key), ("welcome:7", "tenant-1"), "keys are kept")
    equal((task.payload, task.meta), ({"args": [7], "kwargs": {}}, {"trace": "abc"}), "JSON is decoded")
    equal((task.parents, task.on_parent_failure), ([parent.id], "cancel"), "parents are kept")


@case("C2")
async def a_new_record_has_the_defaults_of_the_contract(subject: Subject) -> None:
    now = subject.clock.now()
    task = await subject.get(await subject.submit())
    equal((task.queue, task.priority, task.max_attempts), ("default", 0, 5), "defaults of queue, priority, budget")
    equal((task.status, task.attempt, task.failures), (TaskStatus.QUEUED, 0, 0), "it starts queued at nought")
    equal((task.run_at, task.created_at), (now, now), "it is due at the store's now")
    empty = (task.claimed_by, task.lease_expires_at, task.cancel_requested_at, task.canceled_because, task.started_at)
    equal(empty, (None,) * 5, "nobody has touched it")
    equal((task.claimed_at, task.finished_at, task.result, task.last_error), (None,) * 4, "nothing has happened")
    equal(
        (task.idempotency_key, task.concurrency_key, task.run_id, task.parents, task.meta),
        (None, None, None, [], {}),
        "nor was more asked for",
    )


@case("C2", "C7.2")
async def last_error_has_the_fields_of_the_contract(subject: Subject) -> None:
    task_id = await subject.submit(max_attempts=2)
    error = ErrorInfo("no route", "ConnectTimeout", "File …, line 3")
    await subject.settle((await subject.claim(task_id)).lease, Failed(error, retry_after_seconds=2.5))
    shown = present((await subject.get(task_id)).last_error, "last_error")
    failed_at, due_at = subject.clock.now(), subject.clock.now() + timedelta(seconds=2.5)
    expected = {
        "ts": _text(failed_at.isoformat()),
        "message": "no route",
        "code": "ConnectTimeout",
        "stack": "File …, line 3",
        "attempt": 1,
        "max_attempts": 2,
        "terminal": False,
        "backoff_ms": 2500,
        "next_available_at": _text(due_at.isoformat()),
    }
    equal(shown, expected, "last_error after a retryable failure")
    subject.clock.advance(3)
    await subject.settle((await subject.claim(task_id)).lease, Failed(ErrorInfo("again")))
    shown = present((await subject.get(task_id)).last_error, "last_error")
    expected = {
        "ts": _text(subject.clock.now().isoformat()),
        "message": "again",
        "attempt": 2,
        "max_attempts": 2,
        "terminal": True,
    }
    equal(shown, expected, "last_error of a dead letter")


def _text(instant: str) -> str:
    return instant.replace("+00:00", "Z")
