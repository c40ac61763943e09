"""`holdfast runs …`: workflows, drawn and canceled whole. How a run is drawn is worked out in drawing.py."""

from __future__ import annotations

import shutil
import sys
from datetime import datetime

import click

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.acts import Tally
from holdfast.cli.drawing import Line, Spot, drawing
from holdfast.cli.listing import put_listing, say_more
from holdfast.cli.options import Group, Session
from holdfast.cli.output import Cell, Styled
from holdfast.model.task import Task, TaskStatus
from holdfast.model.workflow import RunInfo, RunStatus
from holdfast.policy.workflow import LIVE

BESIDE_NAME_CHARS = 62
"""What the other columns take of a line: the status, the duration, an id."""
NAME_CHARS_FEWEST = 16


@click.group(cls=Group, examples=["holdfast runs list", "holdfast runs show ID", "holdfast runs cancel ID"])
def runs() -> None:
    """List, draw and cancel runs: workflows, and tasks that share a run id."""


@runs.command("list", examples=["holdfast runs list", "holdfast runs list --limit 20 --json"])
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many at most.")
@click.option("--after", metavar="ID", help="Go on after the last run of the page before.")
@click.pass_obj
def list_runs(session: Session, limit: int, after: str | None) -> None:
    """List runs, newest first."""
    found, now = session.read(lambda app: app.runs.alist(limit, after))
    headers = ("ID", "STATUS", "STARTED", "TOOK", "TASKS")
    nothing = "no runs yet: one begins with a workflow, or with using(run_id=…)"
    put_listing(session, found, headers, lambda info: _row(info, now), nothing=nothing)
    say_more(session, found, limit, lambda info: f"--after {info.id}")


def _row(info: RunInfo, now: datetime) -> list[Cell]:
    status = info.status.value
    started = output.when(info.created_at, now)
    return [info.id, Styled(status, status), started, _span(info.created_at, info.finished_at, now), _told(info.counts)]


def _told(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {status}" for status, number in counts.items() if number)


def _span(began: datetime | None, ended: datetime | None, now: datetime) -> str:
    if began is None:
        return ""
    return output.span((ended or now) - began) + ("" if ended else " …")


# Show


@runs.command(examples=["holdfast runs show ID", "holdfast runs show ID --json"])
@click.argument("run_id", metavar="ID")
@click.pass_obj
def show(session: Session, run_id: str) -> None:
    """Draw a run: which task waits for which, with their states and durations.

    Tasks that are alike, such as the members of a group, stand on one line.
    """

    async def ask(app: Holdfast) -> tuple[RunInfo, list[Task]]:
        return await app.runs.aget(run_id), await app.client.run_tasks(run_id)

    (info, tasks), now = session.read(ask)
    if session.json:
        output.put_json({"run": info, "tasks": tasks})
        return
    output.put_fields(_fields(info, now))
    output.put("")
    output.put_table(("TASK", "STATUS", "TOOK", "ID"), (_line(line, now) for line in drawing(tasks)))
    hint = _hint(info, tasks)
    if hint is not None:
        output.say(hint)


def _hint(info: RunInfo, tasks: list[Task]) -> str | None:
    """What somebody may want to do next about a run that does not go on."""
    by_status = {task.status: task.id for task in reversed(tasks)}
    if info.status is RunStatus.FAILED and TaskStatus.FAILED in by_status:
        return f"to go on from what failed: holdfast tasks retry {by_status[TaskStatus.FAILED]}"
    if TaskStatus.QUEUED in by_status and TaskStatus.RUNNING not in by_status:
        return f"why nothing of it runs: holdfast tasks why {by_status[TaskStatus.QUEUED]}"
    return None


def _fields(info: RunInfo, now: datetime) -> list[tuple[str, Cell]]:
    started = f"{output.json_line(info.created_at)[1:-1]}  ({output.when(info.created_at, now)})"
    return [
        ("run", info.id),
        ("status", Styled(info.status.value, info.status.value)),
        ("tasks", _told(info.counts)),
        ("started", started),
        ("took", _span(info.created_at, info.finished_at, now)),
    ]


def _line(line: Line, now: datetime) -> list[Cell]:
    if line.spot is None:
        return [line.drawn, "", "", ""]
    spot, status = line.spot, line.spot.status.value
    alone = len(spot.tasks) == 1
    shown = spot.tasks[0].shown_as(now) if alone else status
    name = spot.tasks[0].name if alone else f"{spot.tasks[0].name} ×{len(spot.tasks):,}"
    last = spot.tasks[0].id if alone else _told(spot.counts)
    return [f"{line.drawn} {_shortened(name, len(line.drawn) + 1)}", Styled(shown, shown), _took(spot, now), last]


def _shortened(name: str, taken: int) -> str:
    """On a terminal, its end, which tells most, so that a line with an id fits."""
    name = output.safe(name, 200)
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else 200
    room = min(max(columns - BESIDE_NAME_CHARS, NAME_CHARS_FEWEST), output.CELL_CHARS) - taken
    return name if len(name) <= room else f"…{name[-max(room - 1, 4) :]}"


def _took(spot: Spot, now: datetime) -> str:
    """From the first claim to the last end, so far."""
    began = min((task.started_at for task in spot.tasks if task.started_at is not None), default=None)
    ended = [task.finished_at for task in spot.tasks]
    return _span(began, None if None in ended else max(end for end in ended if end is not None), now)


# Cancel


@runs.command(examples=["holdfast runs cancel ID"])
@click.argument("run_id", metavar="ID")
@click.pass_obj
def cancel(session: Session, run_id: str) -> None:
    """Cancel every task of a run that has not ended. Running handlers are asked first."""
    info = session.run(lambda app: app.runs.aget(run_id))
    tally = Tally("canceled", sum(info.counts.get(status.value, 0) for status in LIVE))

    async def act(app: Holdfast) -> tuple[int, RunInfo]:
        return await app.runs.acancel(run_id, progress=tally), await app.runs.aget(run_id)

    number, info = session.run(act)
    tally.close()
    if session.json:
        output.put_json({"id": info.id, "status": info.status, "changed": number})
    else:
        asked = ", as soon as what runs has stopped" if info.status is RunStatus.RUNNING else ""
        what = f"{output.many(number, 'task')} canceled, or asked to stop" if number else "nothing was left to cancel"
        output.put(output.safe(f"run {info.id} is {info.status.value}{asked}: {what}"))
