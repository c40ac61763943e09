"""Wake-ups by SQS (moto over HTTP) and NATS (a real server): what is sent, and what a URL may say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from nats import errors as nats_errors

from holdfast.errors import InvalidTask
from holdfast.model.outbox import Effect, OutboxRow, OutboxState
from holdfast.sinks.nats import NatsSubject
from holdfast.sinks.protocol import Answer, Channel
from holdfast.sinks.sqs import SqsQueue
from holdfast.transports import nats, sqs
from holdfast.transports.wakeup_sinks import wakeup_sink
from tests import moto_server, nats_server
from tests.runtime.support import wait_until

AT = datetime(2030, 1, 1, tzinfo=UTC)


def due(number: int, queue: str = "mail") -> OutboxRow:
    return OutboxRow(
        id=number,
        sink="wake",
        effect=Effect.WAKE,
        task_id=f"task-{number}",
        queue=queue,
        state=OutboxState.PENDING,
        event=None,
        created_at=AT,
        due_at=AT,
        tries=0,
        last_error=None,
    )


def told(channel: Channel, rows: Sequence[OutboxRow]) -> list[Answer]:
    async def use() -> list[Answer]:
        try:
            return await channel.tell(rows)
        finally:
            await channel.close()

    return asyncio.run(use())


@pytest.fixture
def queue() -> Iterator[moto_server.Queue]:
    made = moto_server.Queue(moto_server.server())
    yield made
    made.close()


def test_sqs_gets_ids_and_nothing_else(queue: moto_server.Queue) -> None:
    rows = [due(number) for number in range(23)]
    assert told(SqsQueue(wakeup_sink(queue.url)), rows) == [Answer()] * 23
    bodies: list[str] = []
    while found := queue.receive(visibility=60):
        bodies += found
    wanted = [{"task_id": row.task_id, "queue": "mail"} for row in rows]
    by_id = sorted((msgspec.json.decode(body) for body in bodies), key=lambda body: int(body["task_id"][5:]))
    assert by_id == wanted


class Partial:
    """A client whose queue refuses some entries of each batch."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> dict[str, Any]:  # noqa: N803
        self.sent.append(len(Entries))
        first, second, _unsaid, *rest = (entry["Id"] for entry in Entries)
        return {
            "Successful": [{"Id": entry_id} for entry_id in rest],
            "Failed": [
                {"Id": first, "SenderFault": True, "Code": "InvalidMessageContents", "Message": "no"},
                {"Id": second, "SenderFault": False, "Code": "ServiceUnavailable"},
            ],
        }

    def close(self) -> None: ...


def test_of_a_batch_each_entry_has_its_own_answer() -> None:
    client = Partial()
    sink = SqsQueue(wakeup_sink("sqs://name"), connecting=lambda *_, **__: sqs.Connection(client, "url"))
    answers = told(sink, [due(number) for number in range(14)])
    assert client.sent == [10, 4]
    refused, throttled, unsaid, *well = answers[:10]
    assert (refused.blame, refused.error) == (True, "InvalidMessageContents: no")
    assert (throttled.blame, throttled.error) == (False, "ServiceUnavailable: ")
    assert unsaid.error is not None
    assert not unsaid.blame
    assert well == [Answer()] * 7


def test_a_queue_that_cannot_be_reached_blames_nobody() -> None:
    url = f"sqs+http://127.0.0.1:{moto_server.free_port()}/1/name"
    (answer,) = told(SqsQueue(wakeup_sink(url)), [due(1)])
    assert answer.error is not None
    assert not answer.blame


def test_a_queue_that_does_not_exist_blames_nobody() -> None:
    url = f"sqs+http://127.0.0.1:{moto_server.server().port}/{moto_server.ACCOUNT}/missing"
    (answer,) = told(SqsQueue(wakeup_sink(url)), [due(1)])
    assert answer.error is not None
    assert "NonExistentQueue" in answer.error or "QueueDoesNotExist" in answer.error
    assert not answer.blame


