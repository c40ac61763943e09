"""A real worker and a real producer behind a proxy that cuts their commits at random, before and after."""

from __future__ import annotations

import pytest

from holdfast import Holdfast, Retention
from holdfast.events.facts import LeaseWasLost, PartFailed, TaskSettled
from tests import postgres_server
from tests.cut_proxy import CutProxy, Plan, never
from tests.faults.load import Producer, check_load, declare, wait_until_all_ended
from tests.runtime.support import Crew, wait_until
from tests.stores.postgres_support import handle

CUTS = 200
SOAK_CUTS = 4000
FOREVER = Retention(None, None, None)


def cut_a_worker(cuts: int, seed: int) -> None:
    schema = postgres_server.fresh_schema()
    with CutProxy(postgres_server.server().url) as proxy, Holdfast(proxy.url, schema=schema, retention=FOREVER) as app:
        ran = declare(app)
        with Crew(app, concurrency=10) as crew:
            with Producer(app) as producer:
                producer.wait_for_more()
                proxy.decide = Plan(seed, 0.2)
                wait_until(lambda: proxy.total >= cuts, f"{cuts} cuts", seconds=cuts / 2)
                proxy.decide = never
            wait_until_all_ended(app)
        assert min(proxy.cuts.values()) >= cuts // 3
        check_load(lambda: handle(schema), producer.acknowledged, ran)
        assert not crew.of(PartFailed)
        assert not crew.of(LeaseWasLost)
        assert len(crew.of(TaskSettled)) == ran.starts.total(), "every end was told once"
    assert crew.raised is None


def test_a_worker_whose_commits_are_cut_loses_and_doubles_nothing() -> None:
    cut_a_worker(CUTS, seed=1)


@pytest.mark.soak
def test_a_worker_whose_commits_are_cut_thousands_of_times_loses_and_doubles_nothing() -> None:
    cut_a_worker(SOAK_CUTS, seed=2)
