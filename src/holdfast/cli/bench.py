"""`holdfast bench …`: figures of this machine, each beside the floor of the same run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast.bench import chord, drain, footprint, latency, limits, producers, rescue, snapshot, submit
from holdfast.cli import output
from holdfast.cli.options import Group, Session
from holdfast.runtime import own_process


@click.group(
    cls=Group,
    examples=[
        "holdfast bench drain --tasks 100000",
        "holdfast bench drain --url postgresql://localhost/bench --processes 2 --json",
        "holdfast bench latency",
    ],
)
def bench() -> None:
    """Measure a store and its workers on this machine.

    Without --url each measure makes a SQLite file of its own and removes it. Nothing is measured on a store that holds
    tasks already. Workers run as processes of their own, but for a store in memory.
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
                click.echo(f"{field:22} {value if value is not None else '-'}")

    decorated: Any = click.pass_obj(command)
    for option, (default, what) in options.items():
        kind = click.IntRange(min=1) if isinstance(default, int) else click.FloatRange(min=0.1)
        decorated = click.option(f"--{option}", type=kind, default=default, show_default=True, help=what)(decorated)
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
    "No-op tasks per second, from the first claim until the store shows them completed.",
    {
        "tasks": (200_000, "How many."),
        "processes": (1, "Worker processes."),
        "concurrency": (100, "Slots of each worker."),
    },
    drain.drain,
)
_measure(
    "submit",
    "Tasks submitted per second, in bulk and one by one, signature checks included.",
    {"tasks": (200_000, "How many in bulk."), "singles": (5_000, "How many one by one.")},
    submit.submit,
)
_measure(
    "latency",
    "From a submit to the handler's first line, on an idle worker of another process.",
    {"tasks": (500, "How many, one after another.")},
    latency.latency,
)
_measure(
    "producers",
    "Commits per second of concurrent producers, with wake-ups and without (PostgreSQL).",
    {"producers": (16, "How many."), "seconds": (10.0, "How long, each way.")},
    producers.producers,
)
_measure(
    "snapshot",
    "The rate of a worker while another session holds a snapshot open (PostgreSQL).",
    {
        "seconds": (60.0, "How long it is held."),
        "queued": (200_000, "At least so many are queued all the time."),
        "processes": (1, "Worker processes."),
    },
    snapshot.snapshot,
)
_measure(
    "rescue",
    "Seconds until the work of a worker killed with -9 runs again.",
    {"lease-seconds": (60.0, "How long its leases last.")},
    rescue.rescue,
)
_measure(
    "chord",
    "Members per second of one large chord, until its finalizer has all of their results.",
    {"members": (100_000, "How many."), "processes": (1, "Worker processes.")},
    chord.chord,
)
_measure(
    "limits",
    "No-op tasks per second of a queue with max_running, beside one without limits in the same run.",
    {
        "tasks": (100_000, "How many, of each queue."),
        "max-running": (1000, "How many may run at once."),
        "processes": (1, "Worker processes."),
    },
    limits.limited_drain,
)
_measure(
    "hand-over",
    "From the end of a task to the claim of the next, with max_running=1.",
    {"tasks": (500, "How many, one after another."), "processes": (2, "Worker processes.")},
    limits.hand_over,
)
_measure(
    "fairness",
    "How far every key has come, where their backlogs differ and each may run two tasks at once.",
    {"keys": (50, "How many."), "largest": (5_000, "The largest backlog; the smallest is ten.")},
    limits.fairness,
)
_measure(
    "memory",
    "The peak memory of a worker process while many tasks are queued.",
    {"queued": (1_000_000, "How many wait."), "worked": (50_000, "How many are worked off.")},
    footprint.memory,
)
_measure("idle", "What a worker costs that has nothing to do.", {"seconds": (10.0, "How long.")}, footprint.idle)
