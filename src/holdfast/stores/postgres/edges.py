"""Who waits for whom, as rows beside the tasks of a submit (docs/adr/0012-workflows.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.model.task import NewTask
from holdfast.policy.workflow import RUNS_ANYWAY, bucket_size
from holdfast.stores.postgres.pool import Session

LARGE = 200
"""From so many on edges are copied in."""
_EDGES = ("parent", "child", "position", "bucket", "anyway")
_BUCKETS = ("child", "bucket", "open")

Edge = tuple[str, str, int, int | None, bool]
Bucket = tuple[str, int, int]


def pending(new: NewTask) -> int:
    """Parents, or buckets of them, that a new task waits for."""
    size = bucket_size(len(new.parents))
    return -(-len(new.parents) // size) if size else len(new.parents)


def numbers(new: NewTask, dependents: Mapping[str, int]) -> tuple[int, int, int]:
    """The columns `parents`, `pending` and `dependents` of a new task."""
    return len(new.parents), pending(new), dependents.get(new.id, 0)


async def insert(session: Session, tasks: Sequence[NewTask]) -> None:
    """In the transaction that inserts the tasks; nothing where none of them waits."""
    waiting = [new for new in tasks if new.parents]
    edges = [edge for new in waiting for edge in _edges(new)]
    buckets = [bucket for new in waiting for bucket in _buckets(new)]
    if len(edges) >= LARGE:
        await session.copy("edges", _EDGES, edges)
        await session.copy("buckets", _BUCKETS, buckets)
    elif edges:
        await session.rows("edges", *_columns(edges, 5), *_columns(buckets, 3))


def _edges(new: NewTask) -> list[Edge]:
    size, anyway = bucket_size(len(new.parents)), new.on_parent_failure == RUNS_ANYWAY
    return [
        (parent, new.id, position, position // size if size else None, anyway)
        for position, parent in enumerate(new.parents)
    ]


def _buckets(new: NewTask) -> list[Bucket]:
    parents, size = len(new.parents), bucket_size(len(new.parents))
    return [(new.id, first // size, min(size, parents - first)) for first in range(0, parents, size)] if size else []


def _columns(rows: Sequence[tuple[object, ...]], width: int) -> list[list[object]]:
    return [[row[place] for row in rows] for place in range(width)]
