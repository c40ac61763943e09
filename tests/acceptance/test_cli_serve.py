"""The dispatcher as people start and stop it, and the tokens that they make for it."""

from __future__ import annotations

import http.client
import re
import signal
import socket
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.acceptance.cli_driver import LONGEST_SECONDS, Cli, Started, eventually

STORE = ("--url", "sqlite:///shop.db")
SECRET = re.compile(r"hf_([0-9a-f]{16})_[A-Za-z0-9_-]{43}")


def call(url: str, method: str, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(str(urlsplit(url).netloc), timeout=LONGEST_SECONDS)
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    try:
        connection.request(method, path, None if body is None else msgspec.json.encode(body), headers)
        answer = connection.getresponse()
        return answer.status, msgspec.json.decode(answer.read())
    finally:
        connection.close()


def address(started: Started) -> str:
    (line,) = started.wait_for("dispatcher at")
    found = re.search(r"http://[\d.]+:\d+", line)
    assert found, line
    return found[0]


def made(cli: Cli, *arguments: str) -> dict[str, Any]:
    ran = cli(*STORE, "token", "create", *arguments, "--json")
    assert ran.code == 0, ran.err
    token: dict[str, Any] = ran.json
    return token


def test_it_says_where_it_is_and_that_it_is_open_to_this_machine(cli: Cli) -> None:
    service = cli.start(*STORE, "serve", "--port", "0")
    url = address(service)
    assert "shop.db" in service.wait_for("dispatcher at")[0]
    assert "holdfast token create" in service.wait_for("warning:")[0]
    assert call(url, "GET", "/readyz") == (200, {})
    status, answer = call(url, "POST", "/v1/tasks", {"tasks": [{"name": "shop.add", "payload": {}}]})
    assert status == 200
    assert cli.task(answer["tasks"][0]["id"])["name"] == "shop.add"


def test_for_programs_it_says_so_in_json(cli: Cli) -> None:
    service = cli.start(*STORE, "serve", "--port", "0", "--log-format", "json", "--json")
    assert service.process.stdout is not None
    said = msgspec.json.decode(service.process.stdout.readline())
    assert set(said) == {"url", "store", "tokens", "pid"}
    assert said["tokens"] is False
    assert call(said["url"], "GET", "/livez")[0] == 200
    service.signal(signal.SIGTERM)
    assert service.ended() == 0
    assert all(msgspec.json.decode(line) for line in service.said)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_answers_who_waits_and_exits_0(cli: Cli, number: signal.Signals) -> None:
    service = cli.start(*STORE, "serve", "--port", "0")
    url = address(service)
    waits = http.client.HTTPConnection(str(urlsplit(url).netloc), timeout=LONGEST_SECONDS)
    waits.request("POST", "/v1/claims", msgspec.json.encode({"worker_id": "w", "wait_seconds": 60}))
    assert call(url, "GET", "/livez")[0] == 200  # what came before has been taken
    service.signal(number)
    assert msgspec.json.decode(waits.getresponse().read()) == {"claims": [], "next_due_at": None, "more": False}
    waits.close()
    assert service.ended() == 0
    stopping, stopped = (line for line in service.said if "dispatcher.stop" in line)
    assert "dispatcher.stopping calls=1 grace_s=25" in stopping
    assert "dispatcher.stopped unfinished=0" in stopped


SUBSCRIBED = """
import sys

from holdfast import Event, Holdfast

app = Holdfast("sqlite:///shop.db")


@app.subscribe("task.enqueued")
def heard(event: Event) -> None:
    print(f"heard of {event.task_id}", file=sys.stderr)
"""


def test_with_an_app_it_calls_the_subscribers(cli: Cli) -> None:
    (cli.folder / "listening.py").write_text(SUBSCRIBED)
    service = cli.start("--app", "listening:app", "serve", "--port", "0")
    address(service)
    eventually(lambda: bool(cli(*STORE, "sinks", "list", "--json").lines), "the subscriber is known")
    service.wait_for(f"heard of {cli.enqueue('shop.add', '1')}")


UNDECIDED = "from holdfast import Holdfast\n\napp = Holdfast()\n"


@pytest.mark.parametrize("given", [STORE, ()])
def test_it_says_which_store_was_chosen_only_where_nobody_named_one(cli: Cli, given: tuple[str, ...]) -> None:
    (cli.folder / "undecided.py").write_text(UNDECIDED)
    service = cli.start(*given, "--app", "undecided:app", "serve", "--port", "0")
    line = service.wait_for("dispatcher at")[0]
    assert ("shop.db" in line) == bool(given)
    assert call(address(service), "GET", "/livez")[0] == 200
    service.signal(signal.SIGTERM)
    assert service.ended() == 0
    chosen = [line for line in service.said if "store.chosen" in line]
    assert len(chosen) == (0 if given else 1)


def test_it_does_not_leave_this_machine_without_tokens(cli: Cli) -> None:
    ran = cli(*STORE, "serve", "--host", "0.0.0.0", "--port", "0")
    assert ran.code == 2
    assert "holdfast token create" in ran.err


def test_with_a_token_it_may_be_reached_from_outside(cli: Cli) -> None:
    token = made(cli, "--scope", "read")["token"]
    service = cli.start(*STORE, "serve", "--host", "0.0.0.0", "--port", "0")
    port = urlsplit(address(service)).port
    url = f"http://127.0.0.1:{port}"
    assert call(url, "GET", "/v1/now")[0] == 401
    assert call(url, "GET", "/v1/now", token=token)[0] == 200
    assert not [line for line in service.said if "warning" in line]


def test_a_taken_port_is_an_error_that_says_what_to_do(cli: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = cli(*STORE, "serve", "--port", str(taken.getsockname()[1]))
    assert ran.code == 1
    assert "--port" in ran.err


def test_a_token_is_shown_once(cli: Cli) -> None:
    ran = cli(*STORE, "token", "create", "--scope", "work,enqueue", "--name", "mailer")
    assert ran.code == 0
    found = SECRET.fullmatch(ran.out.strip())
    assert found
    secret = ran.out.strip().rsplit("_", 1)[1]
    listed = cli(*STORE, "token", "list")
    assert found[1] in listed.out
    assert "mailer" in listed.out
    assert "enqueue, work" in listed.out
    assert secret not in listed.out + cli(*STORE, "token", "list", "--json").out + ran.err


def test_a_token_in_json_has_its_record(cli: Cli) -> None:
    token = made(cli, "--scope", "work", "--scope", "read", "--expires-in", "7d")
    assert SECRET.fullmatch(token["token"])
    assert token["scopes"] == ["work", "read"]
    assert token["expires_at"] > token["created_at"]
    (listed,) = [msgspec.json.decode(line) for line in cli(*STORE, "token", "list", "--json").out.splitlines()]
    assert listed == {name: value for name, value in token.items() if name != "token"}


def test_a_revoked_token_stays_in_the_list(cli: Cli) -> None:
    token = made(cli, "--scope", "read")
    assert cli(*STORE, "token", "revoke", token["id"]).code == 0
    assert "revoked" in cli(*STORE, "token", "list").out
    assert cli(*STORE, "token", "revoke", "0123456789abcdef").code == 3


def test_a_scope_that_is_none_is_refused(cli: Cli) -> None:
    ran = cli(*STORE, "token", "create", "--scope", "root")
    assert ran.code == 2
    assert "enqueue, work, read, admin" in ran.err
    assert cli(*STORE, "token", "create").code == 2
