"""Who may call the dispatcher (contract C14.3). How tokens are made and compared: policy/tokens.py."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec


class Scope(StrEnum):
    ENQUEUE = "enqueue"
    WORK = "work"
    READ = "read"
    ADMIN = "admin"
    """Acts on others' tasks, queues, schedules, sinks. It does not include the other scopes."""


class NewToken(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """The part of the token by which it is found; no secret."""
    name: str
    """For people: whose it is."""
    scopes: tuple[Scope, ...]
    digest: str
    """Of the secret part. The secret itself is shown once, to the one who made it, and kept nowhere."""
    lifetime_seconds: float | None = None


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """The record. No read for people shows the digest."""

    id: str
    name: str
    scopes: tuple[Scope, ...]
    digest: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
