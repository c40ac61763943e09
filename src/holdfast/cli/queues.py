"""`holdfast queues …`: what waits where; pause, resume, and limits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.listing import put_listing
from holdfast.cli.options import Group, Session, did_you_mean
from holdfast.cli.output import Cell, Styled
from holdfast.model.limits import WHOLE_STORE, Limits
from holdfast.model.query import QueueInfo
from holdfast.model.task import TaskStatus

CLEARED = "none"


@click.group(
    cls=Group,
    examples=[
        "holdfast queues list",
        "holdfast queues pause mail",
        "holdfast queues resume mail",
        "holdfast queues limit mail --max-running 10 --rate 100/s",
    ],
)
def queues() -> None:
    """List, pause, resume and limit queues."""


@queues.command("list", examples=["holdfast queues list", "holdfast queues list --json"])
@click.pass_obj
def list_queues(session: Session) -> None:
    """List every queue with its tasks per status and its limits; `*` stands for the whole store."""
    found = session.run(lambda app: app.queues.alist())
    headers = ("QUEUE", "STATE", *(status.value.upper() for status in TaskStatus), "LIMITS")
    put_listing(session, found, headers, _row, nothing="no queues yet: one appears with its first task")


def _row(info: QueueInfo) -> list[Cell]:
    state = Styled("paused", "paused") if info.paused else Styled("open", "ok")
    counts = (f"{info.counts.get(status.value, 0):,}" for status in TaskStatus)
    return [info.name, state, *counts, limits_in_words(info.limits)]


def limits_in_words(limits: Limits) -> str:
    words = []
    if limits.max_running is not None:
        words.append(f"{limits.max_running:,} running")
    if limits.max_running_per_key is not None:
        words.append(f"{limits.max_running_per_key:,} running per key")
    if limits.rate is not None:
        words.append(f"{limits.rate.count:,} per {limits.rate.period:g} s, burst {limits.burst:,}")
    return "; ".join(words) or "-"


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


class _Bound(click.ParamType[Any]):
    """A number, or the word that clears it."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | None:
        if value == CLEARED:
            return None
        try:
            return int(value)
        except ValueError:
            self.fail(f"{value!r} is neither a number nor {CLEARED!r}", param, ctx)


@queues.command(
    examples=[
        "holdfast queues limit mail --max-running 10",
        "holdfast queues limit mail --rate 100/s --burst 20",
        "holdfast queues limit orders --max-running-per-key 1",
        "holdfast queues limit mail --max-running none --rate none",
        "holdfast queues limit '*' --max-running 500",
    ]
)
@click.argument("queue")
@click.option("--max-running", type=_Bound(), metavar="N", help="So many tasks run at once, over all workers.")
@click.option("--rate", metavar="N/PERIOD", help="So many start per period, such as 100/s, 10/min, 500/15m.")
@click.option("--burst", type=_Bound(), metavar="N", help="So many may start at once, where there is a rate.")
@click.option(
    "--max-running-per-key",
    "--per-key",
    "max_running_per_key",
    type=_Bound(),
    metavar="N",
    help="So many run at once of each concurrency key; 1: one after the other, in order.",
)
@click.pass_context
def limit(context: click.Context, /, queue: str, **given: Any) -> None:
    """Limit a queue, or the whole store (`*`), for all workers, from now on.

    What is not given stays as it is; `none` clears it.
    """
    session: Session = context.obj
    changes = {name: None if value == CLEARED else value for name, value in given.items() if _said(context, name)}
    if not changes:
        raise click.UsageError("say what to limit: --max-running, --rate, --burst or --max-running-per-key")
    _switch(session, queue, lambda app: app.queues.alimit(queue, **changes))


def _said(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


def _switch(session: Session, queue: str, act: Callable[[Holdfast], Awaitable[object]]) -> None:
    async def switch(app: Holdfast) -> tuple[list[str], QueueInfo]:
        known = [info.name for info in await app.queues.alist()]
        await act(app)
        return known, next(info for info in await app.queues.alist() if info.name == queue)

    known, info = session.run(switch)
    if queue not in known and queue != WHOLE_STORE:
        output.say(f"note: no task was ever put in queue {queue!r}{did_you_mean(queue, known)}")
    if session.json:
        output.put_json(info)
    else:
        limits = f", limits: {limits_in_words(info.limits)}" if info.limits.some else ""
        output.put(output.safe(f"queue {queue} is {'paused' if info.paused else 'open'}{limits}"))
