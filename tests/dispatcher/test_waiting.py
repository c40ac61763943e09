"""Calls that wait: claims, wake-ups, and events as a stream."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from holdfast.dispatcher import claiming, streaming
from holdfast.model.event import Event
from tests.dispatcher.support import TIMEOUT_SECONDS, Answer, Running, dispatcher
from tests.runtime.support import wait_until


def meanwhile(call: Callable[[], Answer]) -> Future[Answer]:
    """The same call on another thread."""
    future: Future[Answer] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


def claim(running: Running, **options: Any) -> Answer:
    return running.post("/v1/claims", {"worker_id": "w", **options})


def submit(running: Running, **options: Any) -> str:
    answer = running.post("/v1/tasks", {"tasks": [{"name": "send", "payload": 1, **options}]})
    return str(answer.json["tasks"][0]["id"])


def waiting(running: Running) -> int:
    hall = running.hall
    return sum(line.waiting for line in hall.lines._lines.values())


@pytest.fixture
def no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but a hint leads to a look."""
    monkeypatch.setattr(claiming, "FLOOR_SECONDS", 3600.0)
    monkeypatch.setattr(streaming, "POLL_SECONDS", 3600.0)


def test_a_claim_without_patience_comes_back_empty(running: Running) -> None:
    assert claim(running).json == {"claims": [], "next_due_at": None, "more": False}


def test_a_claim_waits_for_the_store_to_tell_of_a_task(running: Running, no_floor: None) -> None:
    answer = meanwhile(lambda: claim(running, wait_seconds=20))
    wait_until(lambda: waiting(running) == 1, "the claim to wait")
    task_id = submit(running)
    assert [one["task_id"] for one in answer.result(TIMEOUT_SECONDS).json["claims"]] == [task_id]


def test_a_claim_waits_until_a_task_falls_due(running: Running) -> None:
    task_id = submit(running, delay_seconds=0.2)
    answer = claim(running, wait_seconds=20)
    assert [one["task_id"] for one in answer.json["claims"]] == [task_id]


def test_a_claim_of_no_queue_gets_nothing(running: Running) -> None:
    submit(running)
    assert claim(running, queues=[], wait_seconds=0.01).json["claims"] == []


def test_claims_that_wait_each_get_a_task_of_their_own(running: Running, no_floor: None) -> None:
    answers = [meanwhile(lambda: claim(running, wait_seconds=20)) for _ in range(8)]
    wait_until(lambda: waiting(running) == 8, "all of them to wait")
    task_ids = {submit(running) for _ in range(8)}
    found = [one["task_id"] for answer in answers for one in answer.result(TIMEOUT_SECONDS).json["claims"]]
    assert sorted(found) == sorted(task_ids)


def test_a_hint_for_nothing_costs_one_look_however_many_wait(memory: Running, no_floor: None) -> None:
    hall = memory.hall
    answers = [meanwhile(lambda: claim(memory, wait_seconds=20, queues=["mine"])) for _ in range(5)]
    wait_until(lambda: waiting(memory) == 5, "all of them to wait")
    looks = []
    plain = hall.store.claim

    async def counted(request: Any) -> Any:
        looks.append(request)
        return await plain(request)

    hall.lines._store = Counted(hall.store, counted)
    submit(memory, queue="other")
    wait_until(lambda: len(looks) >= 1, "somebody to look")
    submit(memory, queue="mine", delay_seconds=0)
    wait_until(lambda: waiting(memory) == 4, "one to be served")
    assert len(looks) < 10
    memory.drain()
    assert sum(len(answer.result(TIMEOUT_SECONDS).json["claims"]) for answer in answers) == 1


