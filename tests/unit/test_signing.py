"""Signatures of webhooks: what is accepted, and all that is not."""

from __future__ import annotations

import hashlib
import hmac
from datetime import UTC, datetime

import msgspec
import pytest

from holdfast import webhooks
from holdfast.errors import InvalidTask, Unauthorized
from holdfast.model.event import Event
from holdfast.policy.signing import signature
from holdfast.testing.virtual_clock import VirtualClock

EVENT = Event(
    id=1,
    ts=datetime(2030, 1, 1, tzinfo=UTC),
    task_id="t",
    run_id=None,
    kind="task.failed",
    actor="w",
    payload={"n": 1},
)
BODY = msgspec.json.encode(EVENT)
SECRET = "s3cret"


def signed(clock: VirtualClock, secret: str = SECRET, body: bytes = BODY) -> dict[str, str]:
    timestamp = str(clock.micros() // 1_000_000)
    return {
        "holdfast-id": "abc",
        "HOLDFAST-TIMESTAMP": timestamp,
        "Holdfast-Signature": signature(secret, "abc", timestamp, body),
    }


def test_the_signature_is_hmac_sha256_over_id_timestamp_and_body() -> None:
    by_hand = hmac.new(b"s3cret", b"abc.1700000000." + BODY, hashlib.sha256).hexdigest()
    assert signature(SECRET, "abc", "1700000000", BODY) == f"v1={by_hand}"


def test_what_was_signed_is_returned() -> None:
    clock = VirtualClock()
    received = webhooks.verify(BODY, signed(clock), SECRET, clock=clock)
    assert (received.id, received.event) == ("abc", EVENT)
    assert received.sent_at == clock.now()


@pytest.mark.parametrize("secrets", [["new", SECRET], [SECRET, "old"]])
def test_while_a_secret_is_replaced_both_are_good(secrets: list[str]) -> None:
    clock = VirtualClock()
    assert webhooks.verify(BODY, signed(clock), secrets, clock=clock)


def test_a_header_may_hold_several_signatures() -> None:
    clock = VirtualClock()
    headers = signed(clock)
    headers["Holdfast-Signature"] = f"v1=00,v2=later, {headers['Holdfast-Signature']}"
    assert webhooks.verify(BODY, headers, SECRET, clock=clock)


@pytest.mark.parametrize(
    "change",
    [
        {"holdfast-id": "abd"},
        {"HOLDFAST-TIMESTAMP": "1893456001"},
        {"Holdfast-Signature": "v1="},
        {"Holdfast-Signature": ""},
        {"Holdfast-Signature": "v1=é"},
        {"Holdfast-Signature": "v0=" + "0" * 64},
    ],
)
def test_a_changed_header_is_refused(change: dict[str, str]) -> None:
    clock = VirtualClock()
    with pytest.raises(Unauthorized):
        webhooks.verify(BODY, signed(clock) | change, SECRET, clock=clock)


def test_a_changed_body_or_another_secret_is_refused() -> None:
    clock = VirtualClock()
    with pytest.raises(Unauthorized):
        webhooks.verify(BODY + b" ", signed(clock), SECRET, clock=clock)
    with pytest.raises(Unauthorized):
        webhooks.verify(BODY, signed(clock, "other"), [SECRET, "third"], clock=clock)


@pytest.mark.parametrize("missing", ["holdfast-id", "HOLDFAST-TIMESTAMP", "Holdfast-Signature"])
def test_a_missing_header_is_refused(missing: str) -> None:
    clock = VirtualClock()
    headers = {name: value for name, value in signed(clock).items() if name != missing}
    with pytest.raises(Unauthorized, match="not signed"):
        webhooks.verify(BODY, headers, SECRET, clock=clock)


@pytest.mark.parametrize("shift", [301, -301])
def test_an_old_or_future_request_is_refused(shift: int) -> None:
    clock = VirtualClock()
    clock.advance(1000)
    then = VirtualClock()
    then.advance(1000 + shift)
    with pytest.raises(Unauthorized, match="more than 300 s"):
        webhooks.verify(BODY, signed(then), SECRET, clock=clock)
    assert webhooks.verify(BODY, signed(then), SECRET, clock=clock, tolerance=400)


@pytest.mark.parametrize("timestamp", ["", "1e9", "-1", "٣", "9" * 400, "nan"])
def test_a_signed_timestamp_that_is_no_number_is_refused(timestamp: str) -> None:
    headers = {
        "Holdfast-Id": "abc",
        "Holdfast-Timestamp": timestamp,
        "Holdfast-Signature": signature(SECRET, "abc", timestamp, BODY),
    }
    with pytest.raises(Unauthorized):
        webhooks.verify(BODY, headers, SECRET)


@pytest.mark.parametrize("secret", ["", [], ["", "a"]])
def test_an_empty_secret_accepts_nothing(secret: str | list[str]) -> None:
    with pytest.raises(InvalidTask):
        webhooks.verify(BODY, {}, secret)


def test_a_signed_body_that_is_no_event_is_refused() -> None:
    clock = VirtualClock()
    with pytest.raises(InvalidTask):
        webhooks.verify(b"[]", signed(clock, body=b"[]"), SECRET, clock=clock)
