"""Dispatchers die and take turns under a working worker: nothing is lost, nothing runs twice while its lease holds."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.errors import TaskCanceled
from holdfast.events.facts import StoreAway, StoreBack
from holdfast.stores.open import store_factory
from tests import postgres_server
from tests.dispatchers import Serving, upkeep
from tests.faults.load import Producer, check_load, check_told, declare, wait_until_all_ended
from tests.faults.test_cuts_worker import FOREVER
from tests.http_link import Turns
from tests.runtime.support import Crew, wait_until

KILLS = 5
TURNS = 300


class Process:
    """`holdfast serve` on a port of its own, again and again."""

    def __init__(self, url: str, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = int(probe.getsockname()[1])
        self._url = url
        self._log = log
        self.url = f"http://127.0.0.1:{self._port}"

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast", "serve", "--port", str(self._port), "--log-format", "json"]
        with self._log.open("ab") as log:
            started = subprocess.Popen(command, env=os.environ | {"HOLDFAST_URL": self._url}, stdout=log, stderr=log)
        wait_until(lambda: self._answers(started), f"the dispatcher: {self._log.read_text()}")
        return started

    def _answers(self, started: subprocess.Popen[bytes]) -> bool:
        assert started.poll() is None, self._log.read_text()
        try:
            socket.create_connection(("127.0.0.1", self._port)).close()
        except ConnectionRefusedError:
            return False
        return True


@contextmanager
def killed_at_the_end(process: subprocess.Popen[bytes]) -> Iterator[None]:
    try:
        yield
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_dispatcher_killed_under_a_worker_costs_nothing_but_time(store: str, tmp_path: Path) -> None:
    """1. calls are under way  2. kill -9  3. another one starts in its place  4. the same calls are made again"""
    url = f"sqlite:///{tmp_path}/tasks.db"
    if store == "postgres":
        url = f"{postgres_server.server().url}?schema={postgres_server.fresh_schema()}"
    service = Process(url, tmp_path / "log")
    alive = service.start()
    with Holdfast(url) as direct, Holdfast(service.url, retention=FOREVER) as app:
        ran = declare(app)
        with Crew(app, concurrency=10) as crew:
            with Producer(app) as producer:
                for _ in range(KILLS):
                    producer.wait_for_more()
                    alive.send_signal(signal.SIGKILL)
                    alive.wait()
                    alive = service.start()
                producer.wait_for_more()
            with killed_at_the_end(alive):
                wait_until_all_ended(app)
                crew.__exit__()
                assert direct.workers.list() == []
        check_load(direct.connections.factory, producer.acknowledged, ran)
        check_told(crew.told, ran)
    assert crew.raised is None
    assert crew.of(StoreAway)
    assert crew.of(StoreBack)


def test_two_dispatchers_behind_one_url_are_as_good_as_one(tmp_path: Path) -> None:
    """Every call goes to the other one: claims, settles and heartbeats of one attempt through both of them."""
    with (
        Holdfast(f"sqlite:///{tmp_path}/tasks.db") as direct,
        Serving(direct.connections.factory, upkeep=upkeep) as one,
        Serving(direct.connections.factory, upkeep=upkeep) as other,
        Turns(one.url, other.url) as both,
        Holdfast(both.url, retention=FOREVER) as app,
    ):
        ran = declare(app)
        with Crew(app, concurrency=10) as crew:
            with Producer(app) as producer:
                wait_until(lambda: len(producer.acknowledged) >= TURNS, "enough to be submitted")
            wait_until_all_ended(app)
        check_load(direct.connections.factory, producer.acknowledged, ran)
        check_told(crew.told, ran)
    assert crew.raised is None
    assert not crew.of(StoreAway)


def test_a_remote_worker_starts_before_its_dispatcher_and_ends_after_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    service = Process(url, tmp_path / "log")
    with Holdfast(url) as direct, Holdfast(service.url) as app:
        begun = threading.Event()

        @app.task(name="note")
        async def note() -> str:
            begun.set()
            return "noted"

        with Crew(app) as crew:
            crew.wait_for(StoreAway)
            with killed_at_the_end(service.start()):
                handle = direct.enqueue("note")
                assert handle.result(timeout=20) == "noted"
            assert begun.is_set()
    assert crew.raised is None


def test_who_waits_for_a_result_waits_through_a_restart_of_the_dispatcher(tmp_path: Path) -> None:
    factory = store_factory(f"sqlite:///{tmp_path}/tasks.db")
    away = threading.Event()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    serving = Serving(factory, port=port)
    with serving, Holdfast(serving.url) as app, ThreadPoolExecutor(1) as threads:
        app.client._health._bus.subscribe(lambda told: away.set() if isinstance(told, StoreAway) else None)
        handle = app.enqueue("nobody.knows.it")
        result = threads.submit(handle.result, timeout=60)
        wait_until(lambda: bool(app.client._waiters), "somebody to wait")
        serving.__exit__()
        assert away.wait(30)
        assert not result.done()
        serving.__enter__()
        handle.cancel()
        with pytest.raises(TaskCanceled):
            result.result(60)
