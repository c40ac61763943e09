"""`holdfast queues limit`, and `tasks why` for a task that a limit holds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.model.claim import ClaimRequest
from tests import postgres_server
from tests.acceptance.cli_driver import Cli, Ran
from tests.stores.postgres_support import opened


@pytest.fixture
def schema() -> str:
    return postgres_server.fresh_schema()


@pytest.fixture
def url(schema: str) -> str:
    return f"{postgres_server.server().url}?schema={schema}"


def run(cli: Cli, url: str, *words: str) -> Ran:
    return cli("--app", "shop:app", "--url", url, *words)


def enqueue(cli: Cli, url: str, *words: str) -> str:
    task_id: str = run(cli, url, "enqueue", "shop.add", "1", *words, "--json").json["id"]
    return task_id


def why(cli: Cli, url: str, task_id: str) -> dict[str, Any]:
    answer: dict[str, Any] = run(cli, url, "tasks", "why", task_id, "--json").json
    return answer


def claim(schema: str) -> int:
    """As a worker would."""

    async def claim_all() -> int:
        async with opened(schema) as store:
            return len((await store.claim(ClaimRequest(worker_id="w", claim_id="c", limit=9))).claims)

    return asyncio.run(claim_all())


def test_limits_are_set_changed_and_cleared(cli: Cli, url: str) -> None:
    enqueue(cli, url, "--queue", "mail")
    limits = run(cli, url, "queues", "limit", "mail", "--max-running", "3", "--rate", "10/min", "--json").json["limits"]
    assert limits == {
        "max_running": 3,
        "rate": {"count": 10, "period": 60.0},
        "burst": 1,
        "max_running_per_key": None,
    }
    said = run(cli, url, "queues", "limit", "mail", "--max-running-per-key", "2", "--rate", "none").out
    assert said == "queue mail is open, limits: 3 running; 2 running per key\n"
    assert "3 running; 2 running per key" in run(cli, url, "queues", "list").out
    assert run(cli, url, "queues", "limit", "*", "--max-running", "9").err == ""


@pytest.mark.parametrize(
    ("words", "code"), [((), 2), (("--max-running", "many"), 2), (("--max-running", "0"), 2), (("--rate", "fast"), 2)]
)
def test_a_limit_that_makes_no_sense_is_refused(cli: Cli, url: str, words: tuple[str, ...], code: int) -> None:
    assert run(cli, url, "queues", "limit", "mail", *words).code == code


def test_why_a_task_that_a_limit_holds_does_not_run(cli: Cli, url: str, schema: str) -> None:
    first, second = (enqueue(cli, url, "--queue", "mail", "--concurrency-key", "x") for _ in range(2))
    run(cli, url, "queues", "limit", "mail", "--per-key", "1")
    behind = why(cli, url, second)
    assert behind["reason"] == "behind_in_key"
    assert first in behind["text"]
    assert claim(schema) == 1
    assert why(cli, url, second)["reason"] == "limited_key"
    run(cli, url, "queues", "limit", "mail", "--per-key", "none", "--max-running", "1")
    assert why(cli, url, second)["reason"] == "limited"
    run(cli, url, "queues", "limit", "mail", "--max-running", "none")
    run(cli, url, "queues", "limit", "*", "--max-running", "1")
    assert "whole store" in why(cli, url, second)["text"]


def test_why_a_task_that_a_rate_holds_does_not_run_and_until_when(cli: Cli, url: str, schema: str) -> None:
    run(cli, url, "queues", "limit", "mail", "--rate", "1/h")
    tasks = [enqueue(cli, url, "--queue", "mail") for _ in range(2)]
    assert claim(schema) == 1
    (held,) = (task for task in tasks if run(cli, url, "tasks", "show", task, "--json").json["status"] == "queued")
    answer = why(cli, url, held)
    assert answer["reason"] == "limited_rate"
    assert "1 task may start per 60 m, the next one at " in answer["text"]
    assert answer["command"] == "holdfast queues limit mail --rate 2/3600s"
    assert run(cli, url, *answer["command"].split()[1:]).code == 0
    assert why(cli, url, held)["reason"] == "limited_rate"
    run(cli, url, "queues", "limit", "mail", "--rate", "1000/s")
    assert why(cli, url, held)["reason"] == "no_worker"


def test_why_the_task_before_it_in_order_does_not_run_either(cli: Cli, url: str) -> None:
    first, second = (enqueue(cli, url, "--queue", "mail", "--concurrency-key", "x") for _ in range(2))
    run(cli, url, "queues", "limit", "mail", "--max-running-per-key", "1")
    run(cli, url, "queues", "pause", "mail")
    last = why(cli, url, second)["also"][-1]
    assert (last["reason"], first in last["text"]) == ("paused", True)


def test_the_doctor_says_which_limits_hold_tasks(cli: Cli, url: str, schema: str) -> None:
    run(cli, url, "queues", "limit", "rated", "--rate", "1/h")
    run(cli, url, "queues", "limit", "full", "--max-running", "1")
    for queue in ("rated", "full"):
        for _ in range(2):
            enqueue(cli, url, "--queue", queue)
    assert claim(schema) == 2
    run(cli, url, "queues", "limit", "*", "--max-running", "2")
    worker = cli.start("--app", "shop:app", "--url", url, "worker")
    worker.wait_for("worker.started")
    found = [line["text"] for line in run(cli, url, "doctor", "--json").lines]
    assert "1 queued task in 'full', held by max_running: 1 of 1 run" in found
    assert "1 queued task in 'rated', held by its rate: the next may start in 60 m" in found
    assert "of the whole store ('*'), held by max_running: 2 of 2 run" in found
