"""How a case states what it expects. Not `assert`: these also hold under `python -O`, and say what differs."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from holdfast.errors import HoldfastError

T = TypeVar("T")


class Broken(AssertionError):
    """A promise that the store does not keep."""


def that(kept: bool, promise: str) -> None:
    if not kept:
        raise Broken(promise)


def equal(got: object, expected: object, promise: str) -> None:
    if got != expected:
        raise Broken(f"{promise}\n  expected: {_short(expected)}\n  got:      {_short(got)}")


def present(value: T | None, promise: str) -> T:
    if value is None:
        raise Broken(f"{promise}: there is none")
    return value


def accepted(answers: Sequence[T | HoldfastError]) -> list[T]:
    """These answers, none of which is a refusal."""
    for answer in answers:
        if isinstance(answer, HoldfastError):
            raise Broken(f"nothing is refused\n  got: {answer!r}")
    return [answer for answer in answers if not isinstance(answer, HoldfastError)]


async def refused(call: Awaitable[Any], error: type[HoldfastError]) -> HoldfastError:
    """The refusal, which has to be of exactly this class: callers and HTTP tell them apart by their codes."""
    try:
        answer = await call
    except HoldfastError as raised:
        equal(type(raised).__name__, error.__name__, f"the refusal is {error.__name__} ({raised})")
        return raised
    raise Broken(f"refused with {error.__name__}\n  got the answer: {_short(answer)}")


def identical(one: object, other: object) -> bool:
    """Equal and of the same types all the way down; −0.0 is not 0.0, True is not 1, and keys keep their order."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(identical(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(identical, one, other))
    return repr(one) == repr(other) if isinstance(one, float) else one == other


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 2_000 else f"{text[:2_000]}… ({len(text):,} characters)"
