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
    said = run(cli, url, "queues", "limit", "mail", "--per-key", "2", "--rate", "none").out
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
