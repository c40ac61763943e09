"""Acts on several tasks: each for itself, each with an answer; and the question before an act on very many."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence

import click

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.failures import told
from holdfast.cli.options import Session
from holdfast.errors import HoldfastError, StoreUnavailable, TaskNotFound
from holdfast.model.task import Task

Act = Callable[[Holdfast, str], Awaitable[None]]


def act_on_each(session: Session, task_ids: Sequence[str], act: Act, done: str) -> int:
    """Print the records as they are afterwards. One refusal is raised; among several ids it is told, and they go on."""

    async def all_of_them(app: Holdfast) -> int:
        status = 0
        for task_id in task_ids:
            try:
                await act(app, task_id)
            except StoreUnavailable:
                raise
            except HoldfastError as refused:
                if len(task_ids) == 1:
                    raise
                status = max(status, told(refused, as_json=session.json))
                continue
            _put_outcome(session, task_id, await _after(app, task_id), done)
        return status

    return session.run(all_of_them)


async def _after(app: Holdfast, task_id: str) -> Task | None:
    try:
        return await app.tasks.aget(task_id)
    except TaskNotFound:
        return None


def _put_outcome(session: Session, task_id: str, task: Task | None, done: str) -> None:
    if session.json:
        output.put_json({"id": task_id, "deleted": True} if task is None else task)
    elif task is None:
        output.put(output.safe(f"{task_id} {done}"))
    else:
        asked = " (asked to stop)" if task.cancel_requested_at and not task.status.terminal else ""
        output.put(output.safe(f"{task_id} is {task.status.value}{asked}"))


def confirmed(question: str, *, yes: bool) -> bool:
    """Ask on a terminal; without one --yes is needed."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Nobody can be asked here: add --yes.")
    agreed = click.confirm(output.safe(question), err=True)
    if not agreed:
        output.say("nothing was changed")
    return agreed


class Tally:
    """Shows how far an act on many has come."""

    def __init__(self, word: str, total: int) -> None:
        self._word = word
        self._total = total
        self._live = output.Live(sys.stderr)

    def __call__(self, done: int) -> None:
        self._live.status(f"{self._word} {done:,} of {self._total:,}")

    def close(self) -> None:
        self._live.close()
