"""`holdfast dlq …`: the dead letters, which are the tasks in state failed."""

from __future__ import annotations

from datetime import timedelta

import click

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.acts import Tally, act_on_each, confirmed
from holdfast.cli.options import Group, Session, duration
from holdfast.cli.tasks import put_task, put_tasks
from holdfast.errors import TaskNotFound
from holdfast.model.task import Task, TaskStatus


@click.group(cls=Group, examples=["holdfast dlq list", "holdfast dlq requeue ID", "holdfast dlq purge --older-than 7d"])
def dlq() -> None:
    """The dead letters: tasks that failed for good, kept until somebody decides."""


@dlq.command("list", examples=["holdfast dlq list", "holdfast dlq list --queue mail --json"])
@click.option("--queue", help="Of this queue.")
@click.option("--name", help="Of this name.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many at most.")
@click.option("--after", metavar="ID", help="Go on after the last task of the page before.")
@click.pass_obj
def list_letters(session: Session, queue: str | None, name: str | None, limit: int, after: str | None) -> None:
    """List dead letters, newest first, with their errors."""
    page, now = session.read(lambda app: app.dlq.alist(queue, name, limit, after))
    put_tasks(session, page, limit, now, nothing="no dead letters")


@dlq.command(examples=["holdfast dlq show ID"])
@click.argument("task_id", metavar="ID")
@click.pass_obj
def show(session: Session, task_id: str) -> None:
    """Show a dead letter: its record, its error, where it was raised."""

    async def ask(app: Holdfast) -> Task:
        task = await app.tasks.aget(task_id)
        if task.status is not TaskStatus.FAILED:
            raise TaskNotFound(f"task {task_id} is {task.status.value}, not a dead letter; see `holdfast tasks show`")
        return task

    put_task(session, *session.read(ask))


@dlq.command(examples=["holdfast dlq requeue ID", "holdfast dlq requeue --all --queue mail"])
@click.argument("task_ids", metavar="[ID…]", nargs=-1)
@click.option("--all", "every", is_flag=True, help="Every dead letter that matches.")
@click.option("--queue", help="With --all: of this queue.")
@click.option("--name", help="With --all: of this name.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def requeue(
    session: Session, task_ids: tuple[str, ...], every: bool, queue: str | None, name: str | None, yes: bool
) -> int:
    """Queue dead letters again, each with a fresh budget: some by id, or all that match."""
    if every == bool(task_ids):
        raise click.UsageError("name the tasks, or say --all")
    if not every:
        if queue is not None or name is not None:
            raise click.UsageError("--queue and --name go with --all")
        return act_on_each(session, task_ids, lambda app, task_id: app.dlq.arequeue(task_id), "queued")
    most = _count(session, queue)
    if most and not confirmed(f"Queue {_up_to(most, exact=name is None)} again?", yes=yes):
        return 1
    tally = Tally("queued again", most)
    number = session.run(lambda app: app.dlq.arequeue_all(queue, name, progress=tally)) if most else 0
    tally.close()
    _put_number(session, "requeued", number, f"{output.many(number, 'dead letter')} queued again")
    return 0


@dlq.command(examples=["holdfast dlq purge --older-than 7d", "holdfast dlq purge --queue mail --yes"])
@click.option("--older-than", type=duration, help="Only what ended so long ago: 12h, 7d.")
@click.option("--queue", help="Of this queue.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def purge(session: Session, older_than: timedelta | None, queue: str | None, yes: bool) -> int:
    """Delete dead letters for good, with their events and idempotency keys."""
    most = _count(session, queue)
    question = f"Delete {_up_to(most, exact=older_than is None)} for good?"
    if most and not confirmed(question, yes=yes):
        return 1
    tally = Tally("deleted", most)
    number = session.run(lambda app: app.dlq.apurge(older_than, queue, progress=tally)) if most else 0
    tally.close()
    _put_number(session, "purged", number, f"{output.many(number, 'dead letter')} deleted")
    return 0


def _count(session: Session, queue: str | None) -> int:
    counts = session.run(lambda app: app.tasks.acount(queue))
    return counts[TaskStatus.FAILED.value]


def _up_to(number: int, *, exact: bool) -> str:
    return output.many(number, "dead letter") if exact else f"those of {output.many(number, 'dead letter')} that match"


def _put_number(session: Session, key: str, number: int, words: str) -> None:
    if session.json:
        output.put_json({key: number})
    else:
        output.put(words)
