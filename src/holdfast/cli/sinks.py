"""`holdfast sinks …`: who is told of changes. What they are told is in outbox.py.

A secret is never an argument: arguments are seen by every process of the machine, and kept by shells.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime

import click

from holdfast import ids
from holdfast.cli import output
from holdfast.cli.acts import confirmed
from holdfast.cli.failures import NOT_FOUND
from holdfast.cli.listing import put_listing
from holdfast.cli.options import Group, Session, did_you_mean
from holdfast.cli.output import Cell, Styled
from holdfast.errors import InvalidTask
from holdfast.model.outbox import Sink
from holdfast.policy.sinks import webhook_sink

ENVIRONMENT = "HOLDFAST_WEBHOOK_SECRET"
SECRET_BYTES = 32
LONGEST_LINE = 10_000


@click.group(
    cls=Group,
    examples=[
        "holdfast sinks list",
        "holdfast sinks webhook https://example.org/hook --new-secret",
        "holdfast sinks delete NAME",
    ],
)
def sinks() -> None:
    """Who is told of changes: webhooks, subscribers, and the transports of wake-ups."""


@sinks.command("list", examples=["holdfast sinks list", "holdfast sinks list --json"])
@click.pass_obj
def list_sinks(session: Session) -> None:
    """List every sink: where it is, what it is told, how much waits for it and since when, how much was given up."""
    found, now = session.read(lambda app: app.sinks.alist())
    headers = ("SINK", "TOLD", "SIGNED", "PENDING", "SINCE", "DEAD", "QUEUES", "URL")
    nothing = "no sinks; declare one with `holdfast sinks webhook`, app.webhook(…), @app.subscribe or --wakeup"
    put_listing(session, found, headers, lambda sink: _row(sink, now), nothing=nothing)


@sinks.command(
    examples=[
        "holdfast sinks webhook https://example.org/hook --new-secret --kinds task.failed,task.completed",
        "holdfast sinks webhook https://example.org/hook --secret-stdin --name hook --queues mail --json < secret.txt",
    ]
)
@click.argument("address", metavar="URL")
@click.option("--kinds", multiple=True, metavar="A,B", help="Only events of these kinds; default all.")
@click.option("--queues", multiple=True, metavar="A,B", help="Only of tasks of these queues; default all.")
@click.option("--name", help="What it is called; default the URL without its query.")
@click.option("--private", is_flag=True, help="It may lead into a private network.")
@click.option("--new-secret", is_flag=True, help="Make a secret, and show it now and never again.")
@click.option("--secret-stdin", is_flag=True, help="Read the secret from the first line of the standard input.")
@click.option("--unsigned", is_flag=True, help="Without a secret: whoever receives cannot know who sent.")
@click.pass_obj
def webhook(
    session: Session,
    address: str,
    kinds: tuple[str, ...],
    queues: tuple[str, ...],
    name: str | None,
    private: bool,
    new_secret: bool,
    secret_stdin: bool,
    unsigned: bool,
) -> None:
    """Tell a webhook of events from now on, or change one that is told. Every worker and dispatcher serves it.

    The secret that signs its calls is that of the environment variable HOLDFAST_WEBHOOK_SECRET, unless you choose one
    of --new-secret, --secret-stdin and --unsigned.
    """
    secret = _secret(new=new_secret, stdin=secret_stdin, unsigned=unsigned)
    sink = webhook_sink(address, secret=secret, kinds=_words(kinds), queues=_words(queues), name=name, private=private)
    session.run(lambda app: app.client.declare_sink(sink))
    shown = {"secret": secret} if new_secret else {}
    if session.json:
        output.put_json({"name": sink.name, "url": sink.url, "signed": secret is not None, **shown})
        return
    for made in shown.values():
        output.put(str(made))
        output.say("the secret is not shown again: give it to who receives, for holdfast.webhooks.verify")
    output.say(output.safe(f"{sink.name} is told of events from now on, {'' if secret else 'not '}signed"))


def _words(given: tuple[str, ...]) -> list[str] | None:
    return [word.strip() for one in given for word in one.split(",") if word.strip()] if given else None


def _secret(*, new: bool, stdin: bool, unsigned: bool) -> str | None:
    if new + stdin + unsigned > 1:
        raise click.UsageError("choose one of --new-secret, --secret-stdin, --unsigned", click.get_current_context())
    if new:
        return ids.token_urlsafe(SECRET_BYTES)
    if unsigned:
        return None
    secret = sys.stdin.readline(LONGEST_LINE).strip() if stdin else os.environ.get(ENVIRONMENT, "")
    if secret:
        return secret
    if stdin:
        raise InvalidTask("the standard input holds no secret in its first line")
    raise click.UsageError(
        f"by which secret are its calls signed? Set {ENVIRONMENT}, or choose --new-secret, --secret-stdin or"
        " --unsigned",
        click.get_current_context(),
    )


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
