"""`holdfast queues …`: what waits where; pause and resume."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import click

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.options import Group, Session, did_you_mean
from holdfast.cli.output import Cell, Styled
from holdfast.model.query import QueueInfo
from holdfast.model.task import TaskStatus


@click.group(cls=Group, examples=["holdfast queues list", "holdfast queues pause mail", "holdfast queues resume mail"])
def queues() -> None:
    """List, pause and resume queues."""


@queues.command("list", examples=["holdfast queues list", "holdfast queues list --json"])
@click.pass_obj
def list_queues(session: Session) -> None:
    """List every queue with its tasks per status."""
    found = session.run(lambda app: app.queues.alist())
    if session.json:
        for info in found:
            output.put_json(info)
    elif found:
        headers = ("QUEUE", "STATE", *(status.value.upper() for status in TaskStatus))
        output.put_table(headers, (_row(info) for info in found))
    else:
        output.say("no queues yet: one appears with its first task")


def _row(info: QueueInfo) -> list[Cell]:
    state = Styled("paused", "paused") if info.paused else Styled("open", "ok")
    return [info.name, state, *(f"{info.counts.get(status.value, 0):,}" for status in TaskStatus)]


@queues.command(examples=["holdfast queues pause mail"])
@click.argument("queue")
@click.pass_obj
def pause(session: Session, queue: str) -> None:
    """Stop all workers from claiming from a queue; what runs goes on."""
    _switch(session, queue, lambda app: app.queues.apause(queue))


@queues.command(examples=["holdfast queues resume mail"])
@click.argument("queue")
@click.pass_obj
def resume(session: Session, queue: str) -> None:
    """Let workers claim from a paused queue again."""
    _switch(session, queue, lambda app: app.queues.aresume(queue))


def _switch(session: Session, queue: str, act: Callable[[Holdfast], Awaitable[None]]) -> None:
    async def switch(app: Holdfast) -> tuple[list[str], QueueInfo]:
        known = [info.name for info in await app.queues.alist()]
        await act(app)
        return known, next(info for info in await app.queues.alist() if info.name == queue)

    known, info = session.run(switch)
    if queue not in known:
        output.say(f"note: no task was ever put in queue {queue!r}{did_you_mean(queue, known)}")
    if session.json:
        output.put_json(info)
    else:
        output.put(output.safe(f"queue {queue} is {'paused' if info.paused else 'open'}"))
