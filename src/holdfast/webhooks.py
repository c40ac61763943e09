"""For those who receive webhooks of Holdfast: was this sent by who knows the secret, and just now?

received = holdfast.webhooks.verify(body, headers, secret)
if received.id in seen: ...          # at least once: the same id may come again
received.event.kind, received.event.payload
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from holdfast.clock import SYSTEM_CLOCK, Clock, from_micros
from holdfast.errors import InvalidTask, Unauthorized
from holdfast.model.event import Event
from holdfast.policy.signing import ID_HEADER, SIGNATURE_HEADER, TIMESTAMP_HEADER, TOLERANCE_SECONDS, matches

_TIMESTAMP_CHARS = 15


class Received(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """The same for every repetition of a delivery: keep it to see what came before."""
    sent_at: datetime
    event: Event


def verify(
    body: bytes,
    headers: Mapping[str, str],
    secret: str | Sequence[str],
    *,
    tolerance: float = TOLERANCE_SECONDS,
    clock: Clock = SYSTEM_CLOCK,
) -> Received:
    """What was sent, if its signature is good and not older than `tolerance` seconds; else Unauthorized.

    `body` is the request's body as it came, not parsed and written anew. Several secrets may be given while one
    replaces another: any of them will do.
    """
    secrets = [secret] if isinstance(secret, str) else list(secret)
    if not secrets or not all(secrets):
        raise InvalidTask("verify() needs the secret that was given to app.webhook(…)")
    told = {name.lower(): value for name, value in headers.items()}
    try:
        delivery, timestamp, given = (told[h.lower()] for h in (ID_HEADER, TIMESTAMP_HEADER, SIGNATURE_HEADER))
    except KeyError as missing:
        raise Unauthorized(f"the request has no header {missing.args[0]!r}: it is not signed") from None
    good = [matches(each, given, delivery, timestamp, body) for each in secrets]
    if not any(good):
        raise Unauthorized("the signature is not that of this body with any of these secrets")
    return _received(body, delivery, _fresh(timestamp, tolerance, clock))


def _fresh(timestamp: str, tolerance: float, clock: Clock) -> datetime:
    if not (timestamp.isascii() and timestamp.isdecimal() and len(timestamp) <= _TIMESTAMP_CHARS):
        raise Unauthorized(f"the header {TIMESTAMP_HEADER} holds no number of seconds")
    sent = int(timestamp)
    if abs(clock.micros() / 1_000_000 - sent) > tolerance:
        raise Unauthorized(f"the request was signed more than {tolerance:g} s from now: an old one, or a wrong clock")
    return from_micros(sent * 1_000_000)


def _received(body: bytes, delivery: str, sent_at: datetime) -> Received:
    try:
        return Received(id=delivery, sent_at=sent_at, event=msgspec.json.decode(body, type=Event))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidTask(f"the body is signed but no event: {error}") from None
