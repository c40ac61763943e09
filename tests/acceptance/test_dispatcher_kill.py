"""Two dispatchers on one store, one of them killed under load: nothing is lost, and nothing runs twice (C14.4).

1. Producers and workers call either dispatcher, each through connections of its own.
2. One dispatcher is killed with SIGKILL while calls are under way: some are done, some are not, no answer says which.
3. Everybody makes the same call again at the other one: the same ids, the same claim_id, the same lease.
"""

from __future__ import annotations

import http.client
import signal
import threading
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

import msgspec

from holdfast import Holdfast, ids
from tests.acceptance.cli_driver import LONGEST_SECONDS, Cli, eventually

PRODUCERS, WORKERS, BATCHES, BATCH = 3, 4, 40, 5
TASKS = PRODUCERS * BATCHES * BATCH


class Caller:
    """Calls one dispatcher, and the other one when that is gone."""

    def __init__(self, urls: list[str], first: int) -> None:
        self._hosts = [str(urlsplit(url).netloc) for url in urls]
        self._at = first
        self._line: http.client.HTTPConnection | None = None
        self.lost = 0

    def __call__(self, path: str, body: Any) -> Any:
        while True:
            try:
                return self._call(path, body)
            except (OSError, http.client.HTTPException):
                self.lost += 1
                self.close()
                self._at += 1

    def close(self) -> None:
        if self._line is not None:
            self._line.close()
            self._line = None

    def _call(self, path: str, body: Any) -> Any:
        if self._line is None:
            self._line = http.client.HTTPConnection(self._hosts[self._at % 2], timeout=LONGEST_SECONDS)
        self._line.request("POST", path, msgspec.json.encode(body))
        answer = self._line.getresponse()
        text = answer.read()
        if answer.status == 503:
            raise http.client.HTTPException(text)
        assert answer.status == 200, text
        return msgspec.json.decode(text)


def produce(call: Caller, acknowledged: list[str]) -> None:
    for _ in range(BATCHES):
        tasks = [{"id": task_id, "name": "count", "payload": 1} for task_id in ids.task_ids(BATCH)]
        acknowledged += [one["id"] for one in call("/v1/tasks", {"tasks": tasks})["tasks"]]


def work(call: Caller, ran: Counter[str], done: threading.Event) -> None:
    while not done.is_set():
        claim = {"worker_id": "w", "claim_id": ids.token(), "limit": 7, "wait_seconds": 0.5}
        claims = call("/v1/claims", claim)["claims"]
        for one in claims:
            ran[one["task_id"]] += 1
        leases = [{name: one[name] for name in ("task_id", "attempt", "lease_token")} for one in claims]
        settlements = [{**lease, "status": "completed"} for lease in leases]
        for item in call("/v1/settlements", {"settlements": settlements})["settlements"]:
            assert item.get("status") == "completed", item


def test_kill_of_one_of_two_dispatchers_under_load_loses_nothing(cli: Cli) -> None:
    store = f"sqlite:///{cli.folder}/shop.db"
    services = [cli.start("--url", store, "serve", "--port", "0") for _ in range(2)]
    urls = [service.wait_for("dispatcher at")[0].split(" at ")[1].split(" ")[0] for service in services]
    acknowledged: list[str] = []
    ran: Counter[str] = Counter()
    done = threading.Event()
    callers = [Caller(urls, number) for number in range(PRODUCERS + WORKERS)]
    producers = [threading.Thread(target=produce, args=(call, acknowledged)) for call in callers[:PRODUCERS]]
    workers = [threading.Thread(target=work, args=(call, ran, done)) for call in callers[PRODUCERS:]]
    for thread in (*producers, *workers):
        thread.start()
    eventually(lambda: len(ran) > TASKS // 10, "the load to be under way")
    services[0].signal(signal.SIGKILL)
    for thread in producers:
        thread.join(LONGEST_SECONDS)
    eventually(lambda: len(ran) == TASKS, "everything to have run")
    done.set()
    for thread in workers:
        thread.join(LONGEST_SECONDS)
    for call in callers:
        call.close()
    assert not [thread for thread in (*producers, *workers) if thread.is_alive()]
    assert sum(call.lost for call in callers) > 0, "somebody was cut off"
    assert sorted(acknowledged) == sorted(ran)
    assert set(ran.values()) == {1}
    with Holdfast(store) as app:
        counts = app.tasks.count()
        assert {status: number for status, number in counts.items() if number} == {"completed": TASKS}
        assert app.tasks.get(acknowledged[0]).attempt == 1
