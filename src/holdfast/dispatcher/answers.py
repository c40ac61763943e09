"""From values of the model to the wire, where they do not pass as they are: texts of JSON become the values that they
stand for, without being decoded.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from holdfast.dispatcher import wire
from holdfast.dispatcher.problems import refused
from holdfast.errors import HoldfastError
from holdfast.model.claim import Claim, Claimed, Extended
from holdfast.model.output import OutputRow
from holdfast.model.schedule import Schedule
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Amended, Settled
from holdfast.model.workflow import ParentEnd, Step
from holdfast.policy.outputs import shown_pins

NULL = Raw(b"null")
NO_META = Raw(b"{}")


def raw(text: str | None) -> Raw:
    return NULL if text is None else Raw(text)


def _meta(text: str | None) -> Raw:
    """As the record shows it."""
    return NO_META if text is None else Raw(text)


def claim(given: Claim) -> wire.ClaimOut:
    lease = given.lease
    return wire.ClaimOut(
        task_id=lease.task_id,
        attempt=lease.attempt,
        lease_token=lease.token,
        lease_expires_at=given.lease_expires_at,
        lease_seconds=given.lease_seconds,
        worker_id=given.worker_id,
        name=given.name,
        queue=given.queue,
        payload=Raw(given.payload),
        priority=given.priority,
        failures=given.failures,
        max_attempts=given.max_attempts,
        timeout=given.timeout,
        run_id=given.run_id,
        meta=_meta(given.meta),
        created_at=given.created_at,
        claimed_at=given.claimed_at,
    )


def claimed(given: Claimed) -> wire.ClaimAnswer:
    return wire.ClaimAnswer(claims=[claim(one) for one in given.claims], next_due_at=given.next_due_at, more=given.more)


def extended(given: Extended | HoldfastError) -> wire.ExtendedItem:
    if isinstance(given, HoldfastError):
        return wire.ExtendedItem(error=refused(given))
    return wire.ExtendedItem(lease_expires_at=given.expires_at, cancel_requested=given.cancel_requested)


def settled(given: Settled | HoldfastError) -> wire.SettledItem:
    if isinstance(given, HoldfastError):
        return wire.SettledItem(error=refused(given))
    return wire.SettledItem(task_id=given.task_id, attempt=given.attempt, status=given.status)


def amended(given: Amended | HoldfastError) -> wire.AmendedItem:
    if isinstance(given, HoldfastError):
        return wire.AmendedItem(error=refused(given))
    return wire.AmendedItem(task_id=given.task_id, status=given.status, changed=given.changed)


def parent(given: ParentEnd) -> wire.ParentOut:
    result = given.result if given.status is TaskStatus.COMPLETED else None
    return wire.ParentOut(
        task_id=given.task_id, name=given.name, status=given.status, result=raw(result), error=given.error
    )


def step(given: Step) -> wire.StepOut:
    return wire.StepOut(name=given.name, result=Raw(given.result), at=given.at)


def row(given: OutputRow) -> wire.RowOut:
    return wire.RowOut(key=given.key, value=Raw(given.value))


def schedule(given: Schedule) -> wire.ScheduleOut:
    return wire.ScheduleOut(
        name=given.name,
        timing=given.timing,
        task=_template(given.task),
        paused=given.paused,
        created_at=given.created_at,
        last_fired_at=given.last_fired_at,
        declared_at=given.declared_at,
    )


def schedules(given: Sequence[Schedule]) -> wire.SchedulesAnswer:
    return wire.SchedulesAnswer(schedules=[schedule(one) for one in given])


def _template(given: NewTask) -> wire.TemplateOut:
    return wire.TemplateOut(
        name=given.name,
        payload=Raw(given.payload),
        queue=given.queue,
        priority=given.priority,
        max_attempts=given.max_attempts,
        backoff=given.backoff,
        timeout=given.timeout,
        lease=given.lease,
        concurrency_key=given.concurrency_key,
        run_id=given.run_id,
        meta=_meta(given.meta),
        inputs=shown_pins(given.inputs),
    )
