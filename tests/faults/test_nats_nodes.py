"""Nodes of a NATS cluster are killed under load: the leader, each in turn, all at once. Real servers, real workers.

Nothing that was acknowledged is lost, no attempt is granted twice, nothing stale wins, and workers go on by themselves.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random

import pytest

from holdfast import Holdfast, ids
from holdfast.model.task import NewTask
from holdfast.stores.nats.options import parsed
from tests.acceptance.crash_worker import Orders
from tests.acceptance.processes import check_nothing_was_lost, killed_at_the_end, ledger_of, start_worker
from tests.faults.load import Producer
from tests.jetstream_node import Node
from tests.jetstream_servers import Servers, fresh_cluster, fresh_prefix, fresh_single
from tests.runtime.support import wait_until

WORKERS = 2
LEASE_SECONDS = 5.0
PAUSE_SECONDS = 0.1
SOAK_KILLS = 60


@pytest.fixture(scope="module")
def cluster() -> Iterator[Servers]:
    with fresh_cluster() as servers:
        yield servers


def works(app: Holdfast) -> list[NewTask]:
    calls = [app.using(max_attempts=0, idempotency_key=ids.token()).s("work", number) for number in range(5)]
    return [call.new_task(ids.task_id()) for call in calls]


class Load:
    """Workers as processes of their own, and a producer that never gives up."""

    def __init__(self, servers: Servers, url: str, producer: Producer, ledger: Path) -> None:
        self.servers = servers
        self.url = url
        self.producer = producer
        self._stream = parsed(url, {}).stream
        self._ledger = ledger

    @property
    def leader(self) -> Node:
        return self.servers.leader_of(self._stream)

    def goes_on(self) -> None:
        """Something more is submitted, and something more is run."""
        self.producer.wait_for_more()
        before = len(ledger_of(self._ledger))
        wait_until(lambda: len(ledger_of(self._ledger)) > before, "workers to go on", seconds=60)


@contextmanager
def under_load(servers: Servers, folder: Path) -> Iterator[Load]:
    """While the block lasts; afterwards all that was acknowledged has ended as it should."""
    url, ledger = servers.url(fresh_prefix()), folder / "ledger"
    orders = Orders(url=url, ledger=str(ledger), lease=LEASE_SECONDS)
    with Holdfast(url) as app, ExitStack() as workers:
        processes = [
            workers.enter_context(killed_at_the_end(start_worker(orders, log=folder / "log"))) for _ in range(WORKERS)
        ]
        with Producer(app, works, PAUSE_SECONDS) as producer:
            load = Load(servers, url, producer, ledger)
            load.goes_on()
            yield load
            load.goes_on()
        handles = [app.handle(task_id) for task_id in producer.acknowledged]
        wait_until(lambda: app.tasks.count()["completed"] == len(handles), "all to end", seconds=60)
        assert [process.poll() for process in processes] == [None] * WORKERS, (folder / "log").read_text()
        check_nothing_was_lost(app, handles, ledger_of(ledger))
        for process in processes:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(30) for process in processes] == [0] * WORKERS, (folder / "log").read_text()


def test_a_leader_that_is_killed_costs_nothing(cluster: Servers, tmp_path: Path) -> None:
    with under_load(cluster, tmp_path) as load:
        load.leader.kill()
        load.goes_on()
        cluster.start()


@pytest.mark.soak
def test_each_node_killed_in_turn_costs_nothing(cluster: Servers, tmp_path: Path) -> None:
    """A follower first."""
    with under_load(cluster, tmp_path) as load:
        leader = load.leader
        for node in sorted(cluster.nodes, key=lambda node: node is leader):
            node.kill()
            load.goes_on()
            cluster.start()


@pytest.mark.soak
def test_all_nodes_killed_at_once_lose_nothing(cluster: Servers, tmp_path: Path) -> None:
    with under_load(cluster, tmp_path) as load:
        for node in cluster.nodes:
            node.kill()
        cluster.start()
        load.goes_on()


@pytest.mark.soak
def test_a_single_server_killed_again_and_again_loses_nothing(tmp_path: Path) -> None:
    with fresh_single() as server, under_load(server, tmp_path) as load:
        for _ in range(3):
            server.nodes[0].kill()
            server.start()
            load.goes_on()


@pytest.mark.soak
def test_nodes_killed_many_times_lose_nothing(cluster: Servers, tmp_path: Path) -> None:
    """One, or all at once; the one that leads as often as not."""
    random = Random(6)
    with under_load(cluster, tmp_path) as load:
        for _ in range(SOAK_KILLS):
            drawn = random.random()
            struck = cluster.nodes if drawn < 0.2 else [load.leader if drawn < 0.6 else random.choice(cluster.nodes)]
            for node in struck:
                node.kill()
            if len(struck) == 1:
                load.goes_on()
            cluster.start()
            load.goes_on()
