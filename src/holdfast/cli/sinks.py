"""`holdfast sinks …`: who is told of changes. What they are told is in outbox.py."""

from __future__ import annotations

from datetime import datetime

import click

from holdfast.cli import output
from holdfast.cli.acts import confirmed
from holdfast.cli.failures import NOT_FOUND
from holdfast.cli.listing import put_listing
from holdfast.cli.options import Group, Session, did_you_mean
from holdfast.cli.output import Cell, Styled
from holdfast.model.outbox import Sink


@click.group(cls=Group, examples=["holdfast sinks list", "holdfast sinks delete NAME"])
def sinks() -> None:
    """Who is told of changes: webhooks, subscribers, and the transports of wake-ups."""


@sinks.command("list", examples=["holdfast sinks list", "holdfast sinks list --json"])
@click.pass_obj
def list_sinks(session: Session) -> None:
    """List every sink: where it is, what it is told, how much waits for it and since when, how much was given up."""
    found, now = session.read(lambda app: app.sinks.alist())
    headers = ("SINK", "TOLD", "SIGNED", "PENDING", "SINCE", "DEAD", "QUEUES", "URL")
    nothing = "no sinks; declare one with app.webhook(…), @app.subscribe or --wakeup"
    put_listing(session, found, headers, lambda sink: _row(sink, now), nothing=nothing)


@sinks.command(examples=["holdfast sinks delete NAME", "holdfast sinks delete NAME --yes"])
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(session: Session, name: str, yes: bool) -> int:
    """Forget a sink, with all that waits for it. One that code declares comes back with the next process."""
    known = {sink.name: sink for sink in session.run(lambda app: app.sinks.alist())}
    if name not in known:
        return _unknown(name, known)
    waits = output.many(known[name].pending + known[name].dead, "row")
    if not confirmed(f"Delete sink {name!r} and {waits} of its outbox?", yes=yes):
        return 1
    if not session.run(lambda app: app.sinks.adelete(name)):
        return _unknown(name, ())
    if session.json:
        output.put_json({"name": name, "deleted": True})
    else:
        output.put(output.safe(f"{name} deleted"))
    return 0


def _unknown(name: str, known: dict[str, Sink] | tuple[()]) -> int:
    output.say(f"error: there is no sink {name!r}{did_you_mean(name, known)}")
    return NOT_FOUND


def _row(sink: Sink, now: datetime) -> list[Cell]:
    told = "due tasks" if sink.effect == "enqueue_task" else ", ".join(sink.kinds or ["all events"])
    return [
        sink.name,
        told,
        "yes" if sink.signed else "no",
        f"{sink.pending:,}",
        output.when(sink.oldest_at, now),
        Styled(f"{sink.dead:,}", "failed" if sink.dead else ""),
        "all" if sink.queues is None else ", ".join(sink.queues),
        sink.url,
    ]
