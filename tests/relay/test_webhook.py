"""Webhooks over real HTTP: what an honest receiver gets, and what a hostile one cannot do (reliability, fault 61)."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from holdfast import webhooks
from holdfast.clock import SYSTEM_CLOCK, from_micros
from holdfast.errors import InvalidTask
from holdfast.model.event import Event
from holdfast.model.outbox import Effect, NewSink, OutboxRow, OutboxState
from holdfast.policy.sinks import webhook_sink
from holdfast.sinks.protocol import Answer
from holdfast.sinks.webhook import Webhook
from tests.relay.receiver import ENDLESS_BYTES, Receiver

AT = datetime(2030, 1, 1, tzinfo=UTC)
LATER = "Mon, 01 Jan 2035 00:00:00"
SECRET = "correct horse battery staple"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as opened:
        yield opened


def row(number: int = 1, **payload: Any) -> OutboxRow:
    task_id = f"task-{number}"
    event = Event(
        id=number, ts=AT, task_id=task_id, run_id=None, kind="task.failed", actor="w", payload={"n": 1, **payload}
    )
    return OutboxRow(
        id=number,
        sink="hook",
        effect=Effect.ROUTE,
        task_id=task_id,
        queue="default",
        state=OutboxState.PENDING,
        event=event,
        created_at=AT,
        due_at=AT,
        tries=0,
        last_error=None,
    )


def told(url: str, *rows: OutboxRow, **options: Any) -> list[Answer]:
    """Tell these rows (or one) to a webhook at `url`."""
    target = webhook_sink(url, secret=SECRET, name="hook", private=True)

    async def use() -> list[Answer]:
        hook = Webhook(target, **({"total_seconds": 0.5} | options))
        try:
            return await hook.tell(rows or [row()])
        finally:
            await hook.close()

    return asyncio.run(use())


def one(url: str, **options: Any) -> Answer:
    (answer,) = told(url, **options)
    return answer


def test_an_event_is_posted_signed_and_verified(receiver: Receiver) -> None:
    sent = row(7, text="a\x00b 'é𝄞", big=2**70)
    assert told(receiver.url("/hook?a=1"), sent, total_seconds=10) == [Answer()]
    (request,) = receiver.requests
    assert request.path == "/hook?a=1"
    assert request.headers["Content-Type"] == "application/json"
    received = webhooks.verify(request.body, request.headers, SECRET)
    assert received.event == sent.event
    assert abs(received.sent_at - from_micros(SYSTEM_CLOCK.micros())) < timedelta(minutes=1)


def test_the_id_is_that_of_the_row_on_every_try_and_of_no_other(receiver: Receiver) -> None:
    for number in (1, 1, 2):
        told(receiver.url(), row(number), total_seconds=10)
    first, again, other = (request.headers["Holdfast-Id"] for request in receiver.requests)
    assert first == again != other


def test_without_a_secret_there_is_no_signature(receiver: Receiver) -> None:
    async def use() -> None:
        hook = Webhook(webhook_sink(receiver.url(), private=True))
        assert await hook.tell([row()]) == [Answer()]
        await hook.close()

    asyncio.run(use())
    assert "Holdfast-Signature" not in receiver.requests[0].headers


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_any_2xx_is_delivered(receiver: Receiver, status: int) -> None:
    assert one(receiver.url(f"/{status}"), total_seconds=10) == Answer()


@pytest.mark.parametrize("status", [300, 400, 401, 404, 422, 500, 502])
def test_any_other_answer_blames_the_row(receiver: Receiver, status: int) -> None:
    answer = one(receiver.url(f"/{status}"), total_seconds=10)
    assert (answer.blame, answer.final, answer.delay_seconds) == (True, False, None)
    assert answer.error is not None
    assert answer.error.startswith(f"answered {status}")
    assert "\x00" not in answer.error


def test_gone_is_final(receiver: Receiver) -> None:
    assert one(receiver.url("/410"), total_seconds=10).final


@pytest.mark.parametrize("status", [429, 503])
def test_a_sink_that_asks_for_time_gets_it(receiver: Receiver, status: int) -> None:
    receiver.headers = {"Retry-After": "120"}
    assert one(receiver.url(f"/{status}"), total_seconds=10).delay_seconds == 120
    receiver.headers = {"Retry-After": format_datetime(from_micros(SYSTEM_CLOCK.micros()) + timedelta(hours=1))}
    delay = one(receiver.url(f"/{status}"), total_seconds=10).delay_seconds
    assert delay is not None
    assert 3500 < delay <= 3600
    for nonsense in ("soon", "-5", "1e9", "9" * 5000, "", "1 Jan 99999999999 00:00:00 GMT", f"{LATER} +{'9' * 20}"):
        receiver.headers = {"Retry-After": nonsense}
        answer = one(receiver.url(f"/{status}"), total_seconds=10)
        assert (answer.blame, str(answer.error)[:12]) == (True, f"answered {status}")


def test_nobody_there_is_nobodys_fault() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    answer = one(f"http://127.0.0.1:{port}/")
    assert answer.error is not None
    assert not answer.blame
    assert not answer.silent


@pytest.mark.parametrize("path", ["/hang", "/reset", "/nonsense", "/headers"])
def test_silence_alone_blames_nobody(receiver: Receiver, path: str) -> None:
    answer = one(receiver.url(path))
    assert answer.error is not None
    assert not answer.blame
    assert answer.silent, "the relay finds out whose fault it is: test_silence.py"


def test_silence_costs_the_other_rows_nothing(receiver: Receiver) -> None:
    receiver.answer = lambda request: receiver.released.wait(60) or 200 if b"task-2" in request.body else 200
    first, second, third = told(receiver.url(), row(1), row(2), row(3), total_seconds=1)
    assert first == third == Answer()
    assert second.error is not None
    assert second.silent


def test_what_nobody_foresaw_of_one_row_costs_the_others_nothing(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Webhook._headers

    def headers(self: Webhook, one: OutboxRow, body: bytes) -> dict[str, str]:
        if one.id == 2:
            raise RuntimeError("nobody foresaw this")
        return real(self, one, body)

    monkeypatch.setattr(Webhook, "_headers", headers)
    answers = told(receiver.url(), row(1), row(2), row(3), total_seconds=10)
    assert [answer.error for answer in answers] == [None, "RuntimeError: nobody foresaw this", None]
    assert answers[1].silent


def test_a_body_that_never_ends_does_not_undo_a_status(receiver: Receiver) -> None:
    assert one(receiver.url("/slow")) == Answer()


def test_little_is_read_of_an_endless_body(receiver: Receiver) -> None:
    answer = one(receiver.url("/endless"), total_seconds=10)
    assert answer.error is not None
    assert answer.error.startswith("answered 500")
    assert len(answer.error) < 1000
    assert receiver.sent_bytes < ENDLESS_BYTES


def test_redirects_are_not_followed(receiver: Receiver) -> None:
    answer = one(receiver.url("/redirect"), total_seconds=10)
    assert answer.error is not None
    assert answer.error.startswith("answered 307")
    assert [request.path for request in receiver.requests] == ["/redirect"]


def test_the_environments_proxy_is_not_used(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    with Receiver() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert one(receiver.url(), total_seconds=10) == Answer()
        assert proxy.requests == []


def self_signed(folder: Path, name: str) -> Path:
    """A certificate that nobody vouches for, with its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = from_micros(SYSTEM_CLOCK.micros())
    built = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
    built = built.not_valid_before(now - timedelta(hours=1)).not_valid_after(now + timedelta(days=1))
    built = built.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    file = folder / "both.pem"
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    file.write_bytes(
        key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
        + built.sign(key, hashes.SHA256()).public_bytes(pem)
    )
    return file


