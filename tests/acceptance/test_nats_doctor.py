"""What `holdfast doctor` says of a NATS store, on real servers that are as they should be, or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.errors import SchemaMismatch, StoreUnavailable
from holdfast.stores.nats import doctor
from holdfast.stores.nats.options import parsed
from holdfast.stores.nats.store import NatsStore
from holdfast.stores.nats.stream import OLDEST_SERVER, ensure_server
from tests import jetstream_admin, jetstream_servers
from tests.acceptance.cli_driver import Cli
from tests.jetstream_servers import Servers, fresh_single
from tests.runtime.support import wait_until

SECRET = "s3cret-word"
NO_JETSTREAM = f"""
accounts {{ A: {{ jetstream: enabled, users: [{{user: a, password: {SECRET}}}] }},
            B: {{ users: [{{user: b, password: {SECRET}}}] }} }}
"""


def checks(url: str, *, ready: bool = True, **options: Any) -> dict[str, tuple[bool | None, str]]:
    async def asked() -> dict[str, tuple[bool | None, str]]:
        store = NatsStore(parsed(url, options))
        try:
            if ready:
                await store.now()
            return {question: (well, words) for question, well, words in await store.check()}
        finally:
            await store.close()

    return asyncio.run(asked())


def test_a_single_server_is_well_but_for_its_one_replica() -> None:
    with fresh_single() as servers:
        found = checks(servers.url("x"), monitor=_monitor(servers))
    assert {question: well for question, (well, _) in found.items()} == {
        "server": True,
        "durable": None,
        "sync": True,
        "stream": True,
        "payloads": True,
        "room": None,
        "messages": True,
    }
    assert found["durable"][1].startswith("1 replica: ")


def test_a_cluster_of_three_is_durable() -> None:
    url = jetstream_servers.cluster().url(jetstream_servers.fresh_prefix())
    try:
        wait_until(lambda: checks(url)["durable"] == (True, "3 replicas, all of them current"), "some are behind")
    finally:
        jetstream_servers.remove(url)


def test_lazy_sync_fails() -> None:
    with fresh_single(sync_interval='"90s"') as servers:
        well, words = checks(servers.url("x"), monitor=_monitor(servers))["sync"]
    assert well is False
    assert "synced every 90 s only" in words


@pytest.mark.parametrize("credentials", ["", f"me:{SECRET}@", f"me:{SECRET}%2F@"])
def test_a_monitor_that_is_none_is_said_without_its_password(credentials: str) -> None:
    with fresh_single() as servers:
        url = servers.url("x")
        address = url.split("//")[1].split("/")[0]  # talks, but no HTTP
        well, words = checks(url, monitor=f"http://{credentials}{address}")["sync"]
        assert well is None
        assert f"http://{address} does not say" in words
        assert SECRET not in words
        assert SECRET not in repr(parsed(url, {"monitor": f"http://{credentials}{address}"}))
        well, _ = checks(url, monitor=_monitor(servers).replace("//", f"//{credentials}"))["sync"]
        assert well is True


def test_without_a_monitor_nobody_knows_how_it_syncs() -> None:
    assert doctor._replicas(2, {})[1] is None
    well, words = asyncio.run(doctor._sync(None))[1:]
    assert well is None
    assert "monitor=" in words


@pytest.mark.parametrize(
    ("change", "well", "said"),
    [
        ({"max_age": 10**18}, False, "max_age is set: the server will throw tasks away"),
        ({"discard": "old", "max_msgs": 10**6}, False, "max_msgs is set: the server will throw tasks away"),
        ({"max_msgs": 10**6}, None, "bounded by max_msgs 1,000,000"),
        ({"max_bytes": 10**9}, None, "bounded by max_bytes 1,000,000,000"),
        ({"discard": "old"}, False, "discard is not what it was made with"),
        ({"allow_direct": False}, False, "allow_direct is not what it was made with"),
        ({"max_msgs_per_subject": 2}, False, "max_msgs_per_subject is not what it was made with"),
    ],
)
def test_a_stream_that_somebody_has_changed_is_said(change: dict[str, Any], well: bool | None, said: str) -> None:
    url = jetstream_servers.single().url(jetstream_servers.fresh_prefix())
    name = f"HOLDFAST_{jetstream_admin.parts(url)[2]}"

    async def changed(ask: jetstream_admin.Ask) -> None:
        config = (await ask(f"STREAM.INFO.{name}"))["config"]
        await ask(f"STREAM.UPDATE.{name}", **config | change)

    try:
        assert checks(url)["stream"] == (True, "as it was made")
        jetstream_admin.asked(url, changed)
        found = checks(url)["stream"]
    finally:
        jetstream_servers.remove(url)
    assert found[0] is well
    assert found[1].startswith(said)


def test_a_missing_stream_is_said() -> None:
    url = jetstream_servers.single().url(jetstream_servers.fresh_prefix())
    assert "holdfast migrate" in checks(url, ready=False)["stream"][1]
    with pytest.raises(SchemaMismatch, match="holdfast migrate"):
        checks(url, create="no")


def test_a_small_payload_limit_warns() -> None:
    with fresh_single(lines="max_payload: 64KB") as servers:
        well, words = checks(servers.url("x"))["payloads"]
    assert well is None
    assert "65,536 bytes at most" in words


def test_an_old_server_is_refused_and_said() -> None:
    """Some early ones have atomic batches, and lose some of them."""
    assert doctor._version((2, 12, 0))[1] is False
    assert doctor._version(OLDEST_SERVER)[1] is True
    with pytest.raises(SchemaMismatch, match=r"2\.11\.9"):
        ensure_server((2, 11, 9))


@pytest.mark.parametrize(
    ("credentials", "said"), [("a:wrong-word@", "Authorization Violation"), (f"b:{SECRET}@", "not enabled for account")]
)
def test_wrong_credentials_and_no_jetstream_are_said_without_the_password(
    cli: Cli, credentials: str, said: str
) -> None:
    with fresh_single(lines=NO_JETSTREAM, credentials=f"a:{SECRET}@") as servers:
        address = servers.url("x").rpartition("@")[2]
        url = f"nats://{credentials}{address}"
        assert said in checks(url, ready=False)["reachable"][1]
        with pytest.raises(StoreUnavailable, match=said):
            checks(url)
        for arguments in (["doctor"], ["doctor", "--json"], ["doctor", "--repair"]):
            ran = cli(*arguments, "--url", url)
            assert ran.code not in (0, 1, 2)
            assert said in ran.err
            for secret in (SECRET, "wrong-word"):
                assert secret not in ran.out + ran.err
        well = cli("doctor", "--url", f"nats://a:{SECRET}@{address}?monitor={_monitor(servers)}")
        assert well.code == 0, well.out + well.err
        assert SECRET not in well.out + well.err


def _monitor(servers: Servers) -> str:
    return servers.nodes[0].monitor
