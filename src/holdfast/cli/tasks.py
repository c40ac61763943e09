"""`holdfast tasks …`: look at tasks and act on them. Why one is not running is worked out in why.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli import why as reasons
from holdfast.cli.acts import act_on_each
from holdfast.cli.listing import put_listing, say_more
from holdfast.cli.options import Command, Group, Session, did_you_mean, duration
from holdfast.cli.output import Cell, Styled
from holdfast.cli.watch import follow
from holdfast.errors import HoldfastError, InvalidTask
from holdfast.model.event import Event
from holdfast.model.task import Task, TaskStatus

_EVENT_COMMON = ("ts", "task_id", "run_id", "actor")


class NotDeletable(HoldfastError):
    """A delete that the task's state refuses; the store says InvalidTask for it, which elsewhere means bad input."""

    code = InvalidTask.code


@click.group(
    cls=Group,
    examples=["holdfast tasks list --status failed", "holdfast tasks why ID", "holdfast tasks cancel ID"],
)
def tasks() -> None:
    """List, explain, watch, cancel, retry tasks."""


def _status(_context: click.Context, _option: click.Parameter, given: str | None) -> str | None:
    known = [status.value for status in TaskStatus]
    if given is not None and given not in known:
        raise click.BadParameter(
            f"there is no status {given!r}{did_you_mean(given, known)}; there are {', '.join(known)}"
        )
    return given


@tasks.command(
    "list",
    examples=[
        "holdfast tasks list",
        "holdfast tasks list --status failed --queue mail --json",
        "holdfast tasks list --limit 50 --after ID",
    ],
)
@click.option("--status", callback=_status, help="waiting, queued, running, completed, failed or canceled.")
@click.option("--queue", help="Of this queue.")
@click.option("--name", help="Of this name.")
@click.option("--run-id", help="Of this run.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many at most.")
@click.option("--after", metavar="ID", help="Go on after the last task of the page before.")
@click.pass_obj
def list_tasks(session: Session, /, queue: str | None, limit: int, **wanted: Any) -> None:
    """List tasks, newest first."""

    async def ask(app: Holdfast) -> tuple[list[Task], list[str]]:
        page = await app.tasks.alist(queue=queue, limit=limit, **wanted)
        return page, [info.name for info in await app.queues.alist()] if queue and not page else []

    (page, known), now = session.read(ask)
    put_tasks(session, page, limit, now, nothing="no such tasks")
    if queue and not page and queue not in known:
        output.say(f"note: there is no queue {queue!r}{did_you_mean(queue, known)}")


def put_tasks(session: Session, page: Sequence[Task], limit: int, now: datetime, *, nothing: str) -> None:
    headers = ("ID", "NAME", "QUEUE", "STATUS", "FAILURES", "WHEN", "ERROR")
    put_listing(session, page, headers, lambda task: _row(task, now), nothing=nothing)
    say_more(session, page, limit, lambda task: f"--after {task.id}")


def _row(task: Task, now: datetime) -> list[Cell]:
    shown = task.shown_as(now)
    budget = task.max_attempts or "∞"
    error = str((task.last_error or {}).get("message", "")) if task.failures else ""
    moment = task.finished_at or task.claimed_at if task.status is not TaskStatus.QUEUED else task.run_at
    failures = f"{task.failures}/{budget}"
    return [
        task.id,
        task.name,
        task.queue,
        Styled(shown, shown),
        failures,
        output.when(moment or task.created_at, now),
        error,
    ]


@tasks.command(examples=["holdfast tasks show ID", "holdfast tasks show ID --json"])
@click.argument("task_id", metavar="ID")
@click.pass_obj
def show(session: Session, task_id: str) -> None:
    """Show the whole record of a task."""
    put_task(session, *session.read(lambda app: app.tasks.aget(task_id)))


def put_task(session: Session, task: Task, now: datetime) -> None:
    if session.json:
        output.put_json(task)
    else:
        output.put_fields(_fields(task, now))


