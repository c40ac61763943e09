"""Parents before children: an order of a graph's places that every reader of it can follow downwards."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence


def parents_first(children: Sequence[Collection[int]]) -> list[int]:
    """The places, ascending where nothing else is said. Those of a cycle, and below one, are missing."""
    open_parents = [0] * len(children)
    for below in children:
        for child in below:
            open_parents[child] += 1
    ready = [place for place, parents in enumerate(open_parents) if parents == 0]
    order = []
    while ready:
        place = heapq.heappop(ready)
        order.append(place)
        for child in children[place]:
            open_parents[child] -= 1
            if open_parents[child] == 0:
                heapq.heappush(ready, child)
    return order
