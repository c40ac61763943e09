"""A relay that is killed between telling and recording: everything is told, some of it again, under the same id."""

from __future__ import annotations

import signal
from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast import Holdfast
from tests import postgres_server
from tests.acceptance.processes import killed_at_the_end, start
from tests.relay.receiver import Receiver, Request
from tests.runtime.support import wait_until

TASKS = 20


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_killed_relay_loses_nothing_and_repeats_under_the_same_id(store: str, tmp_path: Path) -> None:
    schema = postgres_server.fresh_schema()
    url = f"sqlite:///{tmp_path}/tasks.db" if store == "sqlite" else f"{postgres_server.server().url}?schema={schema}"
    with Receiver() as receiver, Holdfast(url) as app:
        app.webhook(receiver.url(), name="hook", private=True)
        handles = [app.enqueue("nobody.has.this") for _ in range(TASKS)]
        command = ["-m", "tests.acceptance.relay_worker", url, receiver.url()]
        for _ in range(2):
            with killed_at_the_end(start([*command, "die"], log=tmp_path / "log")) as process:
                assert process.wait(60) == -signal.SIGKILL
        told_before = len(receiver.requests)
        assert told_before > 0
        with killed_at_the_end(start(command, log=tmp_path / "log")):
            wait_until(lambda: told_all(receiver, [handle.id for handle in handles]), "all to be told", seconds=60)
    deliveries: dict[str, set[str]] = defaultdict(set)
    for request in receiver.requests:
        event = msgspec.json.decode(request.body)
        deliveries[request.headers["Holdfast-Id"]].add(f"{event['task_id']} {event['id']}")
    assert all(len(events) == 1 for events in deliveries.values()), "an id stands for one event"
    assert len(deliveries) < len(receiver.requests), "something was repeated"
    for handle in handles:
        first_heard = dict.fromkeys(
            event["id"] for event in map(decoded, receiver.requests) if event["task_id"] == handle.id
        )
        assert list(first_heard) == sorted(first_heard), "first deliveries are in order"


def decoded(request: Request) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(request.body)
    return found


def told_all(receiver: Receiver, task_ids: list[str]) -> bool:
    told = {decoded(request)["task_id"] for request in list(receiver.requests)}
    return told >= set(task_ids)
