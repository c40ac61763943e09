"""Every promise of the suite through a real PgBouncer in transaction mode; a third of them in `make test`."""

from __future__ import annotations

import pytest

from holdfast.stores.postgres.options import parsed
from holdfast.stores.postgres.store import PostgresStore
from holdfast.testing.conformance import ALL_CASES, Case, Subject, run_case
from holdfast.testing.virtual_clock import VirtualClock
from tests import pgbouncer_server, postgres_server

pytestmark = pytest.mark.skipif(pgbouncer_server.BINARY is None, reason=pgbouncer_server.MISSING)


def pooled_subject() -> Subject:
    """No evidence that a worker lives goes through such a pooler, so there is nothing here to take away."""
    clock = VirtualClock()
    schema = postgres_server.fresh_schema()
    options = parsed(pgbouncer_server.url("transaction"), {"schema": schema, "pooler": "transaction"})
    return Subject(lambda: PostgresStore(options, clock), clock)


CASES = [
    pytest.param(case, id=case.name, marks=[pytest.mark.soak] if number % 3 else [])
    for number, case in enumerate(ALL_CASES)
]


@pytest.mark.parametrize("case", CASES)
def test_store_keeps_its_promise_behind_a_pooler(case: Case) -> None:
    lacking = run_case(case, pooled_subject)
    if lacking is not None:
        pytest.skip(f"behind a pooler there is no {lacking}")
