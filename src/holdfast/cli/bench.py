"""`holdfast bench …`: figures of this machine, each beside the floor of the same run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.bench import measures
from holdfast.cli import output
from holdfast.cli.options import Group, Session
from holdfast.runtime import own_process


@click.group(
    cls=Group,
    examples=[
        "holdfast bench drain --tasks 100000",
        "holdfast bench drain --url memory://bench --json",
        "holdfast bench latency",
    ],
)
def bench() -> None:
    """Measure a store and a worker on this machine.

    Without --url each measure makes a SQLite file of its own and removes it. Nothing is measured on a store that holds
    tasks already.
    """


def _measure(
    name: str, help_text: str, options: dict[str, tuple[Any, str]], run: Callable[..., msgspec.Struct]
) -> None:
    """One command per measure: they differ only in their numbers."""

    def command(session: Session, /, **numbers: Any) -> None:
        own_process.tune()  # as `holdfast worker` does
        with _store(session.url) as place:
            figures = run(place, **numbers)
        if session.json:
            output.put_json(figures)
        else:
            for field, value in msgspec.to_builtins(figures).items():
                click.echo(f"{field:20} {value if value is not None else '-'}")

    decorated: Any = click.pass_obj(command)
    for option, (default, what) in options.items():
        decorated = click.option(f"--{option}", default=default, show_default=True, help=what)(decorated)
    bench.command(name, help=help_text, examples=[f"holdfast bench {name}"])(decorated)


@contextmanager
def _store(url: str | None) -> Iterator[str]:
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        yield f"sqlite:///{Path(folder) / 'bench.db'}"


_measure(
    "drain",
    "No-op tasks per second through one worker, until the store shows them completed.",
    {"tasks": (100_000, "How many."), "concurrency": (100, "Slots of the worker.")},
    measures.drain,
)
_measure(
    "submit",
    "Tasks submitted per second in bulk, signature checks included.",
    {"tasks": (200_000, "How many.")},
    measures.submit,
)
_measure(
    "latency",
    "From an acknowledged submit to the handler's first line, on an idle worker.",
    {"tasks": (500, "How many, one after another.")},
    measures.latency,
)
_measure(
    "memory",
    "The peak memory of a worker process while many tasks are queued.",
    {"queued": (1_000_000, "How many wait."), "worked": (50_000, "How many are worked off.")},
    measures.memory,
)
_measure("idle", "What a worker costs that has nothing to do.", {"seconds": (10.0, "How long.")}, measures.idle)
