"""`holdfast outbox …`: what sinks are yet to be told, and what was given up."""

from __future__ import annotations

from datetime import datetime

import click

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.acts import confirmed
from holdfast.cli.failures import NOT_FOUND
from holdfast.cli.listing import put_listing, say_more
from holdfast.cli.options import Group, Session
from holdfast.cli.output import Cell, Styled
from holdfast.model.outbox import OutboxRow, OutboxState


@click.group(
    cls=Group,
    examples=["holdfast outbox list --state dead", "holdfast outbox requeue 7", "holdfast outbox purge --all"],
)
def outbox() -> None:
    """What sinks are yet to be told. Rows that were given up are dead, and wait for a person."""


@outbox.command("list", examples=["holdfast outbox list", "holdfast outbox list --state dead --sink NAME --json"])
@click.option("--sink", metavar="NAME", help="Of this sink.")
@click.option("--state", type=click.Choice([state.value for state in OutboxState]), help="Of this state.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many at most.")
@click.option("--after", type=click.IntRange(0), default=0, metavar="ID", help="Go on after this row.")
@click.pass_obj
def list_rows(session: Session, sink: str | None, state: str | None, limit: int, after: int) -> None:
    """List rows, oldest first: what is told to whom, how often that was tried, and what went wrong last.

    A wake-up that was told stays, and is repeated when it is due, as long as nobody has claimed its task.
    """
    page, now = session.read(lambda app: app.outbox.alist(sink, state, limit, after))
    headers = ("ID", "STATE", "SINK", "TASK", "WHAT", "DUE", "TRIES", "ERROR")
    put_listing(session, page, headers, lambda row: _row(row, now), nothing="nothing in the outbox")
    say_more(session, page, limit, lambda row: f"--after {row.id}")


@outbox.command(examples=["holdfast outbox requeue 7 8", "holdfast outbox requeue --all --sink NAME"])
@click.argument("row_ids", metavar="[ID…]", nargs=-1, type=click.IntRange(1))
@click.option("--all", "every", is_flag=True, help="Every dead row.")
@click.option("--sink", metavar="NAME", help="With --all: of this sink.")
@click.pass_obj
def requeue(session: Session, row_ids: tuple[int, ...], every: bool, sink: str | None) -> int:
    """Try dead rows again, each with all its tries."""
    _check_choice(row_ids, every, sink)

    async def act(app: Holdfast) -> int:
        if every:
            return await app.outbox.arequeue_all(sink)
        return sum([await app.outbox.arequeue(row_id) for row_id in row_ids])

    return _put_number(session, "requeued", session.run(act), wanted=len(row_ids))


@outbox.command(examples=["holdfast outbox purge 7 8", "holdfast outbox purge --all --sink NAME --yes"])
@click.argument("row_ids", metavar="[ID…]", nargs=-1, type=click.IntRange(1))
@click.option("--all", "every", is_flag=True, help="Every dead row.")
@click.option("--sink", metavar="NAME", help="With --all: of this sink.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def purge(session: Session, row_ids: tuple[int, ...], every: bool, sink: str | None, yes: bool) -> int:
    """Forget dead rows: their sinks will never be told."""
    _check_choice(row_ids, every, sink)
    whose = "all dead rows" if sink is None else f"all dead rows of {sink!r}"
    if not confirmed(f"Forget {whose if every else output.many(len(row_ids), 'dead row')}?", yes=yes):
        return 1

    async def act(app: Holdfast) -> int:
        if every:
            return await app.outbox.apurge(sink)
        return sum([await app.outbox.adelete(row_id) for row_id in row_ids])

    return _put_number(session, "purged", session.run(act), wanted=len(row_ids))


def _check_choice(row_ids: tuple[int, ...], every: bool, sink: str | None) -> None:
    if every == bool(row_ids):
        raise click.UsageError("name the rows, or say --all", click.get_current_context())
    if sink is not None and not every:
        raise click.UsageError("--sink goes with --all", click.get_current_context())


def _put_number(session: Session, word: str, number: int, *, wanted: int) -> int:
    if session.json:
        output.put_json({word: number})
    else:
        output.put(f"{output.many(number, 'row')} {word}")
    if number < wanted:
        output.say(f"{output.many(wanted - number, 'id')} named no dead row")
        return NOT_FOUND
    return 0


def _row(row: OutboxRow, now: datetime) -> list[Cell]:
    return [
        str(row.id),
        Styled("told" if row.repeats else row.state.value, "failed" if row.state is OutboxState.DEAD else ""),
        row.sink,
        row.task_id,
        "due" if row.event is None else row.event.kind,
        "-" if row.state is OutboxState.DEAD else output.when(row.due_at, now),
        str(row.tries),
        row.last_error or "",
    ]
