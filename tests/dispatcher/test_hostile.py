"""What strangers send: bodies, parameters and connections that nobody's client would make."""

from __future__ import annotations

import json
import re
import socket
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest

from holdfast.dispatcher import http_limits
from holdfast.dispatcher.bodies import Intake
from tests.dispatcher.support import TIMEOUT_SECONDS, Running, dispatcher

DEEP = 100_000


@pytest.fixture(scope="module")
def small() -> Iterator[Running]:
    """One that takes bodies of a thousand bytes, and waits a moment for them."""
    with dispatcher(intake=Intake(each=1000, all_together=10_000, seconds=0.3)) as running:
        yield running


@pytest.fixture(scope="module")
def any_size() -> Iterator[Running]:
    with dispatcher() as running:
        yield running


def submit(running: Running, payload: bytes) -> Any:
    return running.post("/v1/tasks", raw=b'{"tasks":[{"name":"send","payload":%s}]}' % payload)


def given_back(running: Running, payload: bytes) -> bytes:
    """The payload, as a claim gives it."""
    (task,) = submit(running, payload).json["tasks"]
    answer = running.post("/internal/task-claim", {"task_id": task["id"], "worker_id": "w"})
    start = answer.text.index(b'"payload":') + len(b'"payload":')
    return answer.text[start : answer.text.index(b',"priority"', start)]


@pytest.mark.parametrize(
    "payload",
    [
        b"null",
        b"-0.0",
        b"1e16",
        b"12345678901234567890123456789012345678901234567890",
        rb'"\u0000"',
        '"ü \U0001f600"'.encode(),
        b"[" * 150 + b"]" * 150,
        b'{"a":{"b":[1,2.5,true,null]}}',
        b'{"__proto__":1,"":2}',
    ],
)
def test_a_payload_comes_back_as_it_was(any_size: Running, payload: bytes) -> None:
    assert given_back(any_size, payload) == payload


def test_white_space_and_repeated_keys_do_not_come_back(any_size: Running) -> None:
    assert given_back(any_size, b' { "a" : 1 , "a" : 2 } ') == b'{"a":2}'


def test_the_same_task_in_another_spelling_is_the_same(any_size: Running) -> None:
    task = '{"tasks":[{"id":"%s","name":"send","payload":%s}]}'
    task_id = "0190a6e8-0000-7000-8000-000000000001"
    for payload in ('{"a":"é"}', r'{ "a" : "\u00e9" }'):
        answer = any_size.post("/v1/tasks", raw=(task % (task_id, payload)).encode())
        assert answer.json == {"tasks": [{"id": task_id, "created": True}]}


@pytest.mark.parametrize(
    "payload",
    [
        b"1e999",
        b"NaN",
        b"Infinity",
        b"-Infinity",
        rb'"\ud800"',
        rb'{"\udfff":1}',
        b'"\xff"',
        b"[" * 201 + b"]" * 201,
        b"[" * DEEP + b"]" * DEEP,
        b'{"a":' * DEEP + b"1" + b"}" * DEEP,
        b"1" + b"0" * 2000,
        b"1" + b"0" * 100_000,
        b"'single'",
        b"{a:1}",
        b"[1,]",
        b"",
        b"undefined",
    ],
    ids=lambda payload: payload[:20].decode("latin-1"),
)
def test_what_json_cannot_carry_is_refused(any_size: Running, payload: bytes) -> None:
    answer = submit(any_size, payload)
    assert (answer.status, answer.code) == (422, "invalid_task")


def test_a_payload_that_is_too_large_is_refused_as_such(any_size: Running) -> None:
    assert submit(any_size, b'"%s"' % (b"x" * ((1 << 20) - 2))).status == 200
    answer = submit(any_size, b'"%s"' % (b"x" * (1 << 20)))
    assert (answer.status, answer.code) == (413, "payload_too_large")


