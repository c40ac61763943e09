"""The plain good end of many attempts at once: nothing emitted or written, nothing to follow. The hottest path.

It is what policy/verdict.py says of Completed, for leases that hold; whatever else is in a batch is left to settle.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from holdfast.model.claim import Lease
from holdfast.model.outcome import Completed, Settlement
from holdfast.model.task import TaskStatus
from holdfast.model.transition import Settled
from holdfast.stores.sqlite import records
from holdfast.stores.sqlite.rows import APART_CHARS
from holdfast.stores.sqlite.statements import json_param
from holdfast.stores.sqlite.tx import Turn, Tx


class Fence(msgspec.Struct, array_like=True, gc=False):
    seq: int
    id: str
    queue: str
    status: str
    attempt: int
    token: str | None
    claimed_by: str | None
    lease_expires_at: int | None
    dependents: int
    placed: int


_decoder = msgspec.json.Decoder(list[Fence])


def completed(tx: Tx, settlements: Sequence[Settlement]) -> dict[str, Settled]:
    """By task, those that were recorded here. Of a task that is named twice, nothing: there the order decides."""
    plain = _plain(settlements)
    if not plain:
        return {}
    answers: dict[str, Settled] = {}
    results: dict[str, str | None] = {}
    queues: Counter[str] = Counter()
    for fence in _decoder.decode(tx.row("fence", ids=records.ids_param(plain))[0]):
        lease, result = plain[fence.id]
        if not _holds(fence, lease, tx.now):
            continue
        if len(result) > APART_CHARS:
            records.keep_apart(tx, fence.seq, result)
        results[str(fence.seq)] = result if len(result) <= APART_CHARS else None
        queues[fence.queue] += 1
        tx.note_plain(fence.seq, fence.attempt, "task.completed", str(fence.claimed_by))
        answers[fence.id] = Settled(fence.id, fence.attempt, TaskStatus.COMPLETED)
        tx.wakes |= bool(fence.placed)
        if fence.dependents:
            tx.turned.append(_turn(fence))
    if results:
        tx.run("complete", results=json_param(results), now=tx.now)
        tx.leases = True
    for queue, tasks in queues.items():
        tx.moved(queue, TaskStatus.RUNNING, TaskStatus.COMPLETED, tasks)
    return answers


def _turn(fence: Fence) -> Turn:
    return Turn(fence.seq, fence.id, None, TaskStatus.COMPLETED, None, fence.dependents, None, str(fence.claimed_by))


def _plain(settlements: Sequence[Settlement]) -> dict[str, tuple[Lease, str]]:
    """By task: the lease and the result."""
    named = Counter([settlement.lease.task_id for settlement in settlements])
    plain = {}
    for settlement in settlements:
        lease, outcome = settlement.lease, settlement.outcome
        if type(outcome) is Completed and not (settlement.emitted or settlement.follow_ups or settlement.outputs):
            plain[lease.task_id] = (lease, outcome.result)
    if len(named) < len(settlements):
        return {task_id: ended for task_id, ended in plain.items() if named[task_id] == 1}
    return plain


def _holds(fence: Fence, lease: Lease, now: int) -> bool:
    """The fence of rows.Record.holds."""
    return (
        fence.status == TaskStatus.RUNNING
        and fence.attempt == lease.attempt
        and fence.token == lease.token
        and fence.lease_expires_at is not None
        and now < fence.lease_expires_at
    )
