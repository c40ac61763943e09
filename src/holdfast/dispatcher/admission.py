"""From what strangers send to values of the model: as checked as what our own client makes (policy/admission.py).

JSON values are decoded for the check alone and written anew, as our own client would have written them: without white
space, of a key that is given twice the last one. So a value comes back equal and of the same type, and the same task
sent twice is the same, however its sender formats JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast import ids
from holdfast.dispatcher import wire, wire_data, wire_flows, wire_work
from holdfast.errors import InvalidTask, PayloadTooLarge
from holdfast.model.claim import ClaimRequest, Lease
from holdfast.model.limits import WHOLE_STORE
from holdfast.model.outbox import Effect, NewSink
from holdfast.model.outcome import (
    Canceled,
    Completed,
    Emitted,
    ErrorInfo,
    Failed,
    Outcome,
    Released,
    Settlement,
    Snoozed,
)
from holdfast.model.output import Output
from holdfast.model.query import WorkerInfo
from holdfast.model.schedule import NewSchedule
from holdfast.model.task import NewTask
from holdfast.policy import firing, outputs
from holdfast.policy.admission import (
    META_BYTES,
    PAYLOAD_BYTES,
    WORKFLOW_EDGES,
    checked_instant,
    checked_name,
    checked_worker_id,
    json_text,
    maybe_name,
)
from holdfast.policy.backoff import as_backoff
from holdfast.policy.error_text import MESSAGE_CHARS, STACK_CHARS, safe_text
from holdfast.policy.sinks import webhook_sink
from holdfast.settings import Defaults

PROGRESS = "task.progress"
PROGRESS_FIELDS = {"done", "total", "message"}
RESERVED_KINDS = ("task.", "run.")
CODE_CHARS = 200
EVENTS_MOST = 1000
FOLLOW_UPS_MOST = 10_000
NAMES_MOST = 10_000
SINK_EFFECTS = {
    "http": Effect.ROUTE,
    "https": Effect.ROUTE,
    "sqs": Effect.WAKE,
    "sqs+http": Effect.WAKE,
    "nats": Effect.WAKE,
}

_decode = msgspec.json.Decoder().decode


class Terms(msgspec.Struct, frozen=True):
    """What a task gets that says nothing else, and how large one may be."""

    defaults: Defaults = Defaults()
    payload_bytes: int = PAYLOAD_BYTES


# JSON values


def value_of(raw: Raw, *, what: str) -> Any:
    try:
        return _decode(raw)
    except RecursionError:
        raise InvalidTask(f"{what} is nested too deeply") from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as wrong:
        raise InvalidTask(f"{what} is no JSON that can be kept: {wrong}") from None


def text_of(raw: Raw, *, what: str, limit_bytes: int = PAYLOAD_BYTES) -> str:
    return json_text(value_of(raw, what=what), what=what, limit_bytes=limit_bytes)


def object_of(raw: Raw, *, what: str) -> dict[str, Any]:
    """A small object, of the caller's own making."""
    value = value_of(raw, what=what)
    if type(value) is not dict:
        raise InvalidTask(f"{what} is no object; give one such as {{}}")
    json_text(value, what=what, limit_bytes=META_BYTES)
    return value


def _meta(raw: Raw | UnsetType) -> str | None:
    if raw is UNSET or bytes(raw) == b"null":
        return None
    given = object_of(raw, what="meta")
    return json_text(given, what="meta", limit_bytes=META_BYTES) if given else None


def maybe_instant(text: str | None, *, what: str) -> datetime | None:
    """Of a parameter behind the `?`."""
    if text is None:
        return None
    try:
        return checked_instant(msgspec.convert(text, datetime), what=what)
    except msgspec.ValidationError:
        raise InvalidTask(f"{what} is {text[:100]!r}; give an instant such as 2030-01-01T00:00:00Z") from None


# Tasks


def new_tasks(given: Sequence[wire.NewTaskIn], terms: Terms) -> list[NewTask]:
    if sum(len(task.parents) for task in given) > WORKFLOW_EDGES:
        raise InvalidTask(f"a submit has at most {WORKFLOW_EDGES:,} edges")
    made = iter(ids.task_ids(sum(task.id is None for task in given)))
    return [new_task(task, task.id or next(made), terms) for task in given]


