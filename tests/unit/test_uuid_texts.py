"""Ids and tokens on their way into array literals: what is checked at once is what would be checked one by one."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from holdfast import ids
from holdfast.stores.postgres.statements import all_uuids, is_uuid, literal

real = st.builds(ids.token)
pieces = st.one_of(
    real,
    st.just(""),
    st.text(alphabet="0123456789abcdef-,", max_size=40),
    st.builds(lambda one, other: f"{one},{other}", real, real),
    st.builds(lambda one, cut: one[:cut], real, st.integers(0, 36)),
    st.builds(str.upper, real),
    st.builds(lambda one: f"{one}\n", real),
)


@given(st.lists(pieces, max_size=6))
@example(["0" * 8 + "-0000-0000-0000-" + "0" * 12 + ",", ""])
def test_many_are_uuids_when_each_is(texts: list[str]) -> None:
    assert all_uuids(texts) == all(map(is_uuid, texts))


def test_a_literal_is_the_text_of_an_array() -> None:
    assert literal([]) == "{}"
    assert literal([1, 20]) == "{1,20}"
