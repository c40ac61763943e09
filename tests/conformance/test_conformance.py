"""Every promise of the suite, on every store. On a cluster the promises on leases are proved every time; the others,
with many more syncs to wait for than elsewhere, by the long tests.
"""

from __future__ import annotations

import pytest

from holdfast.testing.conformance import ALL_CASES, Case, run_case
from tests.conformance.subjects import SUBJECTS

EVERY_TIME = ("C6",)


def _marks(store: str, case: Case) -> list[pytest.MarkDecorator]:
    long = store == "nats-cluster" and not any(clause.split(".")[0] in EVERY_TIME for clause in case.clauses)
    return [pytest.mark.soak] if long else []


@pytest.mark.parametrize(
    ("store", "case"),
    [
        pytest.param(store, case, id=f"{store}-{case.name}", marks=_marks(store, case))
        for store in SUBJECTS
        for case in ALL_CASES
    ],
)
def test_store_keeps_its_promise(store: str, case: Case) -> None:
    lacking = run_case(case, SUBJECTS[store])
    if lacking is not None:
        pytest.skip(f"{store} has no {lacking}")