class Counted:
    def __init__(self, store: Any, claim: Any) -> None:
        self._store = store
        self.claim = claim

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def test_who_hangs_up_gets_no_task(running: Running, no_floor: None) -> None:
    host, port = str(urlsplit(running.url).netloc).split(":")
    body = b'{"worker_id":"gone","wait_seconds":20}'
    with socket.create_connection((host, int(port))) as line:
        line.sendall(b"POST /v1/claims HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: waiting(running) == 1, "the claim to wait")
    wait_until(lambda: waiting(running) == 0, "the claim to be given up")
    task_id = submit(running)
    assert running.get(f"/v1/tasks/{task_id}").json["status"] == "queued"


# Wake-ups


def test_nothing_is_missed_between_two_calls(running: Running) -> None:
    seen = running.get("/v1/wakeups?wait=0").json["seen"]
    assert running.get(f"/v1/wakeups?wait=0&seen={seen}").json == {"woken": False, "seen": seen}
    submit(running)
    answer = running.get(f"/v1/wakeups?wait=20&seen={seen}").json
    assert answer["woken"]
    assert answer["seen"] != seen


def test_what_another_dispatcher_has_said_means_nothing_here(running: Running) -> None:
    for seen in ("0123456789-1", "x", "-", "99999999999999999999999"):
        assert running.get(f"/v1/wakeups?wait=20&seen={seen}").json["woken"]


def test_an_end_is_told_to_those_who_wait_for_one(running: Running) -> None:
    seen = running.get("/v1/wakeups?wait=0&kind=ends").json["seen"]
    submit(running)
    (got,) = claim(running).json["claims"]
    lease = {name: got[name] for name in ("task_id", "attempt", "lease_token")}
    seen = running.get(f"/v1/wakeups?wait=0&kind=ends&seen={seen}").json["seen"]
    running.post("/v1/settlements", {"settlements": [{**lease, "status": "completed"}]})
    assert running.get(f"/v1/wakeups?wait=20&kind=ends&seen={seen}").json["woken"]


# Streams


class Reader:
    """Reads server-sent events, one after the other."""

    def __init__(self, running: Running, path: str, headers: dict[str, str] | None = None) -> None:
        self._connection = http.client.HTTPConnection(str(urlsplit(running.url).netloc), timeout=TIMEOUT_SECONDS)
        self._connection.request("GET", path, headers={"accept": "text/event-stream", **(headers or {})})
        self.response = self._connection.getresponse()
        assert self.response.getheader("content-type") == "text/event-stream"

    def events(self) -> Iterator[Event]:
        event_id = b""
        while line := self.response.readline():
            if line.startswith(b"id: "):
                event_id = line[4:].strip()
            elif line.startswith(b"data: "):
                event = msgspec.json.decode(line[6:], type=Event)
                assert event_id.decode() == str(event.id)
                yield event

    def take(self, number: int) -> list[Event]:
        events = self.events()
        return [next(events) for _ in range(number)]

    def close(self) -> None:
        self.response.close()
        self._connection.close()


def test_a_stream_tells_what_happens(running: Running, no_floor: None) -> None:
    reader = Reader(running, "/v1/events")
    reader.response.readline()  # it listens now
    task_id = submit(running)
    (told,) = reader.take(1)
    reader.close()
    assert (told.task_id, told.kind) == (task_id, "task.enqueued")


def test_a_stream_goes_on_after_the_event_that_was_seen_last(running: Running) -> None:
    first, second = submit(running), submit(running)
    reader = Reader(running, "/v1/events")
    (told,) = reader.take(1)
    reader.close()
    assert told.task_id == first
    reader = Reader(running, "/v1/events", {"last-event-id": str(told.id)})
    (told,) = reader.take(1)
    reader.close()
    assert told.task_id == second


def test_a_stream_can_begin_now(running: Running) -> None:
    submit(running)
    reader = Reader(running, "/v1/events?after=now")
    assert reader.response.readline() == b": here\n"
    place = reader.response.readline().removeprefix(b"id: ").strip().decode()
    mine = submit(running)
    (told,) = reader.take(1)
    reader.close()
    assert told.task_id == mine
    reader = Reader(running, "/v1/events?after=now", {"last-event-id": place})  # as a browser comes back
    assert reader.take(1) == [told]
    reader.close()
    assert running.get("/v1/events?after=now").json == {"events": [], "after": told.id}
    assert running.get(f"/v1/tasks/{mine}/events?after=now").json == {"events": [], "after": told.id}


def test_the_events_of_one_task_are_a_stream_too(running: Running) -> None:
    submit(running)
    mine = submit(running)
    reader = Reader(running, f"/v1/tasks/{mine}/events?follow=true", {"accept": "*/*"})
    (told,) = reader.take(1)
    reader.close()
    assert told.task_id == mine


def test_a_stream_that_is_silent_says_that_it_is_there(memory: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "KEEP_ALIVE_SECONDS", 0.0)
    monkeypatch.setattr(streaming, "POLL_SECONDS", 0.01)
    reader = Reader(memory, "/v1/events")
    lines = [reader.response.readline() for _ in range(3)]
    reader.close()
    assert lines == [b": here\n", b"\n", b": still here\n"]


def test_streams_are_bounded(memory: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "STREAMS_MOST", 1)
    monkeypatch.setattr(streaming, "POLL_SECONDS", 0.01)
    reader = Reader(memory, "/v1/events")
    reader.response.readline()
    answer = memory.get("/v1/events?follow=true")
    assert (answer.status, answer.code) == (503, "store_unavailable")
    reader.close()
    wait_until(lambda: memory.hall.streams == 0, "the stream to end with its reader")
    Reader(memory, "/v1/events").close()


def test_a_page_of_events_says_where_the_next_begins(running: Running) -> None:
    for _ in range(3):
        submit(running)
    first = running.get("/v1/events?limit=2").json
    assert len(first["events"]) == 2
    second = running.get(f"/v1/events?limit=2&after={first['after']}").json
    assert len(second["events"]) == 1
    last = running.get(f"/v1/events?limit=2&after={second['after']}").json
    assert last == {"events": [], "after": second["after"]}


def test_an_event_id_that_is_none_is_refused(memory: Running) -> None:
    answer = memory.get("/v1/events", headers={"accept": "text/event-stream", "last-event-id": "x"})
    assert (answer.status, answer.code) == (422, "invalid_task")


# Stopping


def test_a_service_that_stops_answers_who_waits_and_ends_who_streams() -> None:
    with dispatcher() as running:
        waits = meanwhile(lambda: claim(running, wait_seconds=60))
        hint = running.get("/v1/wakeups?wait=0").json["seen"]
        polls = meanwhile(lambda: running.get(f"/v1/wakeups?wait=60&seen={hint}"))
        reader = Reader(running, "/v1/events")
        wait_until(lambda: waiting(running) == 1, "the claim to wait")
    assert waits.result(TIMEOUT_SECONDS).json["claims"] == []
    assert polls.result(TIMEOUT_SECONDS).status == 200
    assert list(reader.events()) == []
    reader.close()


def test_a_service_that_is_about_to_stop_is_not_ready(memory: Running) -> None:
    assert memory.get("/readyz").status == 200
    memory.drain()
    answer = memory.get("/readyz")
    assert (answer.status, answer.code) == (503, "store_unavailable")
    assert memory.get("/livez").status == 200