def _fields(task: Task, now: datetime) -> list[tuple[str, Cell]]:
    pairs: list[tuple[str, Cell]] = []
    error = dict(task.last_error or {})
    stack = str(error.pop("stack", "") or "").rstrip("\n")
    for field in task.__struct_fields__:
        value = getattr(task, field)
        if field == "status":
            shown = task.shown_as(now)
            pairs.append((field, Styled(shown, shown)))
        elif isinstance(value, datetime):
            pairs.append((field, f"{output.json_line(value)[1:-1]}  ({output.when(value, now)})"))
        elif field == "last_error" and error:
            pairs.append((field, output.compact(error)))
        elif isinstance(value, str):
            pairs.append((field, value))
        elif value is not None or field in ("payload", "result"):
            pairs.append((field, output.compact(value)))
    if stack:
        pairs.append(("stack", stack))
    return pairs


@tasks.command(examples=["holdfast tasks events ID", "holdfast tasks events ID --json"])
@click.argument("task_id", metavar="ID")
@click.pass_obj
def events(session: Session, task_id: str) -> None:
    """List what happened to a task so far, oldest first."""
    found = session.run(lambda app: app.tasks.aevents(task_id))
    if session.json:
        for event in found:
            output.put_json(event)
    else:
        output.put_table(("EVENT", "TS", "KIND", "ACTOR", "DETAILS"), (_event_row(event) for event in found))


def _event_row(event: Event) -> list[Cell]:
    details = {key: value for key, value in event.payload.items() if key not in _EVENT_COMMON}
    moment = event.ts.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return [str(event.id), moment, event.kind, event.actor, output.compact(details)]


@tasks.command(examples=["holdfast tasks why ID", "holdfast tasks why ID --json"])
@click.argument("task_id", metavar="ID")
@click.pass_obj
def why(session: Session, task_id: str) -> None:
    """Say in plain words why a task is not running, and what would help."""
    answer = session.run(lambda app: reasons.explain(app, task_id))
    if session.json:
        output.put_json(answer)
        return
    main = reasons.Reason(reason=answer.reason, text=answer.text, command=answer.command)
    for reason in (main, *answer.also):
        output.put(output.safe(reason.text, 4000))
        if reason.command is not None:
            output.put(f"  try: {output.safe(reason.command, 4000)}")


@tasks.command(examples=["holdfast tasks watch ID", "holdfast tasks watch ID --timeout 5m --json"])
@click.argument("task_id", metavar="ID")
@click.option("--timeout", type=duration, help="Give up after so long, with exit code 1.")
@click.pass_obj
def watch(session: Session, task_id: str, timeout: timedelta | None) -> int:
    """Follow a task's events and progress until it ends.

    The exit code is 0 if it completes and 1 if it fails or is canceled.
    """
    seconds = None if timeout is None else timeout.total_seconds()
    ended = session.run(lambda app: follow(app, task_id, as_json=session.json, timeout=seconds))
    return 0 if ended.status is TaskStatus.COMPLETED else 1


# Acts


def _act(
    name: str, does: str, examples: Sequence[str], done: str, act: Callable[[Holdfast, str], Awaitable[None]]
) -> None:
    """One command per act: they differ only in their words and in what they call."""

    def command(session: Session, task_ids: tuple[str, ...]) -> int:
        return act_on_each(session, task_ids, act, done)

    decorated: Any = click.pass_obj(command)
    decorated = click.argument("task_ids", metavar="ID…", nargs=-1, required=True)(decorated)
    tasks.command(name, cls=Command, help=does, examples=examples)(decorated)


async def _delete(app: Holdfast, task_id: str) -> None:
    try:
        await app.tasks.adelete(task_id)
    except InvalidTask as refused:
        raise NotDeletable(str(refused)) from None


_act(
    "cancel",
    "Cancel tasks. What waits ends at once; a running handler is asked first.",
    ["holdfast tasks cancel ID"],
    "canceled, or asked to stop",
    lambda app, task_id: app.tasks.acancel(task_id),
)
_act(
    "retry",
    "Queue failed or canceled tasks again, each with a fresh budget.",
    ["holdfast tasks retry ID"],
    "queued",
    lambda app, task_id: app.tasks.aretry(task_id),
)
_act(
    "release",
    "End the leases of running tasks by force; they are queued again and their workers are fenced off.",
    ["holdfast tasks release ID"],
    "released",
    lambda app, task_id: app.tasks.arelease(task_id),
)
_act(
    "delete",
    "Delete ended tasks with their events and idempotency keys.",
    ["holdfast tasks delete ID"],
    "deleted",
    _delete,
)
