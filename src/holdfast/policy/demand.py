"""How many tasks to claim next.

A worker keeps its slots full and, where its tasks are short, a buffer of claimed tasks that it will start within a
moment; so short tasks travel in large batches while long ones are never hoarded. It asks again once half of what it
may hold is gone (the low-water mark), not at fixed intervals.
"""

from __future__ import annotations

AHEAD_SECONDS = 0.1
BATCH_LARGEST = 1000


def demand(*, slots: int, running: int, buffered: int, started_per_second: float) -> int:
    """The size of the next claim; 0 while enough is held."""
    held = running + buffered
    if held > low_water(slots=slots, started_per_second=started_per_second):
        return 0
    return min(slots + _ahead(started_per_second) - held, BATCH_LARGEST)


def low_water(*, slots: int, started_per_second: float) -> int:
    """More is asked for while no more than this is held: half of what may be, and whenever a slot would stay empty."""
    return max((slots + _ahead(started_per_second)) // 2, slots - 1)


def _ahead(started_per_second: float) -> int:
    return min(int(started_per_second * AHEAD_SECONDS), BATCH_LARGEST)
