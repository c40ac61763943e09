"""Promises of the suite on the other PostgreSQL version of the wheel; an eighth of them in `make test`."""

from __future__ import annotations

import pytest

from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.conformance import ALL_CASES, Case, Subject, run_case
from holdfast.testing.virtual_clock import VirtualClock
from tests import postgres_server

pytestmark = pytest.mark.skipif(bool(postgres_server.OWN), reason="a server was given: it is the one that matters")

CASES = [
    pytest.param(case, id=case.name, marks=[pytest.mark.soak] if number % 8 else [])
    for number, case in enumerate(ALL_CASES)
]


def other_subject() -> Subject:
    clock = VirtualClock()
    options = parsed(postgres_server.other_server().url, {"schema": postgres_server.fresh_schema()})
    return Subject(lambda: PostgresStore(options, clock), clock)


@pytest.mark.parametrize("case", CASES)
def test_store_keeps_its_promise_on_the_other_version(case: Case) -> None:
    lacking = run_case(case, other_subject)
    if lacking is not None:
        pytest.skip(f"this harness has no {lacking}")
