"""The servers that the tests of the NATS store stand on, and what stands before them: they do what they say."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client
from nats.errors import Error, NoServersError

from tests import jetstream_admin, jetstream_servers
from tests.cut_proxy import Cut
from tests.nats_link import NatsProxy, Publish, commits
from tests.runtime.support import wait_until

LOST_SECONDS = 0.5
"""A client that waits for an answer does not notice that its connection has ended."""

CHILD = """
import json, sys
from tests import jetstream_servers
servers = [jetstream_servers.single(), jetstream_servers.cluster()]
nodes = [node for one in servers for node in one.nodes]
print(json.dumps([[node._process.pid for node in nodes], [str(node.folder.parent) for node in nodes]]), flush=True)
sys.stdin.read()
"""


def made(servers: jetstream_servers.Endpoint, *, replicas: int = 1) -> str:
    """The URL of a fresh prefix, with a stream of that name."""
    url = servers.url(jetstream_servers.fresh_prefix())
    name = jetstream_admin.parts(url)[2]
    given = {"name": name, "subjects": [f"{name}.>"], "num_replicas": replicas, "allow_atomic": True}
    jetstream_admin.asked(url, lambda ask: ask(f"STREAM.CREATE.{name}", **given))
    return url


def state(url: str) -> dict[str, Any]:
    name = jetstream_admin.parts(url)[2]
    return dict(jetstream_admin.asked(url, lambda ask: ask(f"STREAM.INFO.{name}"))["state"])


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[tuple[Client, str]]:
    """A client that does not mend itself, and a subject of the stream."""
    async with jetstream_admin.connected(url, mends=False) as client:
        yield client, f"{jetstream_admin.parts(url)[2]}.a"


@pytest.mark.soak
def test_a_cluster_survives_the_kill_of_a_node_and_takes_it_back() -> None:
    with jetstream_servers.fresh_cluster() as servers:
        url = made(servers, replicas=3)
        name = jetstream_admin.parts(url)[2]
        leader = servers.leader_of(name)
        leader.kill()
        assert servers.leader_of(name) is not leader
        asyncio.run(published(url))
        leader.start()
        servers.wait_until_healthy()
        wait_until(lambda: leader.says("jsz")["messages"] == 1, "it has not caught up")
        folder = leader.folder
    assert not folder.exists()


async def published(url: str) -> None:
    async with connected(url) as (client, subject):
        assert "error" not in json.loads((await client.request(subject, b"1", 10)).data)


def test_a_paused_node_goes_on_where_it_was() -> None:
    with jetstream_servers.fresh_single() as servers:
        url = made(servers)
        (node,) = servers.nodes
        node.stop()
        with pytest.raises((Error, OSError)):
            asyncio.run(published(url))
        node.cont()
        asyncio.run(published(url))
        node.kill()
        node.start()
        servers.wait_until_healthy()
        assert state(url)["messages"] >= 1
        assert servers.leader_of(jetstream_admin.parts(url)[2]) is node


def test_a_small_store_is_full_at_its_limit() -> None:
    with jetstream_servers.fresh_single(max_file_store="1MB", lines="max_payload: 512KB") as servers:
        url = made(servers)

        async def fill() -> int:
            async with connected(url) as (client, subject):
                assert client.max_payload == 512 * 1024
                replies = [json.loads((await client.request(subject, bytes(300_000), 10)).data) for _ in range(5)]
                return sum("error" in reply for reply in replies)

        assert asyncio.run(fill()) > 0


def test_servers_with_credentials_want_them() -> None:
    wanted = "authorization { user: somebody, password: secret }"
    with jetstream_servers.fresh_single(lines=wanted, credentials="somebody:secret@") as servers:
        jetstream_servers.remove(made(servers))
        with pytest.raises((Error, OSError)):
            asyncio.run(published(f"nats://{servers.nodes[0].address}/test_x"))


@pytest.mark.soak
@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None])
def test_servers_end_with_the_process_that_started_them(end: int | None) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
        env={name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_TEST_NATS")},
    )
    assert child.stdin is not None
    assert child.stdout is not None
    with child:
        pids, folders = json.loads(child.stdout.readline())
        assert len(pids) == 4
        assert all(alive(pid) for pid in pids)
        if end is None:
            child.stdin.close()
        else:
            child.send_signal(end)
    wait_until(lambda: not any(alive(pid) for pid in pids), "a server is left")
    wait_until(lambda: not any(Path(folder).exists() for folder in folders), "a folder is left")


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("shared", [jetstream_servers.single, jetstream_servers.cluster])
def test_a_prefix_is_removed_alone(shared: Any) -> None:
    url, other = made(shared()), made(shared())
    jetstream_servers.remove(url)
    assert jetstream_admin.streams(url) == []
    assert len(jetstream_admin.streams(other)) == 1
    jetstream_servers.remove(other)


@pytest.fixture
def stream() -> Any:
    url = made(jetstream_servers.cluster(), replicas=3)
    yield url
    jetstream_servers.remove(url)


@pytest.mark.parametrize(("cut", "kept"), [("before", 0), ("after", 1)])
@pytest.mark.parametrize("stays", [False, True])
def test_a_publish_is_cut_before_or_after_its_commit(stream: str, cut: Cut, kept: int, stays: bool) -> None:
    async def work(proxy: NatsProxy) -> None:
        async with connected(proxy.url) as (client, subject):
            proxy.stays = stays
            proxy.arm(cut)
            with pytest.raises(Error):
                await client.request(subject, b"1", LOST_SECONDS)
            assert client.is_connected == stays

    with NatsProxy(stream) as proxy:
        asyncio.run(work(proxy))
        assert proxy.cuts[cut] == proxy.total == 1
    assert state(stream)["messages"] == kept


@pytest.mark.parametrize("skip", range(4))
def test_a_batch_is_cut_anywhere_and_leaves_nothing(stream: str, skip: int) -> None:
    with NatsProxy(stream) as proxy:
        proxy.at = lambda publish: b"Nats-Batch-Id" in publish.headers
        proxy.arm("before", skip=skip)
        with pytest.raises(Error):
            asyncio.run(batch(proxy.url, 4))
    assert state(stream)["messages"] == 0


def test_a_batch_commits_once_with_its_last_message(stream: str) -> None:
    with NatsProxy(stream) as proxy:
        proxy.arm("after")
        with pytest.raises(Error):
            asyncio.run(batch(proxy.url, 4))
    assert state(stream)["messages"] == 4


async def batch(url: str, count: int) -> None:
    async with connected(url) as (client, subject):
        for i in range(1, count):
            await client.publish(subject, b"1", headers={"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(i)})
        last = {"Nats-Batch-Id": "b", "Nats-Batch-Sequence": str(count), "Nats-Batch-Commit": "1"}
        assert json.loads((await client.request(subject, b"1", LOST_SECONDS, headers=last)).data)["count"] == count


def test_a_message_is_cut_in_its_midst(stream: str) -> None:
    async def work(proxy: NatsProxy) -> None:
        async with connected(proxy.url) as (client, subject):
            proxy.arm_bytes(500)
            with pytest.raises(Error):
                await client.request(subject, bytes(1000), LOST_SECONDS)

    with NatsProxy(stream) as proxy:
        asyncio.run(work(proxy))
        assert proxy.total == 1
    assert state(stream)["messages"] == 0


def test_reads_are_no_commits() -> None:
    assert not commits(Publish(b"$JS.API.STREAM.INFO.x", b"_INBOX.1", b"", b""))
    assert not commits(Publish(b"$JS.ACK.x.y.1.1.1.1.0", b"_INBOX.1", b"", b""))
    assert not commits(Publish(b"wakeups.mail", b"", b"", b""))
    assert commits(Publish(b"$JS.API.STREAM.PURGE.x", b"_INBOX.1", b"", b""))
    assert commits(Publish(b"$KV.x.y", b"_INBOX.1", b"NATS/1.0\r\nNats-Expected-Last-Sequence: 1\r\n\r\n", b""))


def test_a_shut_proxy_throws_everybody_out_and_lets_nobody_in(stream: str) -> None:
    async def work(proxy: NatsProxy) -> None:
        async with connected(proxy.url) as (client, subject):
            await client.request(subject, b"1", 5)
            proxy.shut()
            with pytest.raises(Error):
                await client.request(subject, b"2", LOST_SECONDS)
            assert not client.is_connected
            with pytest.raises((NoServersError, OSError)):
                await published(proxy.url)
            proxy.open()
            await published(proxy.url)

    with NatsProxy(stream) as proxy:
        asyncio.run(work(proxy))
    assert state(stream)["messages"] == 2
