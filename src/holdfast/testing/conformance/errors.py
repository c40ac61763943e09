"""Section 15: one tree of errors, the same from every store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from holdfast import errors, ids
from holdfast.errors import HoldfastError, StoreClosed, StoreUnavailable, TaskCompleted, TaskNotFound
from holdfast.model.claim import Lease
from holdfast.model.outbox import Delivery, Effect, NewSink
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.query import Retention, TaskFilter
from holdfast.model.task import TaskStatus
from holdfast.model.token import NewToken, Scope
from holdfast.model.transition import Change
from holdfast.stores.protocol import Store
from holdfast.testing.conformance.checks import equal, refused, that
from holdfast.testing.conformance.registry import case
from holdfast.testing.conformance.subject import OPERATOR, REAPER, Subject, claim_request, new_task, worker_info

TREE: tuple[type[HoldfastError], ...] = (
    errors.TaskNotFound,
    errors.TaskAlreadyClaimed,
    errors.TaskNotClaimed,
    errors.TaskNotReady,
    errors.TaskCompleted,
    errors.TaskFailed,
    errors.TaskCanceled,
    errors.MaxAttemptsReached,
    errors.InvalidTask,
    errors.PayloadTooLarge,
    errors.IdempotencyConflict,
    errors.InvalidWorkerID,
    errors.WrongWorker,
    errors.LeaseLost,
    errors.StoreClosed,
    errors.StoreUnavailable,
    errors.SchemaMismatch,
    errors.NotSupported,
    errors.TaskNotRegistered,
    errors.CycleError,
    errors.RunNotFound,
    errors.ScheduleNotFound,
    errors.DatasetNotFound,
    errors.Unauthorized,
    errors.Forbidden,
)

LEASE = Lease(ids.task_id(), 1, ids.token())

CALLS: dict[str, Callable[[Store], Awaitable[Any]]] = {
    "submit": lambda store: store.submit([new_task()]),
    "claim": lambda store: store.claim(claim_request()),
    "claim by id": lambda store: store.claim(claim_request(task_id=LEASE.task_id)),
    "extend": lambda store: store.extend([LEASE]),
    "settle": lambda store: store.settle([Settlement(LEASE, Completed())]),
    "reap": lambda store: store.reap(limit=1, actor=REAPER),
    "amend": lambda store: store.amend(Change.CANCEL, [LEASE.task_id], actor=OPERATOR),
    "prune": lambda store: store.prune(Retention(), limit=1),
    "report": lambda store: store.report(LEASE, "task.progress", {}),
    "get": lambda store: store.get(LEASE.task_id),
    "find": lambda store: store.find("k"),
    "page": lambda store: store.page(TaskFilter()),
    "events": lambda store: store.events(None, after=0, limit=1),
    "last_event": lambda store: store.last_event(),
    "oldest_due": lambda store: store.oldest_due(),
    "queues": lambda store: store.queues(),
    "now": lambda store: store.now(),
    "pause": lambda store: store.pause("default", paused=True),
    "enroll": lambda store: store.enroll(worker_info()),
    "leave": lambda store: store.leave("worker-1"),
    "workers": lambda store: store.workers(),
    "evict": lambda store: store.evict(actor=REAPER),
}
BY_ABILITY: dict[str, dict[str, Callable[[Store], Awaitable[Any]]]] = {
    "outbox": {
        "declare_sink": lambda store: store.declare_sink(NewSink(name="s", url="https://x", effect=Effect.ROUTE)),
        "delete_sink": lambda store: store.delete_sink("s"),
        "sinks": lambda store: store.sinks(),
        "targets": lambda store: store.targets(),
        "take_outbox": lambda store: store.take_outbox(["s"], limit=1, hold="h", hold_seconds=1.0),
        "record_deliveries": lambda store: store.record_deliveries([Delivery(row_id=1, hold="h")]),
        "outbox": lambda store: store.outbox(sink=None, state=None, limit=1, after=0),
        "requeue_outbox": lambda store: store.requeue_outbox([1]),
        "purge_outbox": lambda store: store.purge_outbox([1]),
    },
    "outputs": {
        "datasets": lambda store: store.datasets(limit=1, after=None),
        "dataset_versions": lambda store: store.dataset_versions("d", limit=1, before=None),
        "dataset_version": lambda store: store.dataset_version("d", None),
        "dataset_rows": lambda store: store.dataset_rows("d", 1, after=None, limit=1),
        "pinned": lambda store: store.pinned(LEASE.task_id),
    },
    "tokens": {
        "add_token": lambda store: store.add_token(NewToken(id="1", name="n", scopes=(Scope.READ,), digest="d")),
        "token": lambda store: store.token("1"),
        "tokens": lambda store: store.tokens(),
        "revoke_token": lambda store: store.revoke_token("1"),
    },
}


def calls(subject: Subject) -> list[Callable[[Store], Awaitable[Any]]]:
    """Everything that this store can be asked."""
    able = [more for ability, more in BY_ABILITY.items() if subject.lacks([ability]) is None]
    return [call for known in (CALLS, *able) for call in known.values()]


@case("C15")
async def every_error_is_in_the_tree_with_a_code_of_its_own(subject: Subject) -> None:  # noqa: ARG001
    codes = {error.code for error in TREE} | {HoldfastError.code}
    equal(len(codes), len(TREE) + 1, "no code is used twice")
    that(all(code == code.lower() and code.replace("_", "").isalpha() for code in codes), "codes are plain words")


@case("C15")
async def a_closed_handle_refuses_every_call(subject: Subject) -> None:
    other = await subject.another_handle()
    await other.close()
    for call in calls(subject):
        await subject.refuses(call(other), StoreClosed)


@case("C15")
async def closing_a_handle_twice_is_closing_it_once(subject: Subject) -> None:
    other = await subject.another_handle()
    await other.close()
    await other.close()
    await subject.submit()


@case("C15", "C6.8", needs=("outage",))
async def a_store_that_is_away_says_so(subject: Subject) -> None:
    task_id = await subject.submit()
    async with subject.outage():
        for call in calls(subject):
            await refused(call(subject.store), StoreUnavailable)
    equal((await subject.get(task_id)).status, TaskStatus.QUEUED, "and all is there when it is back")
    equal(len((await subject.snapshot()).tasks), 1, "what was refused has not happened")


@case("C15")
async def not_found_goes_before_everything_else(subject: Subject) -> None:
    await subject.submit()
    await subject.refuses(subject.claim(LEASE.task_id), TaskNotFound)
    await subject.refuses(subject.settle(LEASE, Completed()), TaskNotFound)
    refusal = await subject.refuses(subject.amend(Change.RELEASE, LEASE.task_id), TaskNotFound)
    that(LEASE.task_id in str(refusal), "the refusal names the task")


@case("C15")
async def a_terminal_state_goes_before_what_else_is_wrong(subject: Subject) -> None:
    task_id = await subject.run_to(TaskStatus.COMPLETED)
    await subject.store.pause("default", paused=True)
    await subject.refuses(subject.claim(task_id), TaskCompleted)
    await subject.refuses(subject.amend(Change.RELEASE, task_id), TaskCompleted)


@case("C15")
async def a_refusal_among_many_is_an_answer_not_an_exception(subject: Subject) -> None:
    task_id = await subject.submit()
    answers = await subject.store.amend(Change.CANCEL, [ids.task_id(), task_id], actor=OPERATOR)
    equal([isinstance(answer, HoldfastError) for answer in answers], [True, False], "the other one is done")
    equal((await subject.get(task_id)).status, TaskStatus.CANCELED, "and recorded")
