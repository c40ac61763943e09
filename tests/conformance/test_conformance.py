"""Every promise of the suite, on every store."""

from __future__ import annotations

import pytest

from holdfast.testing.conformance import ALL_CASES, Case, run_case
from tests.conformance.subjects import SUBJECTS


@pytest.mark.parametrize("case", ALL_CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("store", SUBJECTS)
def test_store_keeps_its_promise(store: str, case: Case) -> None:
    lacking = run_case(case, SUBJECTS[store])
    if lacking is not None:
        pytest.skip(f"{store} has no {lacking}")
