"""What a caller is told when the server cannot be used: what happened, to which store, what to do next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from holdfast import Holdfast
from holdfast.clock import SYSTEM_CLOCK
from holdfast.errors import InvalidTask, StoreUnavailable
from holdfast.events.facts import StoreAway
from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from tests.faults.test_restarts import under_load
from tests.postgres_cluster import Node, fresh_node
from tests.postgres_server import _free_port
from tests.runtime.support import Crew

SECRET = "s3cret-canary"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A server that asks `guest` for a password, and has no TLS."""
    with fresh_node() as made:
        made.tell("create role guest login superuser password 'right'")
        rules = made.data / "pg_hba.conf"
        rules.write_text(f"host all guest 127.0.0.1/32 scram-sha-256\n{rules.read_text()}")
        made.tell("select pg_reload_conf()")
        yield made


def told(url: str) -> StoreUnavailable:
    """What a first call on this URL raises."""

    async def use() -> StoreUnavailable:
        store = PostgresStore(parsed(url, {}), SYSTEM_CLOCK)
        try:
            with pytest.raises(StoreUnavailable) as raised:
                await store.now()
            return raised.value
        finally:
            await store.close()

    error = asyncio.run(use())
    assert SECRET not in str(error)
    return error


def test_a_wrong_password(node: Node) -> None:
    error = told(f"postgresql://guest:{SECRET}@{node.address}/postgres")
    assert "it refuses this user; check user and password in the URL" in str(error)
    assert error.lasting


def test_a_wrong_password_ends_a_worker_that_only_starts(node: Node) -> None:
    with Holdfast(f"postgresql://guest:{SECRET}@{node.address}/postgres") as app:
        with Crew(app) as crew:
            crew.thread.join(20)
            assert not crew.thread.is_alive()
        assert isinstance(crew.raised, StoreUnavailable)
        assert "check user and password" in str(crew.raised)


def test_a_password_that_is_changed_under_a_worker_is_waited_for(node: Node) -> None:
    with under_load(f"postgresql://guest:right@{node.address}/postgres") as (crew, producer):
        node.tell("alter role guest password 'new'")
        node.end_sessions()
        crew.wait_for(StoreAway)
        node.tell("alter role guest password 'right'")
        producer.wait_for_more()


def test_no_such_database(node: Node) -> None:
    error = told(f"postgresql://postgres@{node.address}/nowhere")
    assert "there is no such database; create it, or name another in the URL" in str(error)
    assert error.lasting


def test_tls_that_the_server_has_not(node: Node) -> None:
    error = told(f"{node.url}?sslmode=require")
    assert "it refuses TLS, and the URL wants it" in str(error)
    assert error.lasting


def test_a_host_that_nobody_knows() -> None:
    error = told(f"postgresql://guest:{SECRET}@no-such-host.invalid/postgres")
    assert "its host name is unknown; check the URL and the name service" in str(error)
    assert not error.lasting, "a name service may be away too"


def test_a_port_on_which_nobody_listens() -> None:
    error = told(f"postgresql://guest:{SECRET}@127.0.0.1:{_free_port()}/postgres")
    assert "it cannot be reached; check that it runs and that host and port are right" in str(error)
    assert not error.lasting


def test_of_several_hosts_the_most_telling_answer_is_repeated(node: Node) -> None:
    dead = f"127.0.0.1:{_free_port()}"
    error = told(f"postgresql://guest:{SECRET}@{dead},{node.address}/postgres")
    assert "check user and password" in str(error)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("postgresql://one:5432,two:port/db", "'two:port' is not a host"),
        ("postgresql://one:99999/db", "'one:99999' is not a host"),
        ("postgresql://one/db?target_session_attrs=standby", "the store writes; leave it out"),
        ("postgresql:///db?host=one,two,three&port=1,2", "3 hosts and 2 ports"),
    ],
)
def test_a_url_that_cannot_be_meant(url: str, words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        parsed(url, {})


@pytest.mark.parametrize(
    ("url", "hosts"),
    [
        (
            "postgresql://u:p@one:1,two/db?sslmode=require",
            ["u:p@one:1/db?sslmode=require", "u:p@two/db?sslmode=require"],
        ),
        ("postgresql://u@[::1]:5432,two/db", ["u@[::1]:5432/db", "u@two/db"]),
        (
            "postgresql:///db?host=one,two&port=1,2",
            ["postgresql:/db?host=one&port=1", "postgresql:/db?host=two&port=2"],
        ),
        ("postgresql:///db?host=one,two&port=7", ["postgresql:/db?host=one&port=7", "postgresql:/db?host=two&port=7"]),
        ("postgresql://one/db?target_session_attrs=any", ["one/db"]),
    ],
)
def test_hosts_are_told_apart(url: str, hosts: list[str]) -> None:
    assert [dsn.removeprefix("postgresql://") for dsn in parsed(url, {}).hosts] == hosts
