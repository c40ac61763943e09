"""Workflows in few words: drawn, submitted, ended, looked at. For the cases that need one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from holdfast import ids
from holdfast.model.claim import Claim
from holdfast.model.outcome import Completed, ErrorInfo, Failed, Settlement
from holdfast.model.task import NewTask, TaskStatus
from holdfast.model.transition import Settled
from holdfast.model.workflow import RunInfo
from holdfast.testing.conformance.checks import accepted, present
from holdfast.testing.conformance.registry import Proof
from holdfast.testing.conformance.registry import case as plain_case
from holdfast.testing.conformance.subject import REAPER, Subject, new_task

NEEDS = ("workflows",)
DEAD = Failed(ErrorInfo("no such account", "NoAccount"), unrecoverable=True)
WAITING, QUEUED, RUNNING = TaskStatus.WAITING, TaskStatus.QUEUED, TaskStatus.RUNNING
COMPLETED, FAILED, CANCELED = TaskStatus.COMPLETED, TaskStatus.FAILED, TaskStatus.CANCELED


def case(*clauses: str) -> Callable[[Proof], Proof]:
    return plain_case(*clauses, needs=NEEDS)


def drawn(run_id: str, **edges: Sequence[str]) -> dict[str, NewTask]:
    """Tasks by name, each with the names of its parents."""
    names = dict(zip(edges, ids.task_ids(len(edges)), strict=True))
    return {
        name: new_task(id=names[name], name=name, run_id=run_id, parents=tuple(names[one] for one in parents))
        for name, parents in edges.items()
    }


def with_fields(tasks: dict[str, NewTask], names: Iterable[str], **fields: Any) -> dict[str, NewTask]:
    return tasks | {name: msgspec.structs.replace(tasks[name], **fields) for name in names}


async def submit(subject: Subject, tasks: dict[str, NewTask]) -> dict[str, str]:
    """Their ids by name."""
    await subject.submit_all(*tasks.values())
    return {name: new.id for name, new in tasks.items()}


async def drawn_run(subject: Subject, **edges: Sequence[str]) -> dict[str, str]:
    return await submit(subject, drawn("run", **edges))


async def end(subject: Subject, task_id: str, outcome: Any = Completed()) -> Settled:  # noqa: B008  it is frozen
    return await subject.settle((await subject.claim(task_id)).lease, outcome)


async def advance(subject: Subject, limit: int = 1000) -> int:
    """Until nothing is left; how many steps it took."""
    steps = 0
    while await subject.store.advance(limit=limit, actor=REAPER):
        steps += 1
    return steps


async def states(subject: Subject, tasks: dict[str, str]) -> dict[str, TaskStatus]:
    return {name: (await subject.get(task_id)).status for name, task_id in tasks.items()}


async def shown(subject: Subject, run_id: str = "run") -> RunInfo:
    return present(await subject.store.run(run_id), "the run")


def chord(members: int, *, run_id: str = "run", **fields: Any) -> tuple[list[NewTask], NewTask]:
    *names, last = ids.task_ids(members + 1)
    tasks = [new_task(id=name, name="member", run_id=run_id) for name in names]
    return tasks, new_task(id=last, name="finalizer", run_id=run_id, parents=tuple(names), **fields)


async def settle_all(subject: Subject, claims: Sequence[Claim]) -> None:
    accepted(await subject.store.settle([Settlement(claim.lease, Completed('"r"')) for claim in claims]))
