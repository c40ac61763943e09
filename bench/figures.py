"""One figure with its target, and the median of several runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

T = TypeVar("T")

RUNS = 3

Measure = Callable[[int], "Iterable[Figure]"]
"""Takes the share of the load: 1 for all of it, 10 for a tenth. A figure comes as soon as it is known."""


class Figure(NamedTuple):
    name: str
    value: float
    unit: str = ""
    target: str = ""
    met: bool = True

    def line(self) -> str:
        verdict = "" if not self.target else "met" if self.met else "MISSED"
        target = f"target {self.target}" if self.target else ""
        return f"{self.name:52} {self.value:>12,.3f} {self.unit:10} {target:18} {verdict}".rstrip()


def at_least(name: str, value: float, unit: str, target: float) -> Figure:
    return Figure(name, value, unit, f">= {target:,g}", value >= target)


def at_most(name: str, value: float, unit: str, target: float) -> Figure:
    return Figure(name, value, unit, f"<= {target:,g}", value <= target)


def median_run(runs: Callable[[], T], by: Callable[[T], float]) -> T:
    """The run in the middle, whole: its floor is that of the same minutes."""
    return sorted((runs() for _ in range(RUNS)), key=by)[RUNS // 2]