def new_task(given: wire.NewTaskIn, task_id: str, terms: Terms) -> NewTask:
    if given.run_at is not None and given.delay_seconds:
        raise InvalidTask("give `delay_seconds` or `run_at`, not both")
    budget = terms.defaults.max_attempts if given.max_attempts is None else given.max_attempts
    return NewTask(
        id=task_id,
        name=checked_name(given.name, what="the task name"),
        payload=text_of(given.payload, what="the payload", limit_bytes=terms.payload_bytes),
        queue=_queue(given.queue),
        priority=given.priority,
        run_at=None if given.run_at is None else checked_instant(given.run_at, what="run_at"),
        delay_seconds=given.delay_seconds,
        max_attempts=budget,
        backoff=terms.defaults.backoff if given.backoff is None else as_backoff(given.backoff, budget),
        timeout=given.timeout,
        lease=given.lease,
        idempotency_key=maybe_name(given.idempotency_key, what="the idempotency key"),
        concurrency_key=maybe_name(given.concurrency_key, what="the concurrency key"),
        run_id=maybe_name(given.run_id, what="the run id"),
        parents=tuple(given.parents),
        on_parent_failure=given.on_parent_failure,
        fail_fast=maybe_name(given.fail_fast, what="fail_fast"),
        meta=_meta(given.meta),
        inputs=outputs.checked_pins(given.inputs) if given.inputs else (),
    )


def _queue(name: str) -> str:
    return name if name == "default" else checked_name(name, what="the queue")


# Work


def claim_request(given: wire_work.ClaimCall) -> ClaimRequest:
    return ClaimRequest(
        worker_id=checked_worker_id(given.worker_id),
        claim_id=given.claim_id or ids.token(),
        queues=None if given.queues is None else tuple(_queue(name) for name in given.queues),
        limit=given.limit,
        lease_seconds=given.lease_seconds,
        task_id=given.task_id,
    )


def lease(given: wire_work.LeaseIn) -> Lease:
    return Lease(given.task_id, given.attempt, given.lease_token)


def settlement(given: wire_work.SettlementIn, terms: Terms) -> Settlement:
    if len(given.events) > EVENTS_MOST or len(given.follow_ups) > FOLLOW_UPS_MOST:
        raise PayloadTooLarge(f"one attempt tells {EVENTS_MOST:,} events and {FOLLOW_UPS_MOST:,} follow-ups at most")
    return Settlement(
        lease(given),
        _outcome(given),
        tuple(_emitted(event) for event in given.events) if given.events else (),
        tuple(new_tasks(given.follow_ups, terms)) if given.follow_ups else (),
        _outputs(given.outputs) if given.outputs else (),
    )


def _outcome(given: wire_work.SettlementIn) -> Outcome:
    match given.status:
        case "completed":
            return Completed("null" if given.result is UNSET else text_of(given.result, what="the result"))
        case "failed":
            return _failed(given.error)
        case "snoozed":
            if given.delay_ms is None:
                raise InvalidTask("a snooze needs `delay_ms`")
            return Snoozed(given.delay_ms / 1000)
        case "released":
            return Released()
        case "canceled":
            return Canceled()


def _failed(error: wire_work.ErrorIn | None) -> Failed:
    if error is None:
        raise InvalidTask("a failure needs `error`, with a message")
    info = ErrorInfo(
        message=safe_text(error.message, MESSAGE_CHARS),
        code=None if error.code is None else safe_text(error.code, CODE_CHARS),
        stack=None if error.stack is None else safe_text(error.stack, STACK_CHARS),
    )
    after = error.retry_after_ms
    return Failed(info, error.unrecoverable, None if after is None else after / 1000)


def _emitted(given: wire_work.EmittedIn) -> Emitted:
    kind = _own_kind(given.kind)
    return Emitted(kind, object_of(given.payload, what=f"the payload of event {kind!r}"))


