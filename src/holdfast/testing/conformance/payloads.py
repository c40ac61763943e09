"""C4.5: JSON comes back exactly as it went in, or is refused before anything is written; the same on every store."""

from __future__ import annotations

import math
from typing import Any

import msgspec

from holdfast.errors import HoldfastError, InvalidTask, InvalidWorkerID, PayloadTooLarge
from holdfast.model.outcome import Completed
from holdfast.policy.admission import (
    DEPTH,
    NAME_BYTES,
    PAYLOAD_BYTES,
    checked_instant,
    checked_int,
    checked_name,
    checked_span,
    checked_worker_id,
    json_text,
)
from holdfast.testing.conformance.checks import equal, identical, that
from holdfast.testing.conformance.registry import case, register
from holdfast.testing.conformance.subject import Subject


def _nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"k": value}
    return value


EXACT: dict[str, Any] = {
    "null": None,
    "true": True,
    "one_is_not_true": [1, True, 0, False],
    "nul_character": "a\x00b",
    "nul_in_a_key": {"\x00": "\x00"},
    "control_characters": "".join(map(chr, range(32))) + "\x7f\x80\x9f\u2028\u2029\ufeff",
    "an_integer_of_71_bits": 2**70,
    "integers_at_the_edges": [2**31, 2**53 + 1, 2**63 - 1, -(2**63), 2**63, 2**64, -(2**70), 2**4095],
    "a_float_that_looks_like_an_integer": [1e16, 1.0, 1e15, 1e22, 1e300, 123456789012345680.0],
    "negative_zero": [-0.0, 0.0, 0],
    "small_and_large_floats": [5e-324, 1.7976931348623157e308, 0.1, 2.2250738585072014e-308, 1 / 3],
    "nested_as_deep_as_allowed": _nested(DEPTH),
    "emoji": "👩‍👩‍👧‍👦 🇨🇭 e\u0301 é",
    "empty_things": ["", [], {}, {"": ""}, [[]], [{}]],
    "order_of_keys": {"b": 1, "a": 2, "c": {"z": 1, "y": 2}},
    "keys_that_differ_in_case_or_form": {"a": 1, "A": 2, "é": 3, "e\u0301": 4},
    "text_that_looks_like_something_else": [
        "null",
        "1",
        "'; drop table tasks; --",
        "$1",
        "%s",
        "{}",
        "\\",
        '"',
        "\\u0000",
    ],
    "dates_stay_text": "2030-01-01T00:00:00Z",
    "a_megabyte": "x" * (PAYLOAD_BYTES - 2),
    "a_call": {"args": [7, "x"], "kwargs": {"template": "welcome"}},
}


def _exact_case(name: str, value: Any) -> None:
    async def prove(subject: Subject) -> None:
        text = json_text(value, what="the payload")
        task_id = await subject.submit(payload=text)
        that(identical((await subject.get(task_id)).payload, value), "the record shows the value")
        claim = await subject.claim(task_id)
        equal(claim.payload, text, "the claim carries the very text")
        that(identical(msgspec.json.decode(claim.payload), value), "which decodes to the value")
        await subject.settle(claim.lease, Completed(text))
        that(identical((await subject.get(task_id)).result, value), "a result comes back as exactly")

    register(f"a_payload_comes_back_exactly_{name}", ("C4.5", "C2"), prove)


for _name, _value in EXACT.items():
    _exact_case(_name, _value)


@case("C4.5", "C2")
async def meta_comes_back_exactly(subject: Subject) -> None:
    meta = {name: value for name, value in EXACT.items() if name not in ("a_megabyte", "nested_as_deep_as_allowed")}
    text = json_text(meta, what="the meta")
    task_id = await subject.submit(meta=text)
    that(identical((await subject.get(task_id)).meta, meta), "the record shows it")
    equal((await subject.claim(task_id)).meta, text, "the claim carries the very text")


