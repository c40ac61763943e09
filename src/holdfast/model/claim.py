"""The right to run one attempt: how it is asked for, what it is, how it is kept."""

from __future__ import annotations

from datetime import datetime

import msgspec


class Lease(msgspec.Struct, frozen=True, gc=False):
    """The fence. Every write of an attempt names all three; one that is not current changes nothing."""

    task_id: str
    attempt: int
    token: str


class Claim(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A lease, and what the handler needs of its task."""

    lease: Lease
    worker_id: str
    lease_expires_at: datetime
    lease_seconds: float
    name: str
    queue: str
    payload: str
    priority: int
    failures: int
    max_attempts: int
    timeout: float | None
    run_id: str | None
    meta: str | None
    created_at: datetime
    claimed_at: datetime

    @property
    def task_id(self) -> str:
        return self.lease.task_id


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Up to `limit` tasks of these queues (None: all), or the one named by `task_id`.

    `claim_id` is made by the client: the same request again, after a lost reply, gets the same leases.
    """

    worker_id: str
    claim_id: str
    queues: tuple[str, ...] | None = None
    limit: int = 1
    lease_seconds: float = 60.0
    task_id: str | None = None


class Claimed(msgspec.Struct, frozen=True):
    claims: list[Claim]
    next_due_at: datetime | None
    """When the next task of these queues falls due; only where fewer than `limit` were claimable."""
    more: bool = False
    """Fewer than `limit` were granted, for the store's own reasons: ask again at once."""


class Extended(msgspec.Struct, frozen=True):
    expires_at: datetime
    cancel_requested: bool