def test_tls_is_verified_by_the_name_in_the_url(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody vouches for it: refused. Vouched for: accepted under its name, refused under another."""
    certificate = self_signed(tmp_path, "hook.example")
    receiver.use_tls(certificate)

    def answer(host: str) -> Answer:
        async def use() -> Answer:
            url = f"https://{host}:{receiver.port}/ok"
            hook = Webhook(webhook_sink(url, private=True), resolver=Rebinding(["127.0.0.1"]), total_seconds=5)
            (found,) = await hook.tell([row()])
            await hook.close()
            return found

        return asyncio.run(use())

    stranger = answer("hook.example")
    assert stranger.error is not None
    assert "certificate" in stranger.error.lower()
    assert not stranger.blame
    trusting = ssl.create_default_context(cafile=certificate)
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusting)
    assert answer("hook.example") == Answer()
    other = answer("other.example")
    assert other.error is not None
    assert not other.blame
    assert len(receiver.requests) == 1


class Rebinding(AbstractResolver):
    """A name that leads to other addresses every time it is asked for."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(hostname=host, host=address, port=port, family=socket.AF_INET, proto=0, flags=0)
            for address in self.answers.pop(0)
        ]

    async def close(self) -> None: ...


def public(url: str, resolver: AbstractResolver) -> Answer:
    """To a sink that was not declared private."""

    async def use() -> Answer:
        hook = Webhook(webhook_sink(url), resolver=resolver, total_seconds=2)
        (answer,) = await hook.tell([row()])
        await hook.close()
        return answer

    return asyncio.run(use())


@pytest.mark.parametrize(
    "addresses", [["127.0.0.1"], ["::1"], ["93.184.216.34", "127.0.0.1"], ["::ffff:127.0.0.1"], ["169.254.169.254"]]
)
def test_a_name_that_leads_inside_is_refused_whatever_else_it_leads_to(
    receiver: Receiver, addresses: list[str]
) -> None:
    answer = public(receiver.url(host="hook.example"), Rebinding(addresses))
    assert answer.error is not None
    assert "hook.example leads to" in answer.error
    assert not answer.blame
    assert receiver.requests == []


def test_a_name_is_resolved_once_and_what_was_checked_is_connected_to(receiver: Receiver) -> None:
    """A rebinding name: the first answer would pass the check, the second leads inside. There is no second question."""
    resolver = Rebinding(["127.0.0.1"], ["10.0.0.1"])

    async def use() -> list[Answer]:
        hook = Webhook(webhook_sink(receiver.url(host="hook.example"), private=True), resolver=resolver)
        answers = await hook.tell([row()])
        await hook.close()
        return answers

    assert asyncio.run(use()) == [Answer()]
    assert resolver.answers == [["10.0.0.1"]]
    assert receiver.requests[0].headers["Host"] == f"hook.example:{receiver.port}"


def test_localhost_is_resolved_and_refused(receiver: Receiver) -> None:
    async def use() -> Answer:
        hook = Webhook(webhook_sink(receiver.url(host="localhost")), total_seconds=2)
        (answer,) = await hook.tell([row()])
        await hook.close()
        return answer

    answer = asyncio.run(use())
    assert answer.error is not None
    assert not answer.blame
    assert receiver.requests == []


def test_a_record_written_past_our_checks_is_checked_again(receiver: Receiver) -> None:
    smuggled = NewSink(name="hook", url=receiver.url(), effect=Effect.ROUTE)
    with pytest.raises(InvalidTask, match="private"):
        Webhook(smuggled)