def _own_kind(kind: str) -> str:
    if checked_name(kind, what="the event kind").startswith(RESERVED_KINDS):
        raise InvalidTask(f"event kind {kind!r}: kinds that start with task. or run. are Holdfast's own")
    return kind


def _outputs(given: Sequence[wire_work.OutputIn]) -> tuple[Output, ...]:
    made = outputs.merged([_output(output) for output in given])
    outputs.check(made)
    return made


def _output(given: wire_work.OutputIn) -> Output:
    dataset = checked_name(given.dataset, what="the dataset")
    rows = (outputs.checked_row(row.key, value_of(row.value, what=f"row {row.key!r}")) for row in given.rows)
    return Output(dataset, given.mode, tuple(rows))


def report(given: wire_work.ReportCall) -> tuple[str, dict[str, Any]]:
    """Kind and data. Progress has the fields that it has, since readers of events rely on them."""
    data = object_of(given.data, what="the data")
    if given.kind != PROGRESS:
        return _own_kind(given.kind), data
    if not data.keys() <= PROGRESS_FIELDS:
        raise InvalidTask(f"progress has {', '.join(sorted(PROGRESS_FIELDS))}, and nothing else")
    return PROGRESS, data


def step(given: wire_work.StepCall) -> tuple[str, str]:
    name = checked_name(given.name, what="the step name")
    return name, text_of(given.result, what=f"the result of step {name!r}")


def worker(given: wire_work.EnrollCall) -> WorkerInfo:
    """Nothing here can show whether it lives: that is what `remote` says."""
    if len(given.names) > NAMES_MOST or len(given.queues or ()) > NAMES_MOST:
        raise InvalidTask(f"a worker names at most {NAMES_MOST:,} tasks and queues")
    return WorkerInfo(
        id=checked_worker_id(given.id),
        host=safe_text(given.host, CODE_CHARS),
        pid=given.pid,
        queues=given.queues,
        concurrency=given.concurrency,
        version=safe_text(given.version, CODE_CHARS),
        names=given.names,
        remote=True,
    )


# Acts


def one_queue(name: str) -> str:
    if checked_name(name, what="the queue") == WHOLE_STORE:
        raise InvalidTask("'*' is the whole store, which can be limited but not paused; pause its queues one by one")
    return name


def limit_changes(given: wire_flows.LimitCall) -> dict[str, Any]:
    named = ("max_running", "rate", "burst", "max_running_per_key")
    return {name: value for name in named if (value := getattr(given, name)) is not UNSET}


def schedule(given: wire_flows.DeclareScheduleCall, terms: Terms) -> NewSchedule:
    when = given.timing
    timing = firing.timing_of(
        when.cron,
        when.every,
        timezone=when.timezone,
        jitter=when.jitter,
        missed=when.missed,
        missed_most=when.missed_most,
    )
    if given.task.parents:
        raise InvalidTask("the task of a schedule has no parents")
    return firing.new_schedule(given.name, timing, new_task(given.task, "", terms), declared=given.declared)


def sink(given: wire_data.SinkCall) -> NewSink:
    scheme = given.url.partition(":")[0]
    if scheme not in SINK_EFFECTS or SINK_EFFECTS[scheme] is not given.effect:
        raise InvalidTask("a sink is told events at https://…, or is woken at sqs://… or nats://…")
    if given.effect is Effect.ROUTE:
        return webhook_sink(
            given.url,
            secret=given.secret,
            kinds=given.kinds,
            queues=given.queues,
            name=given.name,
            private=given.private,
        )
    return NewSink(
        name=checked_name(given.name, what="the sink's name"),
        url=_shown_url(given.url),
        effect=given.effect,
        queues=None if given.queues is None else tuple(_queue(name) for name in given.queues),
        secret=maybe_name(given.secret, what="the secret"),
    )


def _shown_url(url: str) -> str:
    """Of a sink, as people see it: credentials are its secret."""
    checked_name(url, what="the sink's URL")
    try:
        place = urlsplit(url).netloc
    except ValueError:
        raise InvalidTask("the sink's URL cannot be read") from None
    if "@" in place:
        raise InvalidTask("the sink's URL is shown and must not hold credentials; give them as `secret`")
    return url
