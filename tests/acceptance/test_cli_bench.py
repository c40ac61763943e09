"""`holdfast bench` on small loads: real worker processes, counted by the store. How fast is nobody's business here."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest

from tests import jetstream_servers, postgres_server
from tests.acceptance.cli_driver import Cli


def postgres_url(**options: str) -> str:
    url = postgres_server.server().url
    return f"{url}{'&' if '?' in url else '?'}{urlencode({'schema': postgres_server.fresh_schema(), **options})}"


def figures(cli: Cli, *arguments: str) -> dict[str, Any]:
    ran = cli.process("bench", *arguments, "--json")
    assert ran.code == 0, ran.err
    found: dict[str, Any] = ran.json
    return found


def test_a_postgres_drain_and_its_submits_stand_beside_their_floors(cli: Cli) -> None:
    drained = figures(cli, "drain", "--url", postgres_url(), "--tasks", "600", "--processes", "2")
    assert (drained["tasks"], drained["processes"]) == (600, 2)
    assert drained["ratio"] == pytest.approx(drained["tasks_per_s"] / drained["floor_tasks_per_s"], rel=0.01)
    submitted = figures(cli, "submit", "--url", postgres_url(), "--tasks", "500", "--singles", "50")
    assert min(submitted["tasks_per_s"], submitted["floor_tasks_per_s"]) > 0
    assert submitted["single_ratio"] == pytest.approx(
        submitted["single_per_s"] / submitted["floor_single_per_s"], rel=0.05
    )


def test_a_nats_drain_stands_beside_two_bare_writes_per_task(cli: Cli) -> None:
    url = jetstream_servers.single().url(jetstream_servers.fresh_prefix())
    try:
        drained = figures(cli, "drain", "--url", url, "--tasks", "300")
        assert (drained["tasks"], drained["processes"]) == (300, 1)
        assert drained["ratio"] == pytest.approx(drained["tasks_per_s"] / drained["floor_tasks_per_s"], rel=0.01)
    finally:
        jetstream_servers.remove(url)


def test_a_sqlite_drain_is_that_of_a_worker_process(cli: Cli) -> None:
    drained = figures(cli, "drain", "--tasks", "300")
    assert drained["processes"] == 1
    assert drained["ratio"] > 0
    assert drained["cpu_us_per_task"] > 0


def test_a_drain_in_memory_has_no_process_of_its_own(cli: Cli) -> None:
    drained = figures(cli, "drain", "--tasks", "300", "--url", "memory://bench")
    assert (drained["processes"], drained["floor_tasks_per_s"], drained["ratio"]) == (0, None, None)


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_the_pick_up_is_timed_across_processes(cli: Cli, store: str) -> None:
    url = ("--url", postgres_url()) if store == "postgres" else ()
    found = figures(cli, "latency", "--tasks", "5", *url)
    assert 0 < found["whole_p50_ms"] <= found["whole_p99_ms"]
    assert found["commit_p50_ms"] > 0


def test_the_work_of_a_killed_worker_is_rescued_long_before_its_lease_ends(cli: Cli) -> None:
    found = figures(cli, "rescue", "--url", postgres_url(evict_grace="0.1"), "--lease-seconds", "600")
    assert 0 < found["seconds"] < 600


def test_a_worker_is_watched_under_a_held_snapshot(cli: Cli) -> None:
    found = figures(cli, "snapshot", "--url", postgres_url(), "--seconds", "1.5", "--queued", "500")
    assert found["window_seconds"] == 0.5
    assert found["first_per_s"] > 0
    assert found["last_per_s"] > 0


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_chord_and_the_price_of_limits_are_measured_on_real_workers(cli: Cli, store: str) -> None:
    def url() -> tuple[str, ...]:
        return ("--url", postgres_url()) if store == "postgres" else ()

    assert figures(cli, "chord", "--members", "200", *url())["members_per_s"] > 0
    limited = figures(cli, "limits", "--tasks", "400", "--max-running", "50", *url())
    assert limited["ratio"] == pytest.approx(limited["limited_per_s"] / limited["free_per_s"], rel=0.01)
    handed = figures(cli, "hand-over", "--tasks", "20", *url())
    assert 0 < handed["p50_ms"] <= handed["p99_ms"]
    shared = figures(cli, "fairness", "--largest", "50", "--keys", "5", *url())
    assert (shared["keys"], shared["keys_with_progress"]) == (5, 5)


@pytest.mark.parametrize("measure", ["snapshot", "producers"])
def test_questions_for_postgres_are_refused_elsewhere(cli: Cli, measure: str) -> None:
    ran = cli("bench", measure)
    assert ran.code == 4
    assert "postgresql://" in ran.err


def test_nothing_is_measured_on_a_store_in_use(cli: Cli) -> None:
    cli.enqueue("shop.add", "1")
    ran = cli("bench", "drain", "--url", "sqlite:///shop.db")
    assert ran.code == 1
    assert "holds tasks already" in ran.err