def test_nats_gets_ids_by_the_subject_of_the_queue() -> None:
    async def use(server: nats_server.Server) -> list[tuple[str, Any]]:
        client = await nats.connect(nats.parsed(server.url()))
        heard = await client.subscribe("test.wakeups.*")
        await client.flush()
        channel = NatsSubject(wakeup_sink(server.url()))
        assert await channel.tell([due(1), due(2, "a.b *>é\t")]) == [Answer()] * 2
        found = [await heard.next_msg(5) for _ in range(2)]
        await channel.close()
        await client.close()
        return [(message.subject, msgspec.json.decode(message.data)) for message in found]

    with nats_server.Server() as server:
        plain, odd = asyncio.run(use(server))
    assert plain == ("test.wakeups.mail", {"task_id": "task-1", "queue": "mail"})
    assert odd == ("test.wakeups.a%2Eb%20%2A%3E%C3%A9%09", {"task_id": "task-2", "queue": "a.b *>é\t"})


def test_nats_is_connected_again_after_it_was_down() -> None:
    async def use(server: nats_server.Server) -> None:
        channel = NatsSubject(wakeup_sink(server.url()))
        with pytest.raises(ConnectionError, match="no NATS server"):
            await channel.tell([due(1)])
        server.start()
        assert await channel.tell([due(1)]) == [Answer()]
        server.stop()
        with pytest.raises(ConnectionError, match="no NATS server"):  # noqa: PT012  the first may meet what is left
            while True:
                with suppress(nats_errors.Error):
                    await channel.tell([due(1)])
        server.start()
        assert await channel.tell([due(1)]) == [Answer()]
        await channel.close()

    server = nats_server.Server()
    try:
        asyncio.run(use(server))
    finally:
        server.stop()


def test_credentials_of_nats_are_used_and_never_shown() -> None:
    with nats_server.Server("--user", "me", "--pass", "can@ry") as server:
        sink = wakeup_sink(server.url(credentials="me:can%40ry@"))
        assert told(NatsSubject(sink), [due(1)]) == [Answer()]
        assert "can" not in sink.name + sink.url
        wrong = NatsSubject(wakeup_sink(server.url(credentials="me:wrong@")))
        with pytest.raises(Exception, match=r"(?i)authorization"):
            told(wrong, [due(1)])


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqs://Wake-Ups_1", "sqs://Wake-Ups_1"),
        ("sqs://sqs.eu-west-1.amazonaws.com/123/q", "sqs://sqs.eu-west-1.amazonaws.com/123/q"),
        ("sqs+http://127.0.0.1:5000/123/q", "sqs+http://127.0.0.1:5000/123/q"),
        ("nats://host", "nats://host:4222/holdfast.wakeup"),
        ("nats://me:canary@host:5000/a.b", "nats://host:5000/a.b"),
        ("tls://token@host/a", "tls://host:4222/a"),
        ("nats://[::1]:5000/a", "nats://[::1]:5000/a"),
    ],
)
def test_wake_up_urls_are_shown_without_secrets(url: str, shown: str) -> None:
    sink = wakeup_sink(url)
    assert (sink.url, sink.name, sink.effect) == (shown, f"wakeup:{shown}", Effect.WAKE)
    assert wakeup_sink(sink.url).url == shown


@pytest.mark.parametrize(
    "url",
    [
        *("", "redis://host", "http://host/x", "sqs://", "sqs:///a/b", "sqs://key:secret@host/1/q", "sqs://a.fifo"),
        *("sqs://host:5000/q", "sqs://host:bad/1/q", "sqs://q?x=1", "sqs://host/1/a b", "sqs+http://q", "nats://"),
        *("nats://host/a..b", "nats://host/a.*", "nats://host/a.>", "nats://host/a b", "nats://host:bad/a"),
    ],
)
def test_other_urls_are_refused_in_words(url: str) -> None:
    with pytest.raises(InvalidTask) as refused:
        wakeup_sink(url)
    assert "secret" not in str(refused.value)


def test_the_region_is_read_from_the_host() -> None:
    moto_server.server()  # sets credentials
    connection = sqs.connect(sqs.parsed("sqs://sqs.eu-west-1.amazonaws.com/123/q"), read_seconds=1)
    assert connection.client.meta.region_name == "eu-west-1"
    assert connection.queue_url == "https://sqs.eu-west-1.amazonaws.com/123/q"
    connection.close()


def test_a_queue_by_its_name_is_looked_up(queue: moto_server.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", f"http://127.0.0.1:{moto_server.server().port}")
    assert told(SqsQueue(wakeup_sink(f"sqs://{queue.name}")), [due(1)]) == [Answer()]
    wait_until(lambda: queue.counts() == (1, 0))
