"""Every promise of the suite through a dispatcher, over HTTP; on SQLite behind it a fifth of them in `make test`."""

from __future__ import annotations

import pytest
from hypothesis import settings

from holdfast.testing.conformance import ALL_CASES, Case, run_case
from tests.conformance.remote_subjects import remote_memory_subject, remote_sqlite_subject
from tests.conformance.test_state_machine import BOUNDED, Twins


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
def test_store_keeps_its_promise_through_a_dispatcher(case: Case) -> None:
    lacking = run_case(case, remote_memory_subject)
    if lacking is not None:
        pytest.skip(f"through a dispatcher there is no {lacking}")


ON_SQLITE = [
    pytest.param(case, id=case.name, marks=[pytest.mark.soak] if number % 5 else [])
    for number, case in enumerate(ALL_CASES)
]


@pytest.mark.parametrize("case", ON_SQLITE)
def test_sqlite_keeps_its_promise_through_a_dispatcher(case: Case) -> None:
    lacking = run_case(case, remote_sqlite_subject)
    if lacking is not None:
        pytest.skip(f"through a dispatcher there is no {lacking}")


class RemoteTwins(Twins):
    under_test = "remote"


TestRemoteAgainstTheModel = RemoteTwins.TestCase
TestRemoteAgainstTheModel.settings = settings(BOUNDED, max_examples=20)