@pytest.mark.parametrize(
    "task",
    [
        {},
        {"name": "x"},
        {"payload": 1},
        {"name": "", "payload": 1},
        {"name": "x" * 513, "payload": 1},
        {"name": "é" * 300, "payload": 1},
        {"name": "a\nb", "payload": 1},
        {"name": "a\x00", "payload": 1},
        {"name": 7, "payload": 1},
        {"name": "x", "payload": 1, "id": "7"},
        {"name": "x", "payload": 1, "id": "0190A6E8-0000-7000-8000-000000000001"},
        {"name": "x", "payload": 1, "id": "0190a6e8-0000-7000-8000-000000000001\n"},
        {"name": "x", "payload": 1, "priority": 40_000},
        {"name": "x", "payload": 1, "priority": 1.5},
        {"name": "x", "payload": 1, "max_attempts": -1},
        {"name": "x", "payload": 1, "delay_seconds": -1},
        {"name": "x", "payload": 1, "delay_seconds": 1e300},
        {"name": "x", "payload": 1, "run_at": "2030-01-01T00:00:00"},
        {"name": "x", "payload": 1, "run_at": "0001-01-01T00:00:00+23:59"},
        {"name": "x", "payload": 1, "run_at": "2030-01-01T00:00:00Z", "delay_seconds": 1},
        {"name": "x", "payload": 1, "timeout": 0},
        {"name": "x", "payload": 1, "lease": -3},
        {"name": "x", "payload": 1, "backoff": {"type": "fixed", "delay": -1}},
        {"name": "x", "payload": 1, "backoff": {"type": "fixed", "delay": 1, "jitter": 7}},
        {"name": "x", "payload": 1, "backoff": {"type": "delays", "delays": []}},
        {"name": "x", "payload": 1, "backoff": {"type": "os.system"}},
        {"name": "x", "payload": 1, "meta": [1]},
        {"name": "x", "payload": 1, "meta": {"a": "x" * 20_000}},
        {"name": "x", "payload": 1, "parents": ["0190a6e8-0000-7000-8000-000000000001"]},
        {"name": "x", "payload": 1, "fail_fast": "all"},
        {"name": "x", "payload": 1, "on_parent_failure": "explode"},
        {"name": "x", "payload": 1, "inputs": {"orders": 0}},
        {"name": "x", "payload": 1, "inputs": {"orders": "child"}},
        {"name": "x", "payload": 1, "idempotency_key": ""},
    ],
)
def test_a_task_is_as_checked_as_those_of_our_own_client(any_size: Running, task: dict[str, Any]) -> None:
    before = any_size.get("/v1/queues").json
    answer = any_size.post("/v1/tasks", {"tasks": [{"name": "good", "payload": 1}, task]})
    assert answer.status in (413, 422), answer
    assert answer.code in ("invalid_task", "payload_too_large")
    assert any_size.get("/v1/queues").json == before, "all or none"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/workers", {"id": "w", "names": ["x\n"]}),
        ("/v1/workers", {"id": "w", "queues": ["x\n"]}),
        ("/v1/claims", {"worker_id": "w", "claim_id": "x\n"}),
        ("/v1/schedules/pause", {"name": "x\n"}),
        ("/v1/sinks", {"name": "w", "url": "sqs://q", "effect": "enqueue_task", "queues": ["x\n"]}),
    ],
)
def test_no_name_ends_in_a_line_break(any_size: Running, path: str, body: dict[str, Any]) -> None:
    assert (any_size.post(path, body).status, any_size.post(path, body).code) == (422, "invalid_task")


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b"null", b'"x"', b"{}", b'{"tasks":{}}', b'{"tasks":[]}x', b"\xff\xfe"]
)
def test_a_body_that_is_none_is_refused(any_size: Running, raw: bytes) -> None:
    answer = any_size.post("/v1/tasks", raw=raw)
    assert (answer.status, answer.code) == (422, "invalid_task")


def test_only_json_is_taken(any_size: Running) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = any_size.post("/v1/tasks", raw=b'{"tasks":[]}', headers={"content-type": kind})
        assert (answer.status, answer.code) == (415, "unsupported_media_type")
    answer = any_size.post(
        "/v1/tasks", raw=b'{"tasks":[]}', headers={"content-type": "Application/JSON; charset=utf-8"}
    )
    assert answer.json == {"tasks": []}


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=1001",
        "limit=x",
        "limit=1&limit=2",
        "colour=red",
        "status=done",
        "name=%00",
        "name=%ff",
        "finished_before=yesterday",
        "finished_before=1700000000",
        f"after={'x' * 513}",
        "queue=",
        "&".join(f"a{i}=1" for i in range(100)),
        "%",
    ],
)
def test_a_parameter_that_is_none_is_refused(any_size: Running, query: str) -> None:
    answer = any_size.get(f"/v1/tasks?{query}")
    assert (answer.status, answer.code) == (422, "invalid_task")


def test_names_are_never_paths_or_patterns(any_size: Running) -> None:
    for name in ("../../etc/passwd", "__import__('os')", "'; drop table tasks; --", "*", ">", "%s", "\u202eevil"):
        assert any_size.post("/v1/tasks", {"tasks": [{"name": name, "queue": name, "payload": name}]}).status == 200
    shown = any_size.get("/metrics").text.decode()
    assert 'queue="\'; drop table tasks; --"' in shown


def test_progress_cannot_forge_what_readers_rely_on(any_size: Running) -> None:
    (task,) = submit(any_size, b"1").json["tasks"]
    claim = any_size.post("/internal/task-claim", {"task_id": task["id"], "worker_id": "w"}).json
    lease = {name: claim[name] for name in ("task_id", "attempt", "lease_token")}
    for kind, data in (
        ("task.completed", {}),
        ("run.completed", {}),
        ("task.progress", {"delay_ms": "x"}),
        ("task.progress", [1]),
    ):
        answer = any_size.post("/v1/reports", {**lease, "kind": kind, "data": data})
        assert (answer.status, answer.code) == (422, "invalid_task"), kind
    done = any_size.post("/v1/reports", {**lease, "kind": "task.progress", "data": {"done": 1, "total": 2}})
    assert done.status == 200
    events = any_size.get(f"/v1/tasks/{task['id']}/events").json["events"]
    assert [event["kind"] for event in events] == ["task.enqueued", "task.running", "task.progress"]


