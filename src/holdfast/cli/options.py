"""What every command shares: the options accepted before and after it, the app they lead to, and how help looks."""

from __future__ import annotations

import asyncio
import difflib
import inspect
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import click

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.apps import load_app
from holdfast.settings import default_url

T = TypeVar("T")


class Session:
    """The choices of one invocation: a flag, else the environment, else the default."""

    def __init__(self) -> None:
        self.url: str | None = None
        self.app_path: str | None = None
        self.json = False
        self.debug = False
        self._app: Holdfast | None = None

    @property
    def chosen_app_path(self) -> str | None:
        return self.app_path or os.environ.get("HOLDFAST_APP") or None

    @property
    def app(self) -> Holdfast:
        """The app named by --app or HOLDFAST_APP, else a bare one; --url has the last word on the store."""
        if self._app is None:
            self._app = self._made()
        return self._app

    def _made(self) -> Holdfast:
        path = self.chosen_app_path
        if path is not None:
            app = load_app(path)
            if self.url is not None:
                app.point_at(self.url)
            return app
        if self.url is not None:
            return Holdfast(self.url)
        url, source = default_url()
        if not os.environ.get("HOLDFAST_URL") and not self.json:
            output.say(f"using {url} ({source}); choose a store with --url or HOLDFAST_URL")
        return Holdfast(url)

    def run(self, act: Callable[[Holdfast], Awaitable[T]]) -> T:
        """Do something with the app on an event loop of its own, and close what it opened."""
        app = self.app

        async def main() -> T:
            async with app:
                return await act(app)

        return asyncio.run(main())

    def read(self, ask: Callable[[Holdfast], Awaitable[T]]) -> tuple[T, datetime]:
        """What is asked for, and what time it is for the store."""

        async def both(app: Holdfast) -> tuple[T, datetime]:
            return await ask(app), await app.client.store.now()

        return self.run(both)


# The options accepted everywhere

_EVERYWHERE = ("url", "app_path", "json", "debug", "no_color")


def _keep(context: click.Context, option: click.Parameter, value: Any) -> None:
    session = context.ensure_object(Session)
    if value and option.name == "no_color":
        output.refuse_color()
    elif value and option.name:
        setattr(session, option.name, value)


def everywhere() -> list[click.Parameter]:
    kept: dict[str, Any] = {"expose_value": False, "callback": _keep, "is_eager": True}
    return [
        click.Option(["--url"], metavar="URL", help="The store: sqlite:///tasks.db, … [HOLDFAST_URL]", **kept),
        click.Option(
            ["--app", "app_path"],
            metavar="MODULE:ATTRIBUTE",
            help="The app that declares the tasks. [HOLDFAST_APP]",
            **kept,
        ),
        click.Option(["--json"], is_flag=True, help="Print JSON, one object per line.", **kept),
        click.Option(["--no-color"], is_flag=True, help="Never colour. [NO_COLOR]", **kept),
        click.Option(["--debug"], is_flag=True, help="Show the traceback of an error.", **kept),
    ]


class _Helpful(click.Command):
    """Help that starts with what the command does and shows it in use."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.examples = examples
        self.params.extend(everywhere())

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write_text(inspect.cleandoc(self.help or ""))
        formatter.write_paragraph()
        self.format_usage(ctx, formatter)
        if self.examples:
            with formatter.section("Examples"):
                for example in self.examples:
                    formatter.write(f"{'':>{formatter.current_indent}}{example}\n")
        self.format_options(ctx, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        own: list[tuple[str, str]] = []
        shared: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                (shared if parameter.name in _EVERYWHERE else own).append(record)
        for title, records in (("Options", own), ("Before or after any command", shared)):
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Command(_Helpful):
    pass


class Group(_Helpful, click.Group):
    command_class = Command

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        super().format_options(ctx, formatter)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-"):
            names = self.list_commands(ctx)
            raise click.UsageError(f"there is no command {args[0]!r}{did_you_mean(args[0], names)}", ctx)
        return super().resolve_command(ctx, args)


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """` (did you mean 'mail'?)`, or nothing."""
    close = difflib.get_close_matches(given, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


# Kinds of values

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|[smhdw]?)")


def duration(text: str) -> timedelta:
    """`30`, `1.5`, `500ms`, `5m`, `2h`, `7d`: seconds unless a unit is given."""
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r} is no length of time; write 30, 500ms, 5m, 2h or 7d")
    try:
        return timedelta(seconds=float(found[1]) * _UNITS[found[2] or "s"])
    except OverflowError:
        raise click.BadParameter(f"{text!r} is too long") from None
