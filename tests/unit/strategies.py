"""Values of the model for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from holdfast.model.backoff import Backoff, DelayList, Exponential, Fixed, Linear
from holdfast.model.outcome import Canceled, Completed, ErrorInfo, Expired, Failed, Outcome, Released, Snoozed
from holdfast.policy.verdict import LEASE_EXPIRED, Facts


class FixedRng:
    """Always the same number."""

    def __init__(self, drawn: float) -> None:
        self._drawn = drawn

    def random(self) -> float:
        return self._drawn


spans = st.floats(0, 100_000, allow_nan=False)
jitters = st.floats(0, 1, allow_nan=False)
rngs = st.floats(0, 1, exclude_max=True, allow_nan=False).map(FixedRng)
failure_counts = st.integers(1, 10_000)

backoffs: SearchStrategy[Backoff] = st.one_of(
    st.builds(Exponential, spans, spans, jitters),
    st.builds(Fixed, spans, jitters),
    st.builds(Linear, spans, spans, jitters),
    st.builds(DelayList, st.lists(spans, min_size=1, max_size=5).map(tuple), jitters),
)

facts = st.builds(
    Facts,
    attempt=st.integers(1, 1000),
    failures=st.integers(0, 50),
    max_attempts=st.integers(0, 50),
    backoff=backoffs,
    cancel_requested=st.booleans(),
    last_error_code=st.sampled_from([None, "Broken", LEASE_EXPIRED]),
)

errors = st.builds(ErrorInfo, st.text(max_size=9), st.none() | st.just("Broken"), st.none() | st.just("stack"))
failed = st.builds(Failed, errors, st.booleans(), st.none() | spans)
outcomes: SearchStrategy[Outcome | Expired] = st.one_of(
    st.builds(Completed, st.just("[1]")),
    failed,
    st.builds(Snoozed, spans),
    st.just(Released()),
    st.just(Canceled()),
    st.just(Expired()),
)

json_values: SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**4096) + 1, 2**4096 - 1)
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=5)
    ),
    max_leaves=20,
)
