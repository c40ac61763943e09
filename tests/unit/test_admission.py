"""What may be submitted (contract C4.5): exact, or refused with one kind of error."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import InvalidTask, InvalidWorkerID, PayloadTooLarge
from holdfast.policy.admission import (
    DEPTH,
    NAME_BYTES,
    SPAN_LONGEST,
    checked_instant,
    checked_int,
    checked_name,
    checked_span,
    checked_worker_id,
    json_text,
    maybe_name,
)
from holdfast.testing.conformance.checks import identical
from tests.unit.strategies import json_values


class Hostile:
    """Raises whatever it is asked."""

    def __repr__(self) -> str:
        raise RuntimeError("no repr")

    def __len__(self) -> int:
        raise RuntimeError("no len")

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("no eq")

    __hash__ = object.__hash__


class Text(str):
    __slots__ = ()


anything = st.one_of(
    json_values,
    st.binary(),
    st.floats(),
    st.text(),
    st.tuples(st.integers()),
    st.sets(st.integers()),
    st.complex_numbers(),
    st.datetimes(),
    st.decimals(),
    st.uuids(),
    st.builds(object),
    st.builds(Hostile),
    st.builds(Text, st.text()),
    st.just(Text),
    st.just(2**4096),
)
mixed = st.recursive(
    anything,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.integers() | st.none(), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(json_values)
def test_json_comes_back_equal_and_of_the_same_types(value: Any) -> None:
    assert identical(msgspec.json.decode(json_text(value, what="it")), value)


@given(mixed)
def test_anything_else_is_refused_and_nothing_else_is_raised(value: Any) -> None:
    try:
        text = json_text(value, what="it")
    except InvalidTask:
        return
    assert identical(msgspec.json.decode(text), value)


def test_a_value_that_contains_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    loop: dict[str, Any] = {}
    loop["self"] = [loop]
    for value in (ring, loop):
        with pytest.raises(InvalidTask, match="nested too deeply"):
            json_text(value, what="it")


def test_nesting_is_counted_to_the_level() -> None:
    value: Any = 1
    for _ in range(DEPTH):
        value = [value]
    json_text(value, what="it")
    with pytest.raises(InvalidTask, match="nested too deeply"):
        json_text({"k": value}, what="it")


@given(st.integers(0, 200), st.text(st.characters(exclude_categories=["Cs"]), max_size=100))
def test_the_limit_counts_bytes_of_json(limit: int, text: str) -> None:
    size = len(msgspec.json.encode(text))
    if size <= limit:
        assert len(json_text(text, what="it", limit_bytes=limit).encode()) == size
    else:
        with pytest.raises(PayloadTooLarge):
            json_text(text, what="it", limit_bytes=limit)


@given(st.text() | mixed)
def test_a_name_is_plain_text_or_refused(name: Any) -> None:
    try:
        checked = checked_name(name, what="the name")
    except InvalidTask:
        return
    assert type(checked) is str
    assert checked == name
    assert 1 <= len(checked.encode()) <= NAME_BYTES
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in checked)


@pytest.mark.parametrize("name", ["a\x00b", "a\tb", "a\nb", "\x7f", "\x85", "\x9f", "", "\ud800", None, 7, b"x"])
def test_a_bad_name_is_refused_by_every_door(name: Any) -> None:
    with pytest.raises(InvalidTask):
        checked_name(name, what="the name")
    with pytest.raises(InvalidWorkerID):
        checked_worker_id(name)


def test_a_refusal_does_not_repeat_a_long_value() -> None:
    for value in ("\n" * 500, ["x" * 10_000], 10**4000):
        with pytest.raises(InvalidTask) as refusal:
            checked_name(value, what="the name")
        assert len(str(refusal.value)) < 2200


def test_a_name_has_512_bytes_at_most() -> None:
    assert checked_name("é" * 256, what="the name") == "é" * 256
    with pytest.raises(InvalidTask, match="514 bytes"):
        checked_name("é" * 257, what="the name")


def test_a_missing_key_is_none() -> None:
    assert maybe_name(None, what="the key") is None
    assert maybe_name("k", what="the key") == "k"


@given(st.integers() | mixed, st.integers(-100, 0), st.integers(0, 100))
def test_a_number_is_whole_and_in_range_or_refused(number: Any, lowest: int, highest: int) -> None:
    try:
        checked = checked_int(number, lowest, highest, what="the priority")
    except InvalidTask:
        assert type(number) is not int or not lowest <= number <= highest
        return
    assert type(checked) is int
    assert lowest <= checked <= highest


@given(st.floats() | st.integers() | mixed, st.booleans())
def test_a_span_is_finite_and_not_negative_or_refused(seconds: Any, above_zero: bool) -> None:
    try:
        checked = checked_span(seconds, what="the delay", above_zero=above_zero)
    except InvalidTask:
        return
    assert type(checked) is float
    assert math.isfinite(checked)
    assert (0.001 if above_zero else 0) <= checked <= SPAN_LONGEST


def test_an_instant_is_aware_or_refused() -> None:
    aware = datetime(2030, 1, 1, tzinfo=UTC)
    assert checked_instant(aware, what="run_at") is aware
    for bad in (aware.replace(tzinfo=None), "2030-01-01", 0, Hostile()):
        with pytest.raises(InvalidTask):
            checked_instant(bad, what="run_at")


def test_an_instant_that_utc_cannot_show_is_refused() -> None:
    """It could be stored, but no record or claim that holds it could be read again."""
    late = datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2)))
    early = datetime(1, 1, 1, 1, tzinfo=timezone(timedelta(hours=2)))
    for bad in (late, early):
        with pytest.raises(InvalidTask, match="year"):
            checked_instant(bad, what="run_at")
    assert checked_instant(late - timedelta(hours=2), what="run_at") == datetime(9999, 12, 31, 23, tzinfo=UTC)


def test_a_small_value_with_shared_parts_is_refused_before_it_is_written_out() -> None:
    doubled: list[Any] = []
    for _ in range(DEPTH - 1):
        doubled = [doubled, doubled]
    with pytest.raises(PayloadTooLarge):
        json_text(doubled, what="the payload")
    with pytest.raises(PayloadTooLarge):
        json_text(["x" * 1_000_000] * 100_000, what="the payload")
