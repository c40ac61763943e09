"""Rows as values: the record that verbs change, the record that people read, claims, events.

A batch of rows comes as one JSON text (see statements.py), so every column that matters here is an integer or a text:
SQLite prints floats with 15 digits, which would not be the number that was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast.clock import from_micros, maybe_from_micros
from holdfast.model.backoff import Backoff
from holdfast.model.claim import Lease
from holdfast.model.event import Event, recorded_error, recorded_event
from holdfast.model.output import Pin
from holdfast.model.task import Task, TaskStatus
from holdfast.policy.outputs import shown_pins
from holdfast.policy.verdict import Facts
from holdfast.stores.sqlite.statements import json_param

APART_CHARS = 2000
"""Payloads and results longer than this live in tables of their own."""
_CACHED = 4096


class Policy(msgspec.Struct, frozen=True, array_like=True):
    """What travels with the task and never changes."""

    backoff: Backoff
    timeout: float | None
    lease: float | None


_policy_texts: dict[tuple[Backoff, float | None, float | None], str] = {}
_policies: dict[str, Policy] = {}
_policy_decoder = msgspec.json.Decoder(Policy)
_pins_decoder = msgspec.json.Decoder(list[tuple[str, int | None]])


def policy_text(backoff: Backoff, timeout: float | None, lease: float | None) -> str:
    key = (backoff, timeout, lease)
    text = _policy_texts.get(key)
    if text is None:
        text = msgspec.json.encode(Policy(*key)).decode()
        if len(_policy_texts) < _CACHED:
            _policy_texts[key] = text
    return text


def policy_of(text: str) -> Policy:
    policy = _policies.get(text)
    if policy is None:
        policy = _policy_decoder.decode(text)
        if len(_policies) < _CACHED:
            _policies[text] = policy
    return policy


def inputs_text(pins: Sequence[Pin]) -> str | None:
    return json_param([(pin.dataset, pin.version) for pin in pins]) if pins else None


def pins_of(text: str | None) -> tuple[Pin, ...]:
    return () if text is None else tuple(Pin(*pair) for pair in _pins_decoder.decode(text))


class Record(msgspec.Struct, array_like=True, gc=False):
    """What verbs read and change of a task: the columns of load.sql and, from `status` on, of save.sql."""

    seq: int
    id: str
    name: str
    queue: str
    run_id: str | None
    max_attempts: int
    policy: str
    attempt: int
    claimed_at: int | None
    lease_length: int
    last_error_code: str | None
    dependents: int
    delay: int | None
    fail_fast: str | None
    on_parent_failure: str
    concurrency_key: str | None
    status: TaskStatus
    run_at: int
    failures: int
    claimed_by: str | None
    token: str | None
    claim_id: str | None
    lease_expires_at: int | None
    settled_token: str | None
    settled_as: str | None
    settled_status: TaskStatus | None
    cancel_requested_at: int | None
    canceled_because: str | None
    finished_at: int | None
    pending: int
    begun: int
    placed: int
    result: str | None = None
    """Only what is to be written; likewise the next two, where None leaves the old ones."""
    last_error: str | None = None
    last_error_at: int | None = None

    @property
    def facts(self) -> Facts:
        return Facts(
            attempt=self.attempt,
            failures=self.failures,
            max_attempts=self.max_attempts,
            backoff=policy_of(self.policy).backoff,
            cancel_requested=self.cancel_requested_at is not None,
            last_error_code=self.last_error_code,
        )

    def holds(self, lease: Lease, now: int) -> bool:
        """The fence (C6.3): this very attempt, this very token, and the lease has not expired."""
        return (
            self.status is TaskStatus.RUNNING
            and self.attempt == lease.attempt
            and self.token == lease.token
            and self.lease_expires_at is not None
            and now < self.lease_expires_at
        )

    def expired(self, now: int) -> bool:
        return self.status is TaskStatus.RUNNING and self.lease_expires_at is not None and self.lease_expires_at <= now

    def clear_lease(self) -> None:
        self.claimed_by = self.token = self.claim_id = self.lease_expires_at = None


class ShownRow(msgspec.Struct, array_like=True, gc=False):
    """The columns of shown.sql."""

    seq: int
    id: str
    name: str
    queue: str
    payload: str | None
    priority: int
    status: TaskStatus
    run_at: int
    attempt: int
    failures: int
    max_attempts: int
    policy: str
    claimed_by: str | None
    lease_expires_at: int | None
    cancel_requested_at: int | None
    canceled_because: str | None
    idempotency_key: str | None
    concurrency_key: str | None
    run_id: str | None
    parents: str | None
    on_parent_failure: str
    result: str | None
    last_error: str | None
    last_error_at: int
    meta: str | None
    created_at: int
    started_at: int | None
    claimed_at: int | None
    finished_at: int | None
    inputs: str | None


class EventRow(msgspec.Struct, array_like=True, gc=False):
    """An event with what its task's record adds to it."""

    id: int
    at: int
    task_id: str
    run_id: str | None
    kind: str
    actor: str
    attempt: int | None
    data: str | None
    name: str | None
    queue: str | None
    parents: str | None
    max_attempts: int | None


records_decoder = msgspec.json.Decoder(list[Record])
shown_decoder = msgspec.json.Decoder(list[ShownRow])
events_decoder = msgspec.json.Decoder(list[EventRow])
_json = msgspec.json.decode


def shown(row: ShownRow, payload: str, parents: str | None, result: str | None) -> Task:
    policy = policy_of(row.policy)
    return Task(
        id=row.id,
        name=row.name,
        queue=row.queue,
        payload=_json(payload),
        priority=row.priority,
        status=row.status,
        run_at=from_micros(row.run_at),
        attempt=row.attempt,
        failures=row.failures,
        max_attempts=row.max_attempts,
        backoff=policy.backoff,
        timeout=policy.timeout,
        lease=policy.lease,
        claimed_by=row.claimed_by,
        lease_expires_at=maybe_from_micros(row.lease_expires_at),
        cancel_requested_at=maybe_from_micros(row.cancel_requested_at),
        canceled_because=row.canceled_because,
        idempotency_key=row.idempotency_key,
        concurrency_key=row.concurrency_key,
        run_id=row.run_id,
        parents=[] if parents is None else _json(parents),
        on_parent_failure=row.on_parent_failure,
        result=None if result is None else _json(result),
        last_error=None if row.last_error is None else recorded_error(_json(row.last_error), row.last_error_at),
        meta={} if row.meta is None else _json(row.meta),
        created_at=from_micros(row.created_at),
        started_at=maybe_from_micros(row.started_at),
        claimed_at=maybe_from_micros(row.claimed_at),
        finished_at=maybe_from_micros(row.finished_at),
        inputs=shown_pins(pins_of(row.inputs)),
    )


def event_of(row: EventRow) -> Event:
    data = _plain_data(row) if row.data is None else _json(row.data)
    return recorded_event(
        seq=row.id, at=row.at, task_id=row.task_id, run_id=row.run_id, kind=row.kind, actor=row.actor, data=data
    )


def _plain_data(row: EventRow) -> dict[str, Any]:
    """The data of an event that repeats nothing of the record: the three of every task's life."""
    if row.kind == "task.enqueued":
        status = TaskStatus.QUEUED if row.parents is None else TaskStatus.WAITING
        return {"name": row.name, "queue": row.queue, "status": status.value}
    if row.kind == "task.running":
        return {"attempt": row.attempt, "max_attempts": row.max_attempts}
    return {"attempt": row.attempt}
