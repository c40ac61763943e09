"""`holdfast doctor --repair`: what was wrong, on stdout; what goes on, on stderr; the exit code of a dry run."""

from __future__ import annotations

import asyncio

import pytest

from holdfast.stores.nats.images import encode
from tests import jetstream_servers
from tests.acceptance.cli_driver import Cli
from tests.acceptance.places import place
from tests.stores.nats_support import Place, completed, ledger_of, put


async def _damaged(url: str) -> None:
    made = Place(url)
    try:
        store = made.open()
        await completed(store, 2)
        await put(store, ledger_of(store).subjects.tally("somebody"), encode({"default": {"completed": 5}}))
    finally:
        await made.close()


def test_a_damaged_store_on_nats_is_repaired(cli: Cli) -> None:
    url = jetstream_servers.single().url(jetstream_servers.fresh_prefix())
    wrong = [{"what": "tally", "number": 5, "words": "2 completed in 'default', counted as 7"}]
    try:
        asyncio.run(_damaged(url))
        ran = cli("doctor", "--repair", "--dry-run", "--url", url)
        assert (ran.code, ran.out) == (1, "tally     2 completed in 'default', counted as 7\n")
        assert "nothing was changed" in ran.err
        ran = cli("doctor", "--repair", "--dry-run", "--json", "--url", url)
        assert (ran.code, ran.json) == (1, {"well": False, "open": wrong})
        ran = cli("doctor", "--repair", "--json", "--url", url)
        assert (ran.code, ran.json) == (0, {"well": True, "done": wrong})
        ran = cli("doctor", "--repair", "--dry-run", "--url", url)
        assert (ran.code, ran.out) == (0, "")
        assert "nothing to repair" in ran.err
        assert cli("queues", "list", "--json", "--url", url).json["counts"] == {"completed": 2}
    finally:
        jetstream_servers.remove(url)


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_database_has_nothing_to_repair(cli: Cli, kind: str) -> None:
    ran = cli("doctor", "--repair", "--json", "--url", place(kind, cli).url)
    assert (ran.code, ran.json) == (0, {"well": True, "done": []})


def test_through_a_dispatcher_it_says_where_to_go(cli: Cli) -> None:
    ran = cli("doctor", "--repair", "--url", place("http-sqlite", cli).url)
    assert ran.code not in (0, 1, 2)
    assert "the URL of the store behind it" in ran.err


def test_a_dry_run_of_nothing_is_a_mistake(cli: Cli) -> None:
    assert cli("doctor", "--dry-run", "--url", "memory://x").code == 2
