"""Workflows as the store gets them, put together by hand: what the worker makes of them is what is tested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast import Handle, Holdfast, ids
from holdfast.model.backoff import Fixed
from holdfast.model.task import NewTask, Submitted

RUN = "run"


def node(
    name: str, *args: Any, inputs: list[Any] | None = None, after: Sequence[NewTask] = (), **known: Any
) -> NewTask:
    payload = {"args": args, "kwargs": {}} | ({} if inputs is None else {"inputs": inputs})
    given = {"id": ids.task_id(), "run_id": RUN, "max_attempts": 1, "backoff": Fixed(0), **known}
    text = msgspec.json.encode(payload).decode()
    return NewTask(name=name, payload=text, parents=tuple(parent.id for parent in after), **given)


def submit(app: Holdfast, *tasks: NewTask) -> list[Handle[Any]]:
    """In one step."""

    async def store() -> list[Submitted]:
        return await app.client.store.submit(tasks)

    app.client.plainly(store, plain="submit")
    return [app.handle(task.id) for task in tasks]


def chord(member: str, finalizer: str, size: int, **known: Any) -> list[NewTask]:
    """`size` members, which get their numbers, and a finalizer that gets the list of their results."""
    members = [node(member, number, **known) for number in range(size)]
    return [*members, node(finalizer, inputs=[size], after=members, **known)]
