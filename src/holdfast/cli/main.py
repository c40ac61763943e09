"""The root command and the entry point. What an error becomes is in failures.py."""

from __future__ import annotations

import io
import sys
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import click

from holdfast.cli.failures import told
from holdfast.cli.options import Group
from holdfast.version import __version__

# Commands are imported when they are asked for, so that `holdfast --help` is quick.


def _demo() -> click.Command:
    from holdfast.cli.demo import demo

    return demo


def _worker() -> click.Command:
    from holdfast.cli.worker import worker

    return worker


def _serve() -> click.Command:
    from holdfast.cli.serve import serve

    return serve


def _enqueue() -> click.Command:
    from holdfast.cli.enqueue import enqueue

    return enqueue


def _tasks() -> click.Command:
    from holdfast.cli.tasks import tasks

    return tasks


def _dlq() -> click.Command:
    from holdfast.cli.dlq import dlq

    return dlq


def _queues() -> click.Command:
    from holdfast.cli.queues import queues

    return queues


def _runs() -> click.Command:
    from holdfast.cli.runs import runs

    return runs


def _schedules() -> click.Command:
    from holdfast.cli.schedules import schedules

    return schedules


def _datasets() -> click.Command:
    from holdfast.cli.datasets import datasets

    return datasets


def _sinks() -> click.Command:
    from holdfast.cli.sinks import sinks

    return sinks


def _outbox() -> click.Command:
    from holdfast.cli.outbox import outbox

    return outbox


def _workers() -> click.Command:
    from holdfast.cli.workers import workers

    return workers


def _token() -> click.Command:
    from holdfast.cli.tokens import token

    return token


def _migrate() -> click.Command:
    from holdfast.cli.store import migrate

    return migrate


def _doctor() -> click.Command:
    from holdfast.cli.store import doctor

    return doctor


def _bench() -> click.Command:
    from holdfast.cli.bench import bench

    return bench


SECTIONS: dict[str, dict[str, tuple[Callable[[], click.Command], str]]] = {
    "Start": {
        "demo": (_demo, "See it work once, on a fresh SQLite file."),
        "worker": (_worker, "Run the tasks of an app."),
        "serve": (_serve, "Answer HTTP: workers without a database."),
        "enqueue": (_enqueue, "Submit a task by name."),
    },
    "Look and act": {
        "tasks": (_tasks, "List, explain, watch, cancel, retry tasks."),
        "dlq": (_dlq, "The dead letters: list, requeue, purge."),
        "queues": (_queues, "List, pause, resume and limit queues."),
        "runs": (_runs, "Workflows: list, draw and cancel runs."),
        "schedules": (_schedules, "List, run, pause and resume schedules."),
        "datasets": (_datasets, "What tasks have written: list datasets, show rows."),
        "sinks": (_sinks, "Who is told: webhooks, wake-ups, subscribers."),
        "outbox": (_outbox, "What they are yet to be told, and what was given up."),
        "workers": (_workers, "Who is working, and on what."),
    },
    "Store": {
        "migrate": (_migrate, "Bring the store's schema up to date."),
        "token": (_token, "Who may call the dispatcher."),
        "doctor": (_doctor, "Check the store and what works on it."),
        "bench": (_bench, "Measure the store on this machine."),
    },
}


class Root(Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for section in SECTIONS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        for section in SECTIONS.values():
            if cmd_name in section:
                return section[cmd_name][0]()
        return None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, text) for name, (_, text) in commands.items()])


@click.group(
    cls=Root,
    context_settings={"help_option_names": ["-h", "--help"]},
    examples=[
        "holdfast demo",
        "holdfast --app tasks:app worker",
        "holdfast --url sqlite:///tasks.db tasks list --status failed",
    ],
)
@click.version_option(__version__, prog_name="holdfast")
def root() -> None:
    """Holdfast, a durable task queue: run workers, submit tasks, see why one is not running."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The entry point; the exit code is returned."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        answer: Any = root.main(given, prog_name="holdfast", standalone_mode=False)
    except Exception as error:
        if "--debug" in given:
            traceback.print_exception(error)
        return told(error, as_json="--json" in given)
    return answer if isinstance(answer, int) else 0
