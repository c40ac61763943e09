"""How results of several tasks are put together into one value.

    None          the next result
    3             a list of the next three
    [None, 3]     a list of the next result and a list of the three after it

A payload says in this way what becomes of the results of the parents, so that one that takes a hundred thousand of them
stays small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec

Shape: TypeAlias = "int | list[Shape] | None"


def arranged(shape: Shape, results: Iterator[Any]) -> Any:
    if shape is None:
        return next(results)
    if isinstance(shape, int):
        return [next(results) for _ in range(shape)]
    return [arranged(inner, results) for inner in shape]


class Outcome(msgspec.Struct, frozen=True):
    """What a workflow makes of the results of its last tasks."""

    shape: Shape
    chosen: tuple[int, ...] | None = None
    """Which of them, in the order of submission; None: all."""

    def of(self, results: Sequence[Any]) -> Any:
        found = results if self.chosen is None else [results[seat] for seat in self.chosen]
        return arranged(self.shape, iter(found))
