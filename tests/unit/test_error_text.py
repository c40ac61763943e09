"""Error texts that can always be stored, whatever an exception does."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.policy.error_text import MESSAGE_CHARS, STACK_CHARS, error_info, safe_text


class HostileText(str):
    """A str that lies about itself wherever it can."""

    __slots__ = ()

    def __len__(self) -> int:
        raise SystemExit("no len")

    def __getitem__(self, key: Any) -> str:
        raise SystemExit("no item")

    def __bool__(self) -> bool:
        raise SystemExit("no bool")

    def __format__(self, spec: str) -> str:
        raise SystemExit("no format")

    def encode(self, *args: Any, **kwargs: Any) -> bytes:
        raise SystemExit("no encode")


class Raises(Exception):
    def __init__(self, raised: BaseException) -> None:
        super().__init__("unused")
        self.raised = raised

    def __str__(self) -> str:
        raise self.raised


class Says(Exception):
    def __init__(self, text: Any) -> None:
        super().__init__("unused")
        self.text = text

    def __str__(self) -> str:
        return self.text  # type: ignore[no-any-return]


def storable(raised: BaseException) -> str:
    """The message, once it is certain that it can be stored."""
    info = error_info(raised)
    assert type(info.message) is str
    assert 0 < len(info.message) <= MESSAGE_CHARS
    assert "\x00" not in info.message
    assert msgspec.json.decode(msgspec.json.encode(info), type=type(info)) == info
    return info.message


@pytest.mark.parametrize(
    "raised", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), RecursionError(), MemoryError(), ValueError("x")]
)
def test_an_exception_that_cannot_describe_itself_is_named(raised: BaseException) -> None:
    assert storable(Raises(raised)).startswith("Raises")


ODD_TEXTS: dict[str, Any] = {
    "none": None,
    "a number": 7,
    "bytes": b"x",
    "empty": "",
    "a hostile str": HostileText("x"),
    "a long hostile str": HostileText("x" * 10_000),
}


@pytest.mark.parametrize("odd", list(ODD_TEXTS))
def test_an_exception_that_describes_itself_oddly_is_stored_all_the_same(odd: str) -> None:
    storable(Says(ODD_TEXTS[odd]))


def test_a_huge_text_is_cut_and_says_how_long_it_was() -> None:
    assert "50,000,000 characters" in storable(ValueError("x" * 50_000_000))


def test_nul_and_lone_surrogates_are_written_out() -> None:
    assert storable(ValueError("a\x00b\ud800c😀")) == "a\\x00b\\ud800c😀"


def test_a_text_of_nothing_but_surrogates_stays_within_its_bound() -> None:
    storable(ValueError("\ud800" * MESSAGE_CHARS))
    storable(ValueError("\x00" * MESSAGE_CHARS))


@given(st.text(st.characters()))
def test_any_text_is_made_storable(text: str) -> None:
    storable(ValueError(text))


@given(st.text(st.characters()), st.integers(50, 200))
def test_safe_text_keeps_its_bound_and_plain_text_as_it_is(text: str, limit: int) -> None:
    safe = safe_text(text, limit)
    safe.encode()
    assert len(safe) <= limit
    assert "\x00" not in safe
    plain = "\x00" not in text and not any("\ud800" <= char <= "\udfff" for char in text)
    if plain and len(text) <= limit:
        assert safe == text


def test_an_exception_without_text_is_named() -> None:
    assert storable(KeyError()) == "KeyError"
    assert error_info(KeyError()).code == "KeyError"
    assert error_info(KeyError(), code="timeout").code == "timeout"


def test_the_stack_shows_where_and_never_what_was_there() -> None:
    def deep(secret: str, levels: int) -> None:
        if levels == 0:
            raise ValueError(secret)
        deep(secret, levels - 1)

    try:
        deep("canary-" + "7" * 4, 3)
    except ValueError as raised:
        info = error_info(raised)
    assert info.stack is not None
    assert "test_error_text.py" in info.stack
    assert "canary-7777" not in info.stack


def test_a_deep_stack_is_bounded() -> None:
    def deep() -> None:
        deep()

    try:
        deep()
    except RecursionError as raised:
        info = error_info(raised)
    assert info.stack is not None
    assert len(info.stack) <= STACK_CHARS
    assert error_info(ValueError("never raised")).stack is None
