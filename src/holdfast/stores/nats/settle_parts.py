"""Which settles go into one atomic step: as many as it can hold whatever follows from them (planner.py).

What each takes is known before it is acted upon, and hardly ever less: a place to come to and one to leave, events that
stand on no sheet, follow-ups, a row for what its end means for others, and where ended tasks are looked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast.model.outcome import Completed, Settlement
from holdfast.stores.nats.images import Kept
from holdfast.stores.nats.replica import Replica
from holdfast.stores.nats.sheets import PER_TASK
from holdfast.stores.nats.subjects import head_of

SETTLE_MESSAGES = 600
BIRTH = 4
"""Messages of a follow-up: what was submitted, its image, its key, its queue or run."""


def parts(settlements: Sequence[Settlement], replica: Replica) -> Iterator[Sequence[Settlement]]:
    """Each settle is atomic for itself."""
    part: list[Settlement] = []
    size, heads, shares = 0, set(replica.heads), False
    for one in settlements:
        shared = _on_sheet(one, replica)
        head = head_of(one.lease.task_id)
        takes = _takes(one, replica) + (head not in heads) + (not (shared and shares))
        if part and size + takes > SETTLE_MESSAGES:
            yield part
            part, size, heads = [], 0, set(replica.heads)
        part.append(one)
        size, shares = size + takes, shared
        heads.add(head)
    if part:
        yield part


def _takes(one: Settlement, replica: Replica) -> int:
    """But for the event that it has ended."""
    record = replica.records.get(one.lease.task_id)
    alone = record is not None and not record.awaited and record.new.fail_fast is None
    return 2 + len(one.emitted) + BIRTH * len(one.follow_ups) + (not alone)


def _on_sheet(one: Settlement, replica: Replica) -> bool:
    record = replica.records.get(one.lease.task_id)
    known = isinstance(record, Kept) and len(record.sheets) < PER_TASK
    return known and not one.emitted and isinstance(one.outcome, Completed)
