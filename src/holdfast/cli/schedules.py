"""`holdfast schedules …`: what is submitted again and again, and when next."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.acts import confirmed
from holdfast.cli.listing import put_listing
from holdfast.cli.options import Group, Session, did_you_mean
from holdfast.cli.output import Cell, Styled
from holdfast.errors import ScheduleNotFound
from holdfast.model.schedule import Schedule, Timing
from holdfast.policy.firing import in_zone, next_firing

NEXT_SHOWN = 5
OVERDUE = timedelta(minutes=1)


@click.group(
    cls=Group,
    examples=[
        "holdfast schedules list",
        "holdfast schedules show NAME",
        "holdfast schedules run NAME",
        "holdfast schedules pause NAME",
    ],
)
def schedules() -> None:
    """List schedules, run one now, pause and resume them."""


@schedules.command("list", examples=["holdfast schedules list", "holdfast schedules list --json"])
@click.pass_obj
def list_schedules(session: Session) -> None:
    """List every schedule: when it fires next, in its own time zone and in UTC, and when code last declared it.

    One that is overdue is fired by nobody: no worker runs, or none whose code has it.
    """
    found, now = session.read(lambda app: app.schedules.alist())
    put_listing(
        session,
        found,
        ("SCHEDULE", "STATE", "NEXT", "THERE", "UTC", "DECLARED", "WHEN"),
        lambda schedule: _row(schedule, now),
        nothing="no schedules; declare one with @app.schedule, and start a worker",
        record=lambda schedule: _record(schedule, now),
    )


@schedules.command(examples=["holdfast schedules show NAME", "holdfast schedules show NAME --json"])
@click.argument("name")
@click.pass_obj
def show(session: Session, name: str) -> None:
    """Show a schedule: what it submits, and its next firings in local time and in UTC."""
    schedule, now = session.read(lambda app: _known(app, name))
    if session.json:
        output.put_json(_record(schedule, now))
    else:
        output.put_fields(_fields(schedule, now))


@schedules.command(examples=["holdfast schedules run NAME", "holdfast schedules run NAME --json"])
@click.argument("name")
@click.pass_obj
def run(session: Session, name: str) -> None:
    """Submit a schedule's task now, besides the plan. Prints the task's id."""

    async def submit(app: Holdfast) -> str:
        await _known(app, name)
        return (await app.schedules.arun(name)).id

    task_id = session.run(submit)
    if session.json:
        output.put_json({"id": task_id, "created": True})
    else:
        output.put(task_id)


@schedules.command(examples=["holdfast schedules pause NAME"])
@click.argument("name")
@click.pass_obj
def pause(session: Session, name: str) -> None:
    """Stop a schedule from firing, on all workers; what it has submitted goes on."""
    _switch(session, name, lambda app: app.schedules.apause(name))


@schedules.command(examples=["holdfast schedules resume NAME"])
@click.argument("name")
@click.pass_obj
def resume(session: Session, name: str) -> None:
    """Let a paused schedule fire again, from now on; what it would have fired meanwhile is not made up for."""
    _switch(session, name, lambda app: app.schedules.aresume(name))


@schedules.command(examples=["holdfast schedules delete NAME", "holdfast schedules delete NAME --yes"])
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(session: Session, name: str, yes: bool) -> int:
    """Forget a schedule; its tasks stay. One that code declares comes back with the next worker: pause that instead."""
    schedule = session.run(lambda app: _known(app, name))
    note = (
        "" if schedule.declared_at is None else " It is declared in code: the next worker that starts brings it back."
    )
    if not confirmed(f"Delete schedule {name!r}?{note}", yes=yes):
        return 1
    session.run(lambda app: app.schedules.adelete(name))
    if session.json:
        output.put_json({"name": name, "deleted": True})
    else:
        output.put(output.safe(f"schedule {name} deleted"))
    return 0


def _switch(session: Session, name: str, act: Callable[[Holdfast], Awaitable[None]]) -> None:
    async def switched(app: Holdfast) -> Schedule:
        await _known(app, name)
        await act(app)
        return await app.schedules.aget(name)

    schedule, now = session.read(switched)
    if session.json:
        output.put_json(_record(schedule, now))
    elif schedule.paused:
        output.put(output.safe(f"schedule {name} is paused"))
    else:
        output.put(output.safe(f"schedule {name} is on; next {_local(_next(schedule, now), schedule.timing)}"))


async def _known(app: Holdfast, name: str) -> Schedule:
    known = {schedule.name: schedule for schedule in await app.schedules.alist()}
    if name not in known:
        raise ScheduleNotFound(f"there is no schedule {name!r}{did_you_mean(name, known)}")
    return known[name]


# What is shown


def _next(schedule: Schedule, now: datetime) -> datetime | None:
    """The next firing to come; None also where this machine cannot tell, such as for a zone that it does not know."""
    if schedule.paused:
        return None
    try:
        return next_firing(schedule.timing, max(now, schedule.last_fired_at))
    except (LookupError, ValueError, OSError):
        return None


def overdue_since(schedule: Schedule, now: datetime) -> datetime | None:
    """The firing that nobody has dealt with, where that is long enough ago to say that nobody fires the schedule."""
    following = None if schedule.paused else next_firing(schedule.timing, schedule.last_fired_at)
    return None if following is None or now - following < OVERDUE else following


def _state(schedule: Schedule, now: datetime) -> Styled:
    if schedule.paused:
        return Styled("paused", "paused")
    try:
        overdue = overdue_since(schedule, now) is not None
    except (LookupError, ValueError, OSError):
        return Styled("unreadable", "warn")
    return Styled("overdue", "warn") if overdue else Styled("on", "ok")


def _record(schedule: Schedule, now: datetime) -> dict[str, Any]:
    """The record's own fields, with the payload and meta as JSON, and the next firing."""
    record: dict[str, Any] = msgspec.to_builtins(schedule)
    for field in ("payload", "meta"):
        text = record["task"][field]
        record["task"][field] = None if text is None else msgspec.json.decode(text)
    return record | {"next_at": _next(schedule, now)}


