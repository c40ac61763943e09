"""What is not the same on the wire as in the model: how the dispatcher writes it (`…_out`), and below each, how
stores/remote reads it back.

JSON of users is a text in the model and a value on the wire; neither way is it decoded. What only one side does is
elsewhere: the checks of what strangers send in admission.py, what our own store sends in stores/remote/forms.py.
"""

from __future__ import annotations

from msgspec import Raw

from holdfast.dispatcher import wire, wire_data, wire_flows, wire_work
from holdfast.model.claim import Claim, Lease
from holdfast.model.output import OutputRow
from holdfast.model.schedule import Schedule
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.workflow import ParentEnd, Step
from holdfast.policy.outputs import checked_pins, shown_pins

NULL = Raw(b"null")
NO_META = Raw(b"{}")
_NO_META = (b"{}", b"null")


def text(raw: Raw) -> str:
    return bytes(raw).decode()


def _meta_out(given: str | None) -> Raw:
    """As the record shows it."""
    return NO_META if given is None else Raw(given)


def _meta(shown: Raw) -> str | None:
    """What has none says `{}`; dispatchers of before said null."""
    given = bytes(shown)
    return None if given in _NO_META else given.decode()


def claim_out(given: Claim) -> wire_work.ClaimOut:
    lease = given.lease
    return wire_work.ClaimOut(
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
        meta=_meta_out(given.meta),
        created_at=given.created_at,
        claimed_at=given.claimed_at,
    )


def claim(shown: wire_work.ClaimOut) -> Claim:
    return Claim(
        lease=Lease(shown.task_id, shown.attempt, shown.lease_token),
        worker_id=shown.worker_id,
        lease_expires_at=shown.lease_expires_at,
        lease_seconds=shown.lease_seconds,
        name=shown.name,
        queue=shown.queue,
        payload=text(shown.payload),
        priority=shown.priority,
        failures=shown.failures,
        max_attempts=shown.max_attempts,
        timeout=shown.timeout,
        run_id=shown.run_id,
        meta=_meta(shown.meta),
        created_at=shown.created_at,
        claimed_at=shown.claimed_at,
    )


def parent_out(given: ParentEnd) -> wire.ParentOut:
    result = NULL if given.result is None or given.status is not TaskStatus.COMPLETED else Raw(given.result)
    return wire.ParentOut(task_id=given.task_id, name=given.name, status=given.status, result=result, error=given.error)


def parent(shown: wire.ParentOut) -> ParentEnd:
    """`null` is the result of one that completed with it; of others it stands for none."""
    return ParentEnd(
        task_id=shown.task_id,
        name=shown.name,
        status=shown.status,
        result=text(shown.result) if shown.status is TaskStatus.COMPLETED else None,
        error=shown.error,
    )


def step_out(given: Step) -> wire_work.StepOut:
    return wire_work.StepOut(name=given.name, result=Raw(given.result), at=given.at)


def step(shown: wire_work.StepOut) -> Step:
    return Step(shown.name, text(shown.result), shown.at)


def row_out(given: OutputRow) -> wire_data.RowOut:
    return wire_data.RowOut(key=given.key, value=Raw(given.value))


def row(shown: wire_data.RowOut) -> OutputRow:
    return OutputRow(shown.key, text(shown.value))


def schedule_out(given: Schedule) -> wire_flows.ScheduleOut:
    return wire_flows.ScheduleOut(
        name=given.name,
        timing=given.timing,
        task=_template_out(given.task),
        paused=given.paused,
        created_at=given.created_at,
        last_fired_at=given.last_fired_at,
        declared_at=given.declared_at,
    )


def schedule(shown: wire_flows.ScheduleOut) -> Schedule:
    return Schedule(
        name=shown.name,
        timing=shown.timing,
        task=_template(shown.task),
        paused=shown.paused,
        created_at=shown.created_at,
        last_fired_at=shown.last_fired_at,
        declared_at=shown.declared_at,
    )


def _template_out(given: NewTask) -> wire_flows.TemplateOut:
    return wire_flows.TemplateOut(
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
        meta=_meta_out(given.meta),
        inputs=shown_pins(given.inputs),
    )


def _template(shown: wire_flows.TemplateOut) -> NewTask:
    """What a schedule submits."""
    return NewTask(
        id="",
        name=shown.name,
        payload=text(shown.payload),
        queue=shown.queue,
        priority=shown.priority,
        max_attempts=shown.max_attempts,
        backoff=shown.backoff,
        timeout=shown.timeout,
        lease=shown.lease,
        concurrency_key=shown.concurrency_key,
        run_id=shown.run_id,
        meta=_meta(shown.meta),
        inputs=checked_pins(shown.inputs),
    )
