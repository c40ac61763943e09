"""What completions write, and who reads it (contract section 13, docs/adr/0015-outputs.md).

Versions are written by functions of the database (migrations/0007_outputs.sql), which joined completions call too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.model.output import DatasetInfo, DatasetVersion, Mode, Output, OutputRow
from holdfast.policy import refusals
from holdfast.stores.postgres import pins
from holdfast.stores.postgres.pins import HIGHEST
from holdfast.stores.postgres.pool import Session
from holdfast.stores.postgres.statements import is_text, is_uuid
from holdfast.stores.postgres.tx import Tx

SWEPT = 10_000
"""So many rows are deleted in one transaction,"""
SWEEPS = 20
"""and in so many of those with one prune."""


# With a completion


async def lock(tx: Tx, names: Iterable[str]) -> None:
    """Writers of one dataset take turns until the end of the transaction."""
    await tx.session.rows("lock_datasets", sorted(names), tx.now)


async def write(tx: Tx, task_id: str, outputs: Sequence[Output]) -> None:
    """To datasets that are locked."""
    for output in outputs:
        keys, values = [row.key for row in output.rows], [row.value for row in output.rows]
        await tx.session.rows("write_output", output.dataset, output.mode, keys, values, task_id, tx.now)


# Reads


async def listed(session: Session, limit: int, after: str | None) -> list[DatasetInfo]:
    if not is_text(after):
        return []
    return [_info(row) for row in await session.rows("datasets", after, min(limit, HIGHEST))]


async def versions(session: Session, dataset: str, limit: int, before: int | None) -> list[DatasetVersion]:
    if not is_text(dataset):
        return []
    upto = HIGHEST if before is None else max(min(before, HIGHEST), 0)
    return [_version(dict(row)) for row in await session.rows("dataset_versions", dataset, upto, min(limit, HIGHEST))]


async def version(session: Session, dataset: str, number: int | None) -> DatasetVersion | None:
    if not is_text(dataset) or not _possible(number):
        return None
    row = await session.row("dataset_version", dataset, number)
    return None if row is None else _version(dict(row))


async def rows(session: Session, dataset: str, number: int, after: str | None, limit: int) -> list[OutputRow]:
    """Keys are never empty: whatever there is comes after an empty one."""
    found = []
    if is_text(dataset) and is_text(after) and _possible(number):
        found = await session.rows("dataset_rows", dataset, number, after or "", min(limit, HIGHEST))
    if not found:
        raise refusals.dataset_not_found(dataset, number)
    return [OutputRow(row["key"], row["value"]) for row in found if row["key"] is not None]


async def pinned(session: Session, task_id: str) -> dict[str, int | None]:
    """What a parent wrote is fixed by its completion, which comes before this task is ready."""
    found = pins.of_text(await session.value("inputs", task_id) if is_uuid(task_id) else None)
    written: dict[str, int] = {}
    if any(pin.version is None for pin in found):
        written = {row["dataset"]: row["version"] for row in await session.rows("written_by_parents", task_id)}
    return {pin.dataset: written.get(pin.dataset) if pin.version is None else pin.version for pin in found}


def _possible(number: int | None) -> bool:
    return number is None or 0 < number <= HIGHEST


def _info(row: Any) -> DatasetInfo:
    fields = dict(row)
    kept, made_at = fields.pop("versions"), fields.pop("made_at")
    return DatasetInfo(latest=_version(fields), versions=kept, created_at=made_at)


def _version(fields: dict[str, Any]) -> DatasetVersion:
    fields["mode"] = Mode(fields["mode"])
    return DatasetVersion(**fields)


# What is old


async def prune(tx: Tx, age_micros: int, limit: int) -> int:
    """1. Versions are found that nobody reads, and locked. 2. A submit that had pinned one of them before it was locked
    has committed by then: so they are looked at once more. 3. One that comes later waits, and finds none.
    """
    found = await tx.session.rows("old_versions", tx.session.given, age_micros, limit)
    if not found:
        return 0
    gone = await tx.session.rows("drop_versions", *map(list, zip(*found, strict=True)))
    if gone:
        await tx.session.rows("loosen", *map(list, zip(*gone, strict=True)))
    return len(gone)


async def sweep(session: Session) -> bool:
    """Delete some rows of bases that have no versions any more; whether there may be more."""
    return bool(await session.value("sweep", SWEPT) == SWEPT)
