"""What this store sends: from the model to the wire. JSON of users passes as it is.

How answers are read stands where they are written, in dispatcher/both_ways.py.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import UNSET, Raw, UnsetType

from holdfast.dispatcher import wire, wire_flows, wire_work
from holdfast.errors import InvalidTask
from holdfast.model.claim import Lease
from holdfast.model.outcome import Canceled, Completed, Failed, Outcome, Recorded, Released, Settlement, Snoozed
from holdfast.model.output import Output
from holdfast.model.schedule import Timing
from holdfast.model.task import NewTask
from holdfast.policy.admission import checked_name
from holdfast.policy.outputs import shown_pins
from holdfast.policy.verdict import UNDONE


def maybe_raw(given: str | None) -> Raw | UnsetType:
    return UNSET if given is None else Raw(given)


def nameable(text: str) -> bool:
    """Can anything have this name? What cannot is not there; a dispatcher would not even look."""
    try:
        checked_name(text, what="it")
    except InvalidTask:
        return False
    return True


# Tasks


def task_in(new: NewTask) -> wire.NewTaskIn:
    return wire.NewTaskIn(
        id=new.id or None,
        name=new.name,
        payload=Raw(new.payload),
        queue=new.queue,
        priority=new.priority,
        run_at=new.run_at,
        delay_seconds=new.delay_seconds,
        max_attempts=new.max_attempts,
        backoff=new.backoff,
        timeout=new.timeout,
        lease=new.lease,
        idempotency_key=new.idempotency_key,
        concurrency_key=new.concurrency_key,
        run_id=new.run_id,
        parents=list(new.parents),
        on_parent_failure=cast(Any, new.on_parent_failure),
        fail_fast=new.fail_fast,
        meta=maybe_raw(new.meta),
        inputs=shown_pins(new.inputs),
    )


# Ends


def lease_in(lease: Lease) -> wire_work.LeaseIn:
    return wire_work.LeaseIn(task_id=lease.task_id, attempt=lease.attempt, lease_token=lease.token)


def settlement_in(settlement: Settlement) -> wire_work.SettlementIn:
    lease = settlement.lease
    return wire_work.SettlementIn(
        task_id=lease.task_id,
        attempt=lease.attempt,
        lease_token=lease.token,
        events=[wire_work.EmittedIn(kind=one.kind, payload=any_raw(one.data)) for one in settlement.emitted],
        follow_ups=[task_in(new) for new in settlement.follow_ups],
        outputs=[output_in(output) for output in settlement.outputs],
        **_ended(settlement.outcome),
    )


def _ended(outcome: Outcome) -> dict[str, Any]:
    match outcome:
        case Completed(result):
            return {"status": "completed", "result": Raw(result)}
        case Failed():
            return {"status": "failed", "error": _error_in(outcome)}
        case Snoozed(seconds):
            return {"status": "snoozed", "delay_ms": 1000 * seconds}
        case Released():
            return {"status": "released"}
        case Canceled():
            return {"status": "canceled"}
        case Recorded():  # through a dispatcher no handler has a transaction of its own, so none was committed
            return _ended(Failed(UNDONE))


def _error_in(failed: Failed) -> wire_work.ErrorIn:
    after = failed.retry_after_seconds
    return wire_work.ErrorIn(
        message=failed.error.message,
        code=failed.error.code,
        stack=failed.error.stack,
        unrecoverable=failed.unrecoverable,
        retry_after_ms=None if after is None else 1000 * after,
    )


def output_in(output: Output) -> wire_work.OutputIn:
    rows = [wire_work.OutputRowIn(key=row.key, value=Raw(row.value)) for row in output.rows]
    return wire_work.OutputIn(dataset=output.dataset, mode=output.mode, rows=rows)


# Besides


def timing_in(timing: Timing) -> wire_flows.TimingIn:
    return wire_flows.TimingIn(
        cron=timing.cron,
        timezone=timing.timezone,
        every=timing.every,
        jitter=timing.jitter,
        missed=cast(Any, timing.missed),
        missed_most=timing.missed_most,
    )


def any_raw(data: Any) -> Raw:
    return Raw(msgspec.json.encode(data))
