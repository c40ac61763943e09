"""What completions write, and what tasks pin (contract section 13). Nothing that was written is ever changed.

Rows belong to the base of their version: the last `replace`, or the first version (docs/adr/0015-outputs.md). An append
costs what it adds. Writers take turns because there is one writer.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from holdfast import ids
from holdfast.clock import from_micros
from holdfast.model.output import DatasetInfo, DatasetVersion, Mode, Output, OutputRow
from holdfast.model.task import NewTask
from holdfast.policy import refusals
from holdfast.stores.sqlite.apart import parents_of
from holdfast.stores.sqlite.rows import pins_of
from holdfast.stores.sqlite.statements import json_param, number_param, statement, text_param
from holdfast.stores.sqlite.tx import Tx

_SEQ = "SELECT seq FROM holdfast_datasets WHERE name = ?"
_MAKE = "INSERT INTO holdfast_datasets (name, uuid, created_at) VALUES (?, ?, ?) RETURNING seq"
_PLACE = """
SELECT d.seq, v.base FROM holdfast_datasets AS d CROSS JOIN holdfast_versions AS v ON v.dataset = d.seq
WHERE d.name = ? AND v.version = ?
"""
_INPUTS = "SELECT seq, inputs, parents IS NOT NULL FROM holdfast_tasks WHERE id = ?"
_versions_decoder = msgspec.json.Decoder(set[tuple[str, int]])


class Latest(NamedTuple):
    """The columns of latest_version.sql."""

    version: int = 0
    base: int = 0
    rows: int = 0


# With a completion


def write(tx: Tx, outputs: Sequence[Output], task_id: str) -> None:
    for output in outputs:
        _write(tx, _made(tx, output.dataset), output, task_id)


def _made(tx: Tx, name: str) -> int:
    """The dataset of this name, which there is from now on."""
    found = tx.conn.execute(_SEQ, (name,)).fetchone()
    row = tx.conn.execute(_MAKE, (name, ids.token(), tx.now)).fetchone() if found is None else found
    return int(row[0])


def _write(tx: Tx, dataset: int, output: Output, task_id: str) -> None:
    found = tx.row("latest_version", dataset=dataset)
    latest = Latest() if found is None else Latest(*found)
    version = latest.version + 1
    anew = output.mode is Mode.REPLACE or not latest.version
    base = version if anew else latest.base
    rows = json_param([(row.key, row.value) for row in output.rows])
    added = tx.run("add_rows", dataset=dataset, base=base, version=version, rows=rows).rowcount
    if latest.version:
        tx.run("supersede", dataset=dataset, version=latest.version)
    tx.run(
        "add_version",
        dataset=dataset,
        version=version,
        base=base,
        mode=output.mode,
        rows=added if anew else latest.rows + added,
        added=added,
        task_id=task_id,
        now=tx.now,
    )


# With a submit


def check_pins(tx: Tx, tasks: Iterable[NewTask]) -> None:
    """A pin to a version that does not exist refuses the submit."""
    wanted = [(pin.dataset, pin.version) for new in tasks for pin in new.inputs if pin.version is not None]
    if not wanted:
        return
    known = _versions_decoder.decode(tx.row("known_versions", pins=json_param(wanted))[0])
    for dataset, version in wanted:
        if (dataset, version) not in known:
            raise refusals.dataset_not_found(dataset, version)


def pin(tx: Tx, tasks: Iterable[NewTask], first: int) -> None:
    """Tasks whose seqs begin at `first`."""
    pins = [(one.dataset, one.version, seq) for seq, new in enumerate(tasks, first) for one in new.inputs]
    if pins:
        tx.run("pin", pins=json_param(pins))


# Reads


def listed(conn: sqlite3.Connection, limit: int, after: str | None) -> list[DatasetInfo]:
    asked = {"limit": limit, "after": text_param(after or "")}
    found = conn.execute(statement("datasets"), asked).fetchall()
    return [
        DatasetInfo(latest=_shown(*latest), versions=versions, created_at=from_micros(created_at))
        for *latest, created_at, versions in found
    ]


def versions(conn: sqlite3.Connection, dataset: str, limit: int, before: int | None) -> list[DatasetVersion]:
    below = number_param(2**62 if before is None else before)
    asked = {"dataset": text_param(dataset), "limit": limit, "before": below}
    return [_shown(*row) for row in conn.execute(statement("dataset_versions"), asked).fetchall()]


def version(conn: sqlite3.Connection, dataset: str, number: int | None) -> DatasetVersion | None:
    """This one, or the latest."""
    found = versions(conn, dataset, 1, None if number is None else number + 1)
    return found[0] if found and number in (None, found[0].version) else None


def rows(conn: sqlite3.Connection, dataset: str, number: int, after: str | None, limit: int) -> list[OutputRow]:
    place = conn.execute(_PLACE, (text_param(dataset), number_param(number))).fetchone()
    if place is None:
        raise refusals.dataset_not_found(dataset, number)
    asked = {
        "dataset": place[0],
        "base": place[1],
        "version": number,
        "after": text_param(after or ""),
        "limit": limit,
    }
    return [OutputRow(key, value) for key, value in conn.execute(statement("dataset_rows"), asked).fetchall()]


def pinned(conn: sqlite3.Connection, task_id: str) -> dict[str, int | None]:
    """What a parent wrote is fixed with the parent's completion, which comes before the promotion."""
    found = conn.execute(_INPUTS, (text_param(task_id),)).fetchone()
    if found is None:
        return {}
    seq, inputs, has_parents = found
    pins = pins_of(inputs)
    open_pins = any(one.version is None for one in pins)
    parents = json_param(parents_of(conn, seq) if has_parents and open_pins else [])
    return {
        one.dataset: _written_by(conn, one.dataset, parents) if one.version is None else one.version for one in pins
    }


def _written_by(conn: sqlite3.Connection, dataset: str, tasks: str) -> int | None:
    found: int | None = conn.execute(statement("written_by"), {"dataset": dataset, "tasks": tasks}).fetchone()[0]
    return found


def _shown(
    dataset: str, uuid: str, number: int, mode: str, held: int, added: int, task_id: str, created_at: int
) -> DatasetVersion:
    return DatasetVersion(
        dataset=dataset,
        dataset_uuid=uuid,
        version=number,
        mode=Mode(mode),
        rows=held,
        added=added,
        task_id=task_id,
        created_at=from_micros(created_at),
    )
