"""Rows as values: the record that verbs change, the record that people read, claims, events."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from holdfast.clock import to_micros
from holdfast.model.backoff import Backoff, backoff_from_text
from holdfast.model.claim import Claim, Lease
from holdfast.model.event import Event, recorded_error, recorded_event
from holdfast.model.task import Task, TaskStatus
from holdfast.policy.verdict import Facts

_json = msgspec.json.decode


@lru_cache(maxsize=4096)
def backoff_of(text: str) -> Backoff:
    return backoff_from_text(text)


class Record(msgspec.Struct, gc=False):
    """What verbs read and change of a task: the columns of load.sql and, from `status` on, of save.sql."""

    id: str
    name: str
    queue: str
    priority: int
    run_id: str | None
    max_attempts: int
    backoff: str
    timeout: float | None
    lease: float | None
    attempt: int
    claimed_at: datetime | None
    lease_micros: int
    seq: int
    parents: int
    dependents: int
    on_parent_failure: str
    fail_fast: str | None
    delay_micros: int
    known_error: str | None
    """The last_error of the time before; a new one is to be found below."""
    status: TaskStatus
    run_at: datetime
    failures: int
    claimed_by: str | None
    token: str | None
    claim_id: str | None
    lease_expires_at: datetime | None
    settled_token: str | None
    settled_as: str | None
    settled_status: TaskStatus | None
    cancel_requested_at: datetime | None
    canceled_because: str | None
    finished_at: datetime | None
    pending: int
    result: str | None = None
    """Only what is to be written; likewise the next two, where None leaves the old ones."""
    last_error: str | None = None
    last_error_at: datetime | None = None

    @property
    def facts(self) -> Facts:
        error = self.last_error or self.known_error
        return Facts(
            attempt=self.attempt,
            failures=self.failures,
            max_attempts=self.max_attempts,
            backoff=backoff_of(self.backoff),
            cancel_requested=self.cancel_requested_at is not None,
            last_error_code=None if error is None else _json(error).get("code"),
        )

    @property
    def linked(self) -> bool:
        """Its end means something for others."""
        return self.dependents > 0 or self.fail_fast is not None

    def holds(self, lease: Lease, now: datetime) -> bool:
        """The fence (C6.3): this very attempt, this very token, and the lease has not expired."""
        return (
            self.status is TaskStatus.RUNNING
            and self.attempt == lease.attempt
            and self.token == lease.token
            and self.lease_expires_at is not None
            and now < self.lease_expires_at
        )

    def expired(self, now: datetime) -> bool:
        return self.status is TaskStatus.RUNNING and self.lease_expires_at is not None and self.lease_expires_at <= now

    def clear_lease(self) -> None:
        self.claimed_by = self.token = self.claim_id = self.lease_expires_at = None


_STATUS = Record.__struct_fields__.index("status")
_SETTLED_STATUS = Record.__struct_fields__.index("settled_status")


def record_of(row: Any) -> Record:
    """From a row of load.sql or expired.sql, whose first column is the instant."""
    fields = list(row)[1:]
    fields[_STATUS] = TaskStatus(fields[_STATUS])
    if fields[_SETTLED_STATUS] is not None:
        fields[_SETTLED_STATUS] = TaskStatus(fields[_SETTLED_STATUS])
    return Record(*fields)


def saved(record: Record) -> tuple[object, ...]:
    """The columns of save.sql."""
    return (record.id, *msgspec.structs.astuple(record)[_STATUS:])


def claim_of(row: Any) -> Claim:
    return Claim(
        lease=Lease(row["id"], row["attempt"], row["token"]),
        worker_id=row["claimed_by"],
        lease_expires_at=row["lease_expires_at"],
        lease_seconds=row["lease_micros"] / 1_000_000,
        name=row["name"],
        queue=row["queue"],
        payload=row["payload"],
        priority=row["priority"],
        failures=row["failures"],
        max_attempts=row["max_attempts"],
        timeout=row["timeout"],
        run_id=row["run_id"],
        meta=row["meta"],
        created_at=row["created_at"],
        claimed_at=row["claimed_at"],
    )


def claims_of(rows: list[Any], tokens: list[str], worker_id: str) -> list[Claim]:
    """From the rows of a claim.

    They share their instants: each is made once.
    """
    (claimed_at,) = (row["claimed_at"] for row in rows if row["claimed_at"] is not None)
    ends: dict[int, datetime] = {}
    claims = []
    for row in rows:
        (
            _, _, _, task_id, attempt, n, lease_micros, name, queue, payload, priority, failures, max_attempts, timeout,
            run_id, meta, created_at, _, _, _,
        ) = row  # fmt: skip
        if lease_micros not in ends:
            ends[lease_micros] = claimed_at + timedelta(microseconds=lease_micros)
        claims.append(
            Claim(
                lease=Lease(task_id, attempt, tokens[n - 1]),
                worker_id=worker_id,
                lease_expires_at=ends[lease_micros],
                lease_seconds=lease_micros / 1_000_000,
                name=name,
                queue=queue,
                payload=payload,
                priority=priority,
                failures=failures,
                max_attempts=max_attempts,
                timeout=timeout,
                run_id=run_id,
                meta=meta,
                created_at=created_at,
                claimed_at=claimed_at,
            )
        )
    return claims


def shown(row: Any) -> Task:
    """From a row of get.sql, find.sql or page.sql."""
    fields = dict(row)
    error, error_at = fields.pop("last_error"), fields.pop("last_error_at")
    for name, empty in (("result", None), ("meta", {}), ("inputs", {})):
        fields[name] = empty if fields[name] is None else _json(fields[name])
    fields["parents"] = fields["parents"] or []
    fields["payload"] = _json(fields["payload"])
    fields["status"] = TaskStatus(fields["status"])
    fields["backoff"] = backoff_of(fields["backoff"])
    return Task(last_error=None if error is None else recorded_error(_json(error), to_micros(error_at)), **fields)


def event_of(row: Any) -> Event:
    data = _plain_data(row) if row["data"] is None else _json(row["data"])
    return recorded_event(
        seq=row["id"],
        at=to_micros(row["at"]),
        task_id=row["task_id"],
        run_id=row["run_id"],
        kind=row["kind"],
        actor=row["actor"],
        data=data,
    )


def _plain_data(row: Any) -> dict[str, Any]:
    """The data of an event that repeats nothing of the record: the three of every task's life."""
    if row["kind"] == "task.enqueued":
        status = TaskStatus.WAITING if row["parents"] else TaskStatus.QUEUED
        return {"name": row["name"], "queue": row["queue"], "status": status.value}
    if row["kind"] == "task.running":
        return {"attempt": row["attempt"], "max_attempts": row["max_attempts"]}
    return {"attempt": row["attempt"]}
