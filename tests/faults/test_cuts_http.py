"""The same through a dispatcher: an answer that is lost on the way is normal, and every verb can be repeated."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast import Holdfast
from holdfast.stores.remote.options import parsed as parsed_remote
from holdfast.stores.remote.store import RemoteStore
from holdfast.stores.sqlite.options import parsed
from holdfast.stores.sqlite.store import SQLiteStore
from holdfast.testing.virtual_clock import VirtualClock
from tests.cut_proxy import CutProxy, Plan, never
from tests.dispatchers import Serving, upkeep
from tests.faults import test_cuts_verbs as verbs
from tests.faults.load import Producer, check_load, check_told, declare, wait_until_all_ended
from tests.faults.test_cuts_verbs import Scene, Verb, cut_again_and_again
from tests.faults.test_cuts_worker import FOREVER
from tests.http_link import HttpLink
from tests.runtime.support import Crew, wait_until

ROUNDS = 4
CUTS = 60
PROBABILITY = 0.1

NOT_HERE = (verbs.reap, verbs.prune, verbs.evict, verbs.enroll_and_leave, verbs.settle_a_mixture)
"""The dispatcher's own, what asks for evidence of life, and what is two commits on PostgreSQL alone."""
VERBS = [verb for verb in verbs.VERBS if verb not in NOT_HERE]


@asynccontextmanager
async def staged() -> AsyncIterator[Scene]:
    with tempfile.TemporaryDirectory(prefix="holdfast-") as folder:
        clock = VirtualClock()
        options = parsed(f"sqlite:///{folder}/tasks.db", {})
        direct = SQLiteStore(options, clock)
        with Serving(lambda: SQLiteStore(options, clock)) as serving, CutProxy(serving.url, link=HttpLink) as proxy:
            store = RemoteStore(parsed_remote(proxy.url, {}))
            try:
                yield Scene(proxy, store, direct, clock)
            finally:
                await store.close()
                await direct.close()


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.__name__)
def test_a_verb_whose_answer_is_lost_has_happened_once(verb: Verb) -> None:
    asyncio.run(cut_again_and_again(verb, ROUNDS, staged))


def test_a_remote_worker_whose_calls_are_cut_loses_and_doubles_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tasks.db"
    with Holdfast(url) as direct, Serving(direct.connections.factory, upkeep=upkeep) as serving:
        with CutProxy(serving.url, link=HttpLink) as proxy, Holdfast(proxy.url, retention=FOREVER) as app:
            ran = declare(app)
            with Crew(app, concurrency=10) as crew:
                with Producer(app) as producer:
                    producer.wait_for_more()
                    proxy.decide = Plan(1, PROBABILITY)
                    wait_until(lambda: proxy.total >= CUTS, f"{CUTS} cuts", seconds=60)
                    proxy.decide = never
                wait_until_all_ended(app)
            assert min(proxy.cuts.values()) >= CUTS // 4
        check_load(direct.connections.factory, producer.acknowledged, ran)
        check_told(crew.told, ran)
    assert crew.raised is None
