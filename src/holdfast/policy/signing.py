"""How the calls of a webhook are signed: HMAC-SHA256 over id, timestamp and body, joined by dots."""

from __future__ import annotations

import hashlib
import hmac

from holdfast.model.outbox import OutboxRow

ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER = "Holdfast-Id", "Holdfast-Timestamp", "Holdfast-Signature"
VERSION = "v1"
TOLERANCE_SECONDS = 300.0


def delivery_id(row: OutboxRow) -> str:
    """The same for every try of a row, another for every other row, also of other stores."""
    return hashlib.sha256(f"{row.sink}\0{row.task_id}\0{row.id}".encode()).hexdigest()[:32]


def signature(secret: str, delivery: str, timestamp: str, body: bytes) -> str:
    signed = hmac.new(secret.encode(), f"{delivery}.{timestamp}.".encode() + body, hashlib.sha256)
    return f"{VERSION}={signed.hexdigest()}"


def matches(secret: str, given: str, delivery: str, timestamp: str, body: bytes) -> bool:
    """In constant time. `given` may hold several signatures, separated by commas or spaces."""
    wanted = signature(secret, delivery, timestamp, body).encode()
    found = [hmac.compare_digest(wanted, part.encode()) for part in given.replace(",", " ").split()]
    return any(found)
