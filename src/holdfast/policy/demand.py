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
    ahead = min(int(started_per_second * AHEAD_SECONDS), BATCH_LARGEST)
    wanted = slots + ahead - running - buffered
    if running + buffered > (slots + ahead) // 2 and buffered + running >= slots:
        return 0
    return max(0, min(wanted, BATCH_LARGEST))
