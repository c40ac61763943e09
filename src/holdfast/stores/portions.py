"""Much in bounded parts, for stores that take only so much at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def portions(items: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    """In order; none for none."""
    for start in range(0, len(items), most):
        yield items[start : start + most]
