"""The command line through a dispatcher: the same commands with another URL, and a token that nobody gets to read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import Holdfast
from tests.acceptance.cli_driver import Cli
from tests.dispatchers import Serving, upkeep


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    with (
        Holdfast(f"sqlite:///{tmp_path}/shop.db") as behind,
        Serving(behind.connections.factory, upkeep=upkeep) as serving,
    ):
        yield serving.url


READS = [
    ("tasks", "list"),
    ("dlq", "list"),
    ("queues", "list"),
    ("runs", "list"),
    ("schedules", "list"),
    ("workers",),
    ("datasets", "list"),
    ("doctor",),
]


def test_a_worker_and_all_that_people_ask_work_through_a_dispatcher(cli: Cli, url: str) -> None:
    made = cli("--url", url, "enqueue", "shop.add", "2", "--kw", "b=3", "--json").json["id"]
    failed = cli.app("--url", url, "enqueue", "shop.fail", "no", "--json").json["id"]
    worker = cli.start("--app", "shop:app", "--url", url, "worker", "--until-idle", "--concurrency", "5")
    assert worker.ended() == 0, worker.said
    assert f"on {url}" in worker.wait_for("holdfast ")[0]
    assert cli("--url", url, "tasks", "show", made, "--json").json["result"] == 5
    for command in READS:
        ran = cli("--url", url, *command, "--json")
        assert ran.code == 0, ran.err
        assert all(isinstance(json.loads(line), dict | list) for line in ran.out.splitlines())
    assert cli("--url", url, "tasks", "why", failed).code == 0
    assert cli("--url", url, "dlq", "requeue", failed).code == 0
    assert cli("--url", url, "tasks", "cancel", failed).code == 0
    assert cli("--url", url, "tasks", "delete", failed).code == 0
    assert cli("--url", url, "queues", "pause", "mail").code == 0
    assert cli("--url", url, "queues", "limit", "mail", "--max-running", "3").code == 0


def test_what_belongs_where_the_store_is_says_so(cli: Cli, url: str) -> None:
    for command in (("migrate",), ("token", "list")):
        ran = cli("--url", url, *command, "--json")
        assert ran.error["code"] == "not_supported"
        assert "the URL of the store behind it" in ran.error["message"]


def test_the_token_is_told_to_nobody_but_the_dispatcher(cli: Cli, url: str, tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/shop.db"
    made = cli("--url", store, "token", "create", "--scope", "enqueue", "--name", "web", "--json").json["token"]
    secret = url.replace("http://", f"http://{made}@")
    assert cli("--url", url, "enqueue", "shop.add", "1", "--json").error["code"] == "unauthorized"
    for ran in (
        cli("--url", secret, "enqueue", "shop.add", "1", "--json"),
        cli("enqueue", "shop.add", "1", "--json", HOLDFAST_URL=url, HOLDFAST_TOKEN=made),
    ):
        assert ran.code == 0, ran.err
        assert made not in ran.out + ran.err
    refused = cli("--url", secret, "queues", "list", "--json", "--debug")
    assert refused.error["code"] == "forbidden"
    assert made not in refused.out + refused.err