class _Text(str):
    """A subclass would come back as its base."""

    __slots__ = ()


class _Hostile:
    def __repr__(self) -> str:
        raise RuntimeError("a hostile repr")


REFUSED: dict[str, Any] = {
    "nan": math.nan,
    "infinity": [math.inf],
    "minus_infinity": {"k": -math.inf},
    "a_lone_surrogate": "\ud800",
    "a_lone_surrogate_in_a_key": {"\udfff": 1},
    "a_tuple": (1, 2),
    "a_tuple_inside": {"k": [(1,)]},
    "bytes": b"x",
    "a_set": {1},
    "an_integer_key": {1: "x"},
    "a_none_key": {None: 1},
    "a_subclass_of_str": _Text("x"),
    "a_subclass_as_a_key": {_Text("x"): 1},
    "a_subclass_of_int": [type("Int", (int,), {})(1)],
    "an_object": object(),
    "a_hostile_object": [_Hostile()],
    "a_hostile_key": {_Hostile(): 1},
    "nested_too_deep": _nested(DEPTH + 1),
    "nested_much_too_deep": _nested(900),
    "an_integer_too_long": 2**4096,
}


def _refused_case(name: str, value: Any) -> None:
    async def prove(subject: Subject) -> None:  # noqa: ARG001
        equal(_refusal(lambda: json_text(value, what="the payload")), InvalidTask, "refused before any store sees it")

    register(f"a_payload_is_refused_{name}", ("C4.5",), prove)


for _name, _value in REFUSED.items():
    _refused_case(_name, _value)


def _refusal(call: Any) -> type[HoldfastError] | None:
    try:
        call()
    except HoldfastError as refusal:
        return type(refusal)
    return None


@case("C4.5")
async def a_payload_over_the_limit_is_too_large(subject: Subject) -> None:  # noqa: ARG001
    for value in ("x" * (PAYLOAD_BYTES - 1), "é" * (PAYLOAD_BYTES // 2), ["x" * 1000] * 1100):
        equal(_refusal(lambda value=value: json_text(value, what="the payload")), PayloadTooLarge, "by its bytes")
    equal(_refusal(lambda: json_text("12345", what="the result", limit_bytes=6)), PayloadTooLarge, "with its own limit")
    equal(json_text("1234", what="the result", limit_bytes=6), '"1234"', "up to the limit")


@case("C4.5")
async def invalid_names_are_refused(subject: Subject) -> None:  # noqa: ARG001
    bad: list[Any] = [
        "",
        None,
        7,
        b"x",
        "a\x00",
        "a\nb",
        "\x7f",
        "x" * (NAME_BYTES + 1),
        "é" * 257,
        "\ud800",
        _Text("x"),
    ]
    for name in bad:
        equal(_refusal(lambda name=name: checked_name(name, what="the name")), InvalidTask, f"{str(name)[:9]!a}")
        equal(_refusal(lambda name=name: checked_worker_id(name)), InvalidWorkerID, f"{str(name)[:9]!a}")
    for name in ("x", "é" * 256, "mail.send", "a b", "送信"):
        equal(checked_name(name, what="the name"), name, "a good name")


@case("C4.5")
async def invalid_numbers_are_refused(subject: Subject) -> None:  # noqa: ARG001
    whole: list[Any] = [-32769, 32768, 1.0, True, "1", None]
    for number in whole:
        refusal = _refusal(lambda number=number: checked_int(number, -32768, 32767, what="the priority"))
        equal(refusal, InvalidTask, f"priority {number!r}")
    spans: list[Any] = [-1, math.nan, math.inf, "5", None, True, 1e12]
    for span in spans:
        equal(_refusal(lambda span=span: checked_span(span, what="the delay")), InvalidTask, f"a delay of {span!r}")
    equal(_refusal(lambda: checked_instant("2030-01-01", what="run_at")), InvalidTask, "an instant is a datetime")