def _row(schedule: Schedule, now: datetime) -> list[Cell]:
    following = _next(schedule, now)
    return [
        schedule.name,
        _state(schedule, now),
        output.when(following, now),
        _local(following, schedule.timing),
        _utc(following),
        "by hand" if schedule.declared_at is None else output.when(schedule.declared_at, now),
        _in_words(schedule.timing),
    ]


def _fields(schedule: Schedule, now: datetime) -> list[tuple[str, Cell]]:
    timing, task = schedule.timing, schedule.task
    declared = "by hand, at run time" if schedule.declared_at is None else output.when(schedule.declared_at, now)
    return [
        ("schedule", schedule.name),
        ("state", _state(schedule, now)),
        ("when", _in_words(timing)),
        ("missed", f"{timing.missed}, {timing.missed_most} at most" if timing.missed == "all" else timing.missed),
        ("jitter", output.span(timing.jitter) if timing.jitter else "none"),
        ("task", task.name),
        ("queue", task.queue),
        ("payload", output.compact(msgspec.json.decode(task.payload))),
        ("created", output.when(schedule.created_at, now)),
        ("declared", declared),
        ("dealt with", f"{_local(schedule.last_fired_at, timing)}  {_utc(schedule.last_fired_at)}"),
        ("next", "\n".join(_coming(schedule, now)) or "-"),
    ]


def _coming(schedule: Schedule, now: datetime) -> list[str]:
    lines: list[str] = []
    following = _next(schedule, now)
    while following is not None and len(lines) < NEXT_SHOWN:
        lines.append(f"{_local(following, schedule.timing)}  {_utc(following)}  {output.when(following, now)}")
        following = _next(schedule, following)
    return lines


def _in_words(timing: Timing) -> str:
    if timing.every is not None:
        return f"every {output.span(timing.every)}"
    return f"{timing.cron}  {timing.timezone}"


def _local(instant: datetime | None, timing: Timing) -> str:
    """In the schedule's own zone, with its name: what the clocks there show."""
    if instant is None:
        return "-"
    try:
        return in_zone(instant, timing).strftime("%a %Y-%m-%d %H:%M:%S %Z")
    except (LookupError, ValueError, OSError):
        return "-"


def _utc(instant: datetime | None) -> str:
    return "-" if instant is None else instant.strftime("%Y-%m-%dT%H:%M:%SZ")
