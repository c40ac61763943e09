"""`holdfast datasets …`: what completed tasks have written, version by version."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click

from holdfast.app import Holdfast
from holdfast.cli import output
from holdfast.cli.listing import put_listing, say_more
from holdfast.cli.options import Group, Session
from holdfast.cli.output import Cell
from holdfast.datasets import Dataset
from holdfast.model.output import DatasetInfo, DatasetVersion


@click.group(
    cls=Group,
    examples=[
        "holdfast datasets list",
        "holdfast datasets show NAME",
        "holdfast datasets show NAME --version 3 --json",
        "holdfast datasets show NAME --versions",
    ],
)
def datasets() -> None:
    """List datasets, and show the rows of a version."""


@datasets.command("list", examples=["holdfast datasets list", "holdfast datasets list --limit 20 --json"])
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="How many at most.")
@click.option("--after", metavar="NAME", help="Go on after the last dataset of the page before.")
@click.pass_obj
def list_datasets(session: Session, limit: int, after: str | None) -> None:
    """List datasets by name, each with its latest version."""
    found, now = session.read(lambda app: app.datasets.alist(limit, after))
    headers = ("DATASET", "LATEST", "ROWS", "WRITTEN", "KEPT")
    nothing = "no datasets yet: a task writes one with ctx.output(…)"
    put_listing(session, found, headers, lambda info: _row(info, now), nothing=nothing)
    say_more(session, found, limit, lambda info: f"--after {info.latest.dataset}")


def _row(info: DatasetInfo, now: datetime) -> list[Cell]:
    latest = info.latest
    written = output.when(latest.created_at, now)
    return [latest.dataset, str(latest.version), f"{latest.rows:,}", written, output.many(info.versions, "version")]


@datasets.command(
    examples=[
        "holdfast datasets show NAME",
        "holdfast datasets show NAME --version 3 --limit 20",
        "holdfast datasets show NAME --json",
    ]
)
@click.argument("name")
@click.option("--version", type=click.IntRange(min=1), help="Which one; without it, the latest.")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="How many at most.")
@click.option("--after", metavar="KEY", help="Go on after the last row of the page before.")
@click.option("--versions", is_flag=True, help="List the versions that are kept, newest first, in place of rows.")
@click.pass_obj
def show(session: Session, name: str, version: int | None, limit: int, after: str | None, versions: bool) -> None:
    """Show the rows of a dataset by key. With --json, one object with `key` and `value` per line."""
    if versions:
        _show_versions(session, name, limit, version)
        return

    async def ask(app: Holdfast) -> tuple[Dataset, list[tuple[str, Any]]]:
        found = await app.datasets.aget(name, version)
        return found, await found.arows(after=after, limit=limit)

    (found, rows), now = session.read(ask)
    if session.json:
        for key, value in rows:
            output.put_json({"key": key, "value": value})
        return
    output.put_fields(_fields(found.info, now))
    if rows:
        output.put("")
        output.put_table(("KEY", "VALUE"), ([key, output.compact(value)] for key, value in rows))
    say_more(session, rows, limit, lambda row: f"--version {found.version} --after {row[0]}")


def _fields(info: DatasetVersion, now: datetime) -> list[tuple[str, Cell]]:
    return [
        ("dataset", info.dataset),
        ("uuid", info.dataset_uuid),
        ("version", str(info.version)),
        ("rows", f"{info.rows:,}, of which {info.added:,} came with this version ({info.mode.value})"),
        ("written", f"{output.json_line(info.created_at)[1:-1]}  ({output.when(info.created_at, now)})"),
        ("by task", info.task_id),
    ]


def _show_versions(session: Session, name: str, limit: int, upto: int | None) -> None:
    before, most = None if upto is None else upto + 1, min(limit, 10_000)
    found, now = session.read(lambda app: app.datasets.aversions(name, most, before))
    headers = ("VERSION", "MODE", "ROWS", "ADDED", "WRITTEN", "BY TASK")
    put_listing(session, found, headers, lambda one: _version_row(one, now), nothing="no such versions")
    if found and found[-1].version > 1:
        say_more(session, found, most, lambda one: f"--version {one.version - 1}")


def _version_row(one: DatasetVersion, now: datetime) -> list[Cell]:
    written = output.when(one.created_at, now)
    return [str(one.version), one.mode.value, f"{one.rows:,}", f"{one.added:,}", written, one.task_id]