def test_one_bad_settlement_does_not_spoil_the_others(any_size: Running) -> None:
    settlements = []
    for result in (b"1", b"2", b"[" * 300 + b"]" * 300):
        (task,) = submit(any_size, b"1").json["tasks"]
        claim = any_size.post("/internal/task-claim", {"task_id": task["id"], "worker_id": "w"}).json
        lease = json.dumps({name: claim[name] for name in ("task_id", "attempt", "lease_token")}).encode()
        settlements.append(lease[:-1] + b',"status":"completed","result":%s}' % result)
    stale = b'{"task_id":"nobody","attempt":1,"lease_token":"x","status":"completed"}'
    answer = any_size.post("/v1/settlements", raw=b'{"settlements":[%s]}' % b",".join([*settlements, stale]))
    first, second, deep, lost = answer.json["settlements"]
    assert first["status"] == second["status"] == "completed"
    assert deep["error"]["code"] == "invalid_task"
    assert lost["error"]["code"] == "task_not_found"


# Bodies that are too long, too slow, or never end


def test_a_body_is_cut_off_at_its_limit(small: Running) -> None:
    answer = small.post("/v1/tasks", raw=b"x" * 1001)
    assert (answer.status, answer.code) == (413, "payload_too_large")


def test_what_is_left_of_a_refused_body_is_not_read(small: Running) -> None:
    """The other side hangs up, though what was announced has not come."""
    for path in (b"/v1/tasks", b"/v2/nowhere", b"/livez"):
        head = b"POST " + path + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000000\r\n\r\n"
        assert re.match(rb"HTTP/1.1 4\d\d ", talk(small, head))


def talk(running: Running, *parts: bytes) -> bytes:
    """Say this, byte for byte, and hear until the other side hangs up."""
    host, port = str(urlsplit(running.url).netloc).split(":")
    with socket.create_connection((host, int(port)), timeout=TIMEOUT_SECONDS) as line:
        for part in parts:
            line.sendall(part)
        heard = b""
        while more := line.recv(65536):
            heard += more
        return heard


HEAD = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_body_without_a_length_is_cut_off_too(small: Running) -> None:
    chunks = [b"12c\r\n" + b"x" * 300 + b"\r\n" for _ in range(4)]
    heard = talk(small, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *chunks)
    assert heard.startswith(b"HTTP/1.1 413 ")


def test_a_body_that_does_not_come_is_not_waited_for(small: Running) -> None:
    heard = talk(small, HEAD + b"Content-Length: 100\r\n\r\n" + b'{"tasks":')
    assert heard.startswith(b"HTTP/1.1 408 ")


def test_a_length_that_is_no_number_is_refused(small: Running) -> None:
    assert talk(small, HEAD + b"Content-Length: 1e9\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    both = HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    assert talk(small, both).startswith(b"HTTP/1.1 400 ")


def test_bodies_together_are_bounded() -> None:
    with dispatcher(intake=Intake(each=1000, all_together=100)) as running:
        answer = running.post("/v1/tasks", raw=b"x" * 500)
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "store_unavailable", "1")
        assert running.post("/v1/tasks", {"tasks": []}).status == 200


@pytest.fixture(params=["httptools", "h11"])
def by_parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """uvicorn has two; which one is used depends on what is installed."""
    if request.param == "h11":
        monkeypatch.setitem(sys.modules, "uvicorn.protocols.http.httptools_impl", None)
    with dispatcher() as running:
        yield running


def test_headers_that_never_end_are_hung_up_on(by_parser: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_limits, "HEAD_SECONDS", 0.2)
    assert talk(by_parser, b"GET /v1/now HTTP/1.1\r\nHost: localhost\r\nX-Slow: ") == b""
    assert talk(by_parser) == b""


def test_headers_that_are_too_large_are_refused(by_parser: Running) -> None:
    try:
        heard = talk(by_parser, b"GET /v1/now HTTP/1.1\r\nHost: localhost\r\n", *[b"X-Big: " + b"x" * 60_000] * 3)
    except ConnectionError:
        heard = b""
    assert heard == b"" or heard.startswith(b"HTTP/1.1 400 ")
    assert by_parser.get("/livez").status == 200


def test_a_body_in_parts_is_one_body(by_parser: Running) -> None:
    parts = (b'9\r\n{"tasks":\r\n', b"3\r\n[]}\r\n", b"0\r\n\r\n")
    head = HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert talk(by_parser, head, *parts).endswith(b'{"tasks":[]}')
