"""The places of ended tasks, newest first, so that a page of a million reads few of their names.

Ids begin with the time at which they were made. The replica knows how those of ended tasks begin (`r.head`), so a walk
goes from one such span of hours to the one before, and where there are many tasks by the minute. Ids that tell no time
are asked for together, first. How many are to be expected is taken from the tally: it decides what is asked for at
once, never what is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from holdfast.model.query import TaskFilter
from holdfast.stores.nats.subjects import OTHER

if TYPE_CHECKING:
    from holdfast.stores.nats.ledger import Ledger

FEW = 5000
"""So many names are asked for in one go."""
DENSE = 2000
"""More in a span on average, and it is asked for by the minute."""
TOGETHER = 4, 64
"""So many questions at once, at first and at most."""

SLOTS = [f"{slot:02x}" for slot in reversed(range(256))]


async def ended(ledger: Ledger, wanted: TaskFilter) -> AsyncIterator[tuple[str, list[str]]]:
    """Names, and a text: of every id that is not less, the name has been given. The replica is fresh."""
    status, subjects = None if wanted.status is None else wanted.status.value, ledger.subjects
    heads = ledger.replica.heads
    expected = sum(
        number
        for (queue, ends_as), number in ledger.replica.ended_counts().items()
        if wanted.queue in (None, queue) and status in (None, ends_as)
    )
    if expected <= FEW:
        yield "", await ledger.reader.subjects(subjects.ends_of(status or "*", wanted.queue))
        return
    others = subjects.ends_of(status or "*", wanted.queue, OTHER)
    found = await ledger.reader.subjects(others) if OTHER in heads else []
    spans = _spans(sorted(heads - {OTHER}, reverse=True), wanted.after, by_slot=expected > DENSE * len(heads))
    together, most = TOGETHER
    while part := list(islice(spans, together)):
        patterns = [subjects.ends_of(status or "*", wanted.queue, head, slot) for head, slot in part]
        totals = await asyncio.gather(*map(ledger.reader.total, patterns))
        for span, pattern, total in zip(part, patterns, totals, strict=True):
            if total:
                yield _begin(*span), [*found, *await ledger.reader.subjects(pattern)]
                found = []
        together = min(2 * together, most)
    yield "", found


def _spans(heads: list[str], after: str | None, *, by_slot: bool) -> Iterator[tuple[str, str]]:
    """Newest first, without those in which everything is newer than `after`."""
    for head in heads:
        for slot in SLOTS if by_slot else "*":
            begin = _begin(head, slot)
            if after is None or begin <= after[: len(begin)]:
                yield head, slot


def _begin(head: str, slot: str) -> str:
    return head + slot.removesuffix("*")
