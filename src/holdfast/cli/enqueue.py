"""`holdfast enqueue`: submit a task by name, with arguments as JSON or plain text."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from holdfast.app import Holdfast
from holdfast.calls import Options
from holdfast.cli import output
from holdfast.cli.options import Command, Session, did_you_mean, duration
from holdfast.errors import TaskNotRegistered
from holdfast.handle import Handle

_NEGATIVE = re.compile(r"-(\d|\.\d)[\d.eE+-]*")


class _TakesNegatives(Command):
    """`enqueue add -5 3`: a negative number is an argument, not an unknown option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        taking = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        shielded = []
        for before, given in zip(["", *args], args, strict=False):
            negative = _NEGATIVE.fullmatch(given) and before not in taking
            shielded.append(f" {given}" if negative else given)  # JSON does not mind the space
        return super().parse_args(ctx, shielded if "--" not in args else args)


def _value(text: str) -> Any:
    """A JSON value, or else the text itself."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def _keywords(_context: click.Context, _option: click.Parameter, given: tuple[str, ...]) -> dict[str, Any]:
    keywords: dict[str, Any] = {}
    for pair in given:
        key, separator, text = pair.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE; write --kw template=welcome")
        if key in keywords:
            raise click.BadParameter(f"{key!r} is given twice")
        keywords[key] = _value(text)
    return keywords


def _instant(_context: click.Context, _option: click.Parameter, given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        instant = datetime.fromisoformat(given)
    except ValueError:
        raise click.BadParameter(f"{given!r} is no ISO 8601 instant; write 2030-01-31T08:00:00Z") from None
    if instant.tzinfo is None:
        raise click.BadParameter(f"{given!r} has no time zone; add Z for UTC, or an offset such as +02:00")
    return instant


def _meta(_context: click.Context, _option: click.Parameter, given: str | None) -> dict[str, Any] | None:
    if given is None:
        return None
    meta = _value(given)
    if not isinstance(meta, dict):
        raise click.BadParameter(f"{given!r} is not a JSON object")
    return meta


@click.command(
    cls=_TakesNegatives,
    examples=[
        "holdfast enqueue shop.tasks.send 7",
        "holdfast enqueue shop.tasks.send 7 --kw template=welcome --delay 5m --json",
        "holdfast enqueue report '{\"year\": 2031}' --queue slow --idempotency-key report:2031",
    ],
)
@click.argument("name")
@click.argument("arguments", nargs=-1)
@click.option("--kw", "keywords", multiple=True, callback=_keywords, metavar="KEY=VALUE", help="A keyword argument.")
@click.option("--queue", help="The queue to put it in.")
@click.option("--priority", type=int, help="Higher runs first; -32768 to 32767.")
@click.option("--delay", type=duration, help="Not before so long from now: 30, 5m, 2h.")
@click.option("--run-at", callback=_instant, metavar="INSTANT", help="Not before this instant: 2030-01-31T08:00:00Z.")
@click.option("--max-attempts", type=int, help="How many failures make it a dead letter; 0: never.")
@click.option("--timeout", type=duration, help="How long an attempt may take.")
@click.option("--idempotency-key", help="The same key again gives the task that is there already.")
@click.option("--concurrency-key", help="Tenant, customer, …: for limits per key.")
@click.option("--run-id", help="The run that it belongs to.")
@click.option("--meta", callback=_meta, metavar="JSON", help="A JSON object of your own.")
@click.option("--any-name", is_flag=True, help="Also a name that looks like a slip of the app's own.")
@click.pass_obj
def enqueue(
    session: Session,
    /,
    name: str,
    arguments: tuple[str, ...],
    keywords: dict[str, Any],
    any_name: bool,
    **options: Any,
) -> None:
    """Submit a task by name and print its id.

    Each argument is a JSON value, or else a string. Where --app is given, the call is checked against the task's
    signature and its own queue and retry policy are used.
    """
    args = tuple(_value(text) for text in arguments)
    given = _options(options)

    async def act(app: Holdfast) -> Handle[Any]:
        if session.chosen_app_path is not None and not any_name:
            _check_name(app, name)
        return await app.using(**given).aenqueue(name, *args, **keywords)

    handle = session.run(act)
    if session.json:
        output.put_json({"id": handle.id, "created": handle.created})
        return
    output.put(handle.id)
    if not handle.created:
        output.say("this idempotency key has a task already; nothing was changed")


def _options(given: dict[str, Any]) -> Options:
    options = Options()
    for key, value in given.items():
        if value is not None:
            options[key] = value.total_seconds() if isinstance(value, timedelta) else value  # type: ignore[literal-required]
    return options


def _check_name(app: Holdfast, name: str) -> None:
    """A name that nobody here declares may belong to another worker; one that is nearly ours is a slip."""
    known = [definition.name for definition in app.registry]
    if name in known:
        return
    hint = did_you_mean(name, known)
    if hint:
        raise TaskNotRegistered(f"the app declares no task {name!r}{hint}; --any-name submits it all the same")
    output.say(f"note: the app declares no task {name!r}; it waits for a worker that does")
